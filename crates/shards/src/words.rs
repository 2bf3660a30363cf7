//! The command line: the flags that divide an experiment into shards, and the command without those flags.

use crate::{Error, Plan, Session, Shard, ShardHeader};
use std::ffi::OsString;
use std::path::Path;

/// How an experiment is divided into shards.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Flags {
    /// Do only this part, as in 3/8, and keep its results in --output; `sim --merge` makes the report of all parts
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// Keep each result in --output as it comes; go on where an earlier run was cut off
    #[arg(long)]
    pub resume: bool,
}

impl Flags {
    /// Is neither flag given?
    pub fn are_unused(&self) -> bool {
        self.shard.is_none() && !self.resume
    }

    /// The session that these flags ask for. `machine` describes this machine.
    ///
    /// # Errors
    /// There is no folder; the shard was begun already and `--resume` isn't given; it was begun by another plan;
    /// another process is working on it; the file can't be read or written.
    pub fn open(
        &self,
        plan: &Plan,
        output: Option<&Path>,
        machine: impl FnOnce() -> String,
    ) -> Result<Session, Error> {
        if self.are_unused() {
            return Ok(Session::transient());
        }
        let Some(output) = output else {
            let flag = if self.shard.is_some() { "--shard" } else { "--resume" };
            return Err(Error::new(format!("{flag} needs a folder"), "add --output DIR"));
        };
        let shard = self.shard.unwrap_or(Shard::WHOLE);
        let header = ShardHeader::new(plan, shard, machine());
        let session = Session::open(header, output, self.resume)?;
        // Without --shard, this process also makes the report.
        Ok(if self.shard.is_some() { session.of_a_part() } else { session })
    }
}

/// This process's words, without the program's name. A shard's file, and the command that goes on with it, name them as text.
///
/// # Errors
/// One is no text.
pub fn words() -> Result<Vec<String>, Error> {
    texts(std::env::args_os().skip(1))
}

fn texts(words: impl Iterator<Item = OsString>) -> Result<Vec<String>, Error> {
    let text = |word: OsString| {
        word.into_string().map_err(|word| {
            Error::new(
                format!("{word:?} is not UTF-8, and results are kept with their command, as text"),
                "take another name, as in --output DIR",
            )
        })
    };
    words.map(text).collect()
}

/// The flags that name the folder of the results. Their values differ from machine to machine.
const OUTPUT: [&str; 2] = ["--output", "--out"];

/// A command's words without the flags that divide it into shards: the command for one machine. The program's name is
/// not among them.
pub fn stripped(words: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut words = words.into_iter();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--resume" => {}
            "--shard" => drop(words.next()),
            _ if word.starts_with("--shard=") => {}
            _ => kept.push(word),
        }
    }
    kept
}

/// The words with another output folder, if they name one. With `None`, the flag is removed.
pub(crate) fn with_output(words: &[String], output: Option<&Path>) -> Vec<String> {
    let folder = || output.map(|folder| folder.display().to_string());
    let (mut all, mut words, mut is_there) = (Vec::new(), words.iter(), false);
    while let Some(word) = words.next() {
        let (flag, joined) =
            word.split_once('=').map_or((&**word, false), |(flag, _)| (flag, true));
        if !OUTPUT.contains(&flag) {
            all.push(word.clone());
            continue;
        }
        is_there = true;
        if !joined {
            words.next();
        }
        match folder() {
            Some(folder) if joined => all.push(format!("{flag}={folder}")),
            Some(folder) => all.extend([flag.to_owned(), folder]),
            None => {}
        }
    }
    if !is_there && let Some(folder) = folder() {
        all.extend(["--output".to_owned(), folder]);
    }
    all
}

/// Words joined for a shell, quoted only where necessary.
pub(crate) fn joined(words: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%".contains(c);
    let quoted = |word: &String| match shlex::try_quote(word) {
        Ok(quoted) if word.is_empty() || !word.chars().all(is_plain) => quoted.into_owned(),
        _ => word.clone(),
    };
    let text = words.iter().map(quoted).collect::<Vec<_>>().join(" ");
    // A file's header must not be able to send control characters to the terminal.
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_command_is_what_one_machine_would_be_given() {
        for given in [
            "sim --lock mcs --shard 3/8 --output a --resume -q",
            "sim --shard=3/8 --lock mcs --output a -q",
        ] {
            assert_eq!(stripped(words(given)), words("sim --lock mcs --output a -q"));
        }
    }

    #[test]
    fn a_word_that_is_no_text_is_refused() {
        use std::os::unix::ffi::OsStringExt as _;
        let words = |last: &[u8]| {
            texts(["sim".into(), "--output".into(), OsString::from_vec(last.to_vec())].into_iter())
        };
        assert_eq!(words("café".as_bytes()).unwrap(), ["sim", "--output", "café"]);
        let why = words(b"caf\xe9").unwrap_err();
        assert!(why.message().starts_with(r#""caf\xE9" is not UTF-8"#), "{why}");
    }

    #[test]
    fn the_folder_keeps_its_place() {
        for (given, named, none) in [
            ("sim --output a -q", "sim --output b -q", "sim -q"),
            ("sim --output=a -q", "sim --output=b -q", "sim -q"),
            ("bench --out a", "bench --out b", "bench"),
            ("sim -q", "sim -q --output b", "sim -q"),
        ] {
            assert_eq!(with_output(&words(given), Some(Path::new("b"))), words(named));
            assert_eq!(with_output(&words(given), None), words(none));
        }
    }
}
