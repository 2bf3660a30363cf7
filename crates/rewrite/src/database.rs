//! A compilation database: which files a program has, and how each is compiled.

use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A file, and the flags that its compiler gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The file.
    pub path: PathBuf,
    /// Where the compiler runs.
    pub folder: PathBuf,
    /// Include folders, definitions, the language: what changes how the file is read.
    pub flags: Vec<String>,
    /// The flags of the file's other builds.
    pub others: Vec<Vec<String>>,
}

#[derive(Deserialize)]
struct CompileCommand {
    directory: PathBuf,
    file: PathBuf,
    #[serde(default)]
    arguments: Vec<String>,
    #[serde(default)]
    command: String,
}

/// The files of `compile_commands.json`, each once.
///
/// # Errors
/// It isn't a database.
pub fn parse(text: &str) -> Result<Vec<Unit>, String> {
    let entries: Vec<CompileCommand> =
        serde_json::from_str(text).map_err(|cause| cause.to_string())?;
    let mut units: Vec<Unit> = Vec::new();
    for entry in entries {
        let arguments = if entry.arguments.is_empty() {
            shlex::split(&entry.command).unwrap_or_default()
        } else {
            entry.arguments
        };
        let path = entry.directory.join(&entry.file);
        let path = path.canonicalize().unwrap_or(path);
        let flags = flags(&arguments, &entry.directory);
        if let Some(unit) = units.iter_mut().find(|unit| unit.path == path) {
            if unit.flags != flags && !unit.others.contains(&flags) {
                unit.others.push(flags);
            }
            continue;
        }
        let others = Vec::new();
        units.push(Unit { path, folder: entry.directory, flags, others });
    }
    Ok(units)
}

/// Of a compiler's arguments, those that change how a file is read. Relative folders become absolute.
fn flags(arguments: &[String], folder: &Path) -> Vec<String> {
    let mut flags = Vec::new();
    let mut all = arguments.iter().skip(1);
    while let Some(argument) = all.next() {
        let folders = ["-I", "-isystem", "-iquote", "-include", "-idirafter"];
        if let Some(flag) = folders.iter().find(|flag| argument.starts_with(**flag)) {
            let rest = argument[flag.len()..].to_owned();
            let given = if rest.is_empty() { all.next().cloned() } else { Some(rest) };
            let Some(given) = given else { continue };
            flags.extend([(*flag).to_owned(), folder.join(given).display().to_string()]);
        } else if ["-D", "-U"].contains(&argument.as_str()) {
            flags.push(argument.clone());
            flags.extend(all.next().cloned());
        } else if ["-D", "-U", "-std=", "-ansi", "-pthread", "-m", "-fopenmp"]
            .iter()
            .any(|flag| argument.starts_with(flag))
        {
            flags.push(argument.clone());
        } else if argument == "-o" {
            all.next();
        }
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_change_how_a_file_is_read_are_kept() {
        let given = "gcc -DX=1 -I. -I sub -O2 -c -o a.o -std=gnu11 -Wall a.c".split(' ');
        let given: Vec<String> = given.map(str::to_owned).collect();
        let expected = ["-DX=1", "-I", "/p/.", "-I", "/p/sub", "-std=gnu11"];
        assert_eq!(flags(&given, Path::new("/p")), expected);
    }
}
