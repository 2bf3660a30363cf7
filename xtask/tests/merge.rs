//! What `cargo xtask merge` refuses, and says of it. Anybody may have written the files.

use anyhow::{Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const COMMAND: [&str; 7] = ["eval", "programs", "--only", "xz", "--quick", "--output", "shards"];

/// Exit code, and what it says.
fn xtask(dir: &Path, words: &[&str]) -> Result<(Option<i32>, String)> {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(words).current_dir(dir).output()?;
    Ok((output.status.code(), String::from_utf8(output.stderr)?))
}

/// The header of a shard that has no job: the one program is the other shard's.
fn header() -> Result<String> {
    let dir = tempfile::tempdir()?;
    let (code, said) = xtask(dir.path(), &[&COMMAND[..], &["--shard", "2/2"]].concat())?;
    ensure!(code == Some(0), "{said}");
    Ok(fs::read_to_string(dir.path().join("shards/shard-2-of-2.jsonl"))?)
}

/// The same of the other shard.
fn first(header: &str) -> String {
    header.replace(r#""shard":2"#, r#""shard":1"#)
}

/// With other words.
fn command(header: &str, words: &str) -> String {
    let known = r#"["eval","programs","--only","xz","--quick","--output","shards"]"#;
    assert!(header.contains(known), "{header}");
    let words: Vec<String> = words.split(' ').map(|word| format!("\"{word}\"")).collect();
    header.replace(known, &format!("[{}]", words.join(",")))
}

/// With another value for one of its texts.
fn other(header: &str, key: &str) -> String {
    let key = format!(r#""{key}":""#);
    let at = header.find(&key).expect("it has the key") + key.len();
    header[..at].to_owned() + "0" + &header[at..]
}

/// A folder with these shards.
fn folder(shards: &[(u32, &str)]) -> Result<TempDir> {
    let dir = tempfile::tempdir()?;
    fs::create_dir(dir.path().join("shards"))?;
    for (number, text) in shards {
        fs::write(dir.path().join(format!("shards/shard-{number}-of-2.jsonl")), text)?;
    }
    Ok(dir)
}

#[test]
fn shards_that_are_not_of_one_experiment_of_ours_are_refused() -> Result<()> {
    let two = header()?;
    let one = first(&two);
    let list = command(&two, "eval programs --list");
    let unknown = command(&two, "eval everything");
    let result = |number: u32| format!("{one}{{\"job\":\"xz: round 1\",\"result\":{number}}}\n");
    for (shards, message, hint) in [
        (vec![], "no shard in 'shards'", "cargo xtask eval ... --shard 1/8 --output 'shards'"),
        (
            vec![(2, two.clone())],
            "shard 1 of 2 is missing",
            "cargo xtask eval programs --only xz --quick --output shards --shard 1/2 --resume",
        ),
        (
            vec![(1, one.clone()), (2, two.clone())],
            "shard 1/2 lacks 2 results",
            "cargo xtask eval programs --only xz --quick --output shards --shard 1/2 --resume",
        ),
        (
            vec![(2, two[..40].into())],
            "no shard has begun: no header is complete",
            "run the shards",
        ),
        (
            vec![(1, one.clone()), (2, other(&two, "plan"))],
            "'shards/shard-2-of-2.jsonl' belongs to another plan than the shards before it",
            "merge them apart: mv",
        ),
        (
            vec![(1, other(&one, "plan")), (2, other(&two, "plan"))],
            "this command depends on files or settings that differ from when the shards were made",
            "merge where its files",
        ),
        (
            vec![(2, two.replace("cargo xtask", "lockwright"))],
            "'shards/shard-2-of-2.jsonl' is not a shard of cargo xtask",
            "merge with the program that made it: lockwright sim --merge, cargo xtask merge",
        ),
        (
            vec![(2, other(&two, "sources"))],
            "'shards/shard-2-of-2.jsonl' was made by another build of lockwright",
            "merge with the program that made it",
        ),
        (
            vec![(2, command(&two, "release 9.9.9"))],
            "'shards/shard-2-of-2.jsonl' is from a command that makes no shards",
            "the commands that make shards: cargo xtask eval, fit",
        ),
        (
            vec![(1, first(&list)), (2, list)],
            "the shards are from a command that makes none: eval programs --list",
            "the commands that make shards: cargo xtask eval, fit",
        ),
        (
            vec![(1, first(&unknown)), (2, unknown)],
            "cargo xtask doesn't know the command that made the shards",
            "cargo xtask merge --help",
        ),
        (
            vec![(1, format!("{one}nonsense\n")), (2, two.clone())],
            "'shards/shard-1-of-2.jsonl' is damaged: line 2 is not a result",
            "rm 'shards/shard-1-of-2.jsonl', and run that shard again",
        ),
        (
            vec![(1, result(1)), (2, result(2).replace(r#""shard":1"#, r#""shard":2"#))],
            "two results of one job disagree: 'xz: round 1', the second in \
             'shards/shard-2-of-2.jsonl'",
            "leave out the folder that you don't trust",
        ),
    ] {
        let shards: Vec<_> = shards.iter().map(|(number, text)| (*number, &**text)).collect();
        let dir = folder(&shards)?;
        let (code, said) = xtask(dir.path(), &["merge", "shards", "--output", "report"])?;
        let told = format!("error: {message}\nhint: {hint}");
        ensure!(code == Some(2) && said.starts_with(&told), "{code:?}: {said}\nwanted: {told}");
        ensure!(!dir.path().join("report").exists(), "{message}: it wrote something");
    }
    Ok(())
}

#[test]
fn a_folder_that_is_not_there_is_named() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (code, said) = xtask(dir.path(), &["merge", "nowhere"])?;
    let told = "error: cannot read 'nowhere': no such file or directory\nhint: ls -ld 'nowhere'\n";
    assert_eq!((code, &*said), (Some(2), told));
    Ok(())
}

#[test]
fn a_shard_needs_a_folder_and_goes_on_only_if_asked_to() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (code, said) = xtask(dir.path(), &["eval", "programs", "--only", "xz", "--shard", "2/2"])?;
    let told = "error: --shard needs a folder\nhint: add --output DIR\n";
    assert_eq!((code, &*said), (Some(2), told));
    let shard = [&COMMAND[..], &["--shard", "2/2"]].concat();
    assert_eq!(xtask(dir.path(), &shard)?.0, Some(0));
    let (code, said) = xtask(dir.path(), &shard)?;
    let told = "error: 'shards/shard-2-of-2.jsonl' has results already\nhint: go on with them: \
                cargo xtask eval programs --only xz --quick --output shards --shard 2/2 --resume\n";
    assert_eq!((code, &*said), (Some(2), told));
    let again = [&shard[..], &["--resume"]].concat();
    assert_eq!(xtask(dir.path(), &again)?.0, Some(0));
    // Fewer locks, more rounds: another plan.
    let other =
        ["eval", "programs", "--only", "xz", "--output", "shards", "--shard", "2/2", "--resume"];
    let (code, said) = xtask(dir.path(), &other)?;
    ensure!(code == Some(2) && said.contains("belongs to another plan"), "{said}");
    Ok(())
}
