//! The examples, as the command's own help has them.

use crate::helps::{helps, part};
use anyhow::{Result, bail, ensure};

/// The examples of one help.
pub(crate) struct Section {
    /// The words of the command.
    pub(crate) command: String,
    /// Shell variables that the examples set, for those that follow.
    pub(crate) variables: Vec<String>,
    pub(crate) examples: Vec<String>,
}

/// All of them: of the command, and of all commands below it.
pub(crate) fn sections() -> Result<Vec<Section>> {
    let helps = helps()?;
    let sections = helps
        .iter()
        .filter_map(|help| part(&help.text, "Examples:").map(|text| read(help.command(), text)));
    sections.collect()
}

fn read(command: String, text: &str) -> Result<Section> {
    let mut section = Section { command, variables: Vec::new(), examples: Vec::new() };
    let mut goes_on = false;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let (code, _) = without_remark(line.trim_start());
        let (code, more) = match code.strip_suffix('\\') {
            Some(code) => (code.trim_end(), true),
            None => (code, false),
        };
        if goes_on {
            let Some(last) = section.examples.last_mut() else { bail!("nothing goes on") };
            *last = format!("{last} {code}");
        } else if indent == 2 && is_set(code) {
            section.variables.push(code.to_owned());
        } else if indent == 2
            && ["lockwright ", "sudo lockwright "].iter().any(|start| code.starts_with(start))
        {
            section.examples.push(code.to_owned());
        } else {
            // A remark that has no room beside the example, under where remarks begin.
            ensure!(
                indent >= 30,
                "{}: neither an example nor a remark (was an example too long, and wrapped?): '{line}'",
                section.command
            );
        }
        goes_on = more;
    }
    Ok(section)
}

/// `NAME=VALUE`?
fn is_set(code: &str) -> bool {
    let name = code.split_once('=').map_or("", |(name, _)| name);
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// An example, and the remark beside it: two spaces or more part them.
fn without_remark(line: &str) -> (&str, &str) {
    let mut quote = None;
    for (at, letter) in line.char_indices() {
        match quote {
            Some(open) if letter == open => quote = None,
            None if letter == '\'' || letter == '"' => quote = Some(letter),
            None if line[at..].starts_with("  ") => return (&line[..at], line[at..].trim_start()),
            _ => {}
        }
    }
    (line, "")
}

#[test]
fn examples_are_read_as_they_are_written() {
    let text = "  d=~/x\n  lockwright a > $d/y   a remark\n  lockwright b --c '1  2' \\\n    --d   on\n  \
                sudo lockwright e\n                                         a long remark\n";
    let section = read("lockwright".to_owned(), text).unwrap();
    assert_eq!(section.variables, ["d=~/x"]);
    assert_eq!(
        section.examples,
        ["lockwright a > $d/y", "lockwright b --c '1  2' --d", "sudo lockwright e"]
    );
    let wrapped = "  lockwright profile -- ./server    which locks it waits for, and\n  why\n";
    assert!(read("lockwright".to_owned(), wrapped).is_err());
}
