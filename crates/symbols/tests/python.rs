//! Stacks of a sleeping Python process, of which everything is known. `PYTHON` names an interpreter other than
//! `python3`.

use anyhow::{Context, Result};
use lockwright_symbols::{Python, PythonFrame};
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn functions_files_and_lines_are_named() -> Result<()> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stack.py");
    let source = std::fs::read_to_string(&script)?;
    let line = |mark: &str| {
        let ends = |line: &str| line.ends_with(&format!("# {mark}"));
        source.lines().position(ends).and_then(|at| u32::try_from(at + 1).ok()).context("a mark")
    };
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let started =
        Command::new(&python).arg(&script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = started else {
        eprintln!("there is no {python}: no stack is read");
        return Ok(());
    };
    let mut answer = String::new();
    BufReader::new(child.stdout.take().context("a pipe")?).read_line(&mut answer)?;
    let tid: u32 = answer.split_whitespace().next().context("an id")?.parse()?;
    let pid = child.id().cast_signed();
    let found = Python::of_process(pid);
    let stack = match found {
        Err(error) if error.kind() == ErrorKind::Unsupported => Err(error),
        found => Ok(found?.context("an interpreter")?.stack(tid).context("a stack")?),
    };
    drop(child.stdin.take());
    child.wait()?;
    let stack = match stack {
        Ok(stack) => stack,
        Err(error) => {
            eprintln!("{python}: {error}: no stack is read");
            return Ok(());
        }
    };
    // Since 3.12, comprehensions are part of their functions.
    let is_own = |one: &&PythonFrame| !one.frame.name().ends_with("<listcomp>");
    let seen = |one: &PythonFrame| (one.frame.name(), one.frame.line, one.is_in_with);
    let seen: Vec<_> = stack.iter().filter(is_own).map(seen).collect();
    let wanted = [
        ("Store.wait", "wait", false),
        ("größe", "größe", true),
        ("main.<locals>.<lambda>", "lambda", false),
        ("main", "lambda", false),
        ("<module>", "module", false),
    ];
    let wanted = wanted.map(|(name, mark, is_in)| Ok((name.to_owned(), Some(line(mark)?), is_in)));
    assert_eq!(seen, wanted.into_iter().collect::<Result<Vec<_>>>()?);
    assert!(stack.iter().all(|one| one.frame.file.as_deref() == script.to_str()), "{stack:?}");
    assert!(stack.iter().all(|one| !one.enters_with), "{stack:?}");
    Ok(())
}

#[test]
fn a_process_without_python_has_none() -> Result<()> {
    assert!(Python::of_process(std::process::id().cast_signed())?.is_none());
    Ok(())
}
