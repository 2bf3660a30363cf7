//! Readers that overlap until a writer gets in: who goes first at readers-writer locks, from the start, by a rule, and live.

use super::ctl::Program;
use super::{FOLDER, compiled, lockwright, run};
use anyhow::{Result, ensure};
use lockwright_tests::End;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Nothing here takes that long.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) static OVERLAP: LazyLock<PathBuf> =
    LazyLock::new(|| compiled("overlap", "overlap.c", &["-g"]));

/// Runs it to its end; it prints that.
fn prints(options: &[&str], words: &[&str], printed: &str) -> Result<()> {
    let program = OVERLAP.to_string_lossy();
    let outcome = run(&[options, &["--", &program], words].concat())?;
    ensure!(outcome.end == End::Code(0), "{options:?}: {}", outcome.describe());
    ensure!(outcome.text() == printed, "{options:?}: {}", outcome.describe());
    Ok(())
}

#[test]
fn a_writer_gets_in_among_readers_that_overlap_if_they_are_patient() -> Result<()> {
    prints(&["--rwlock", "patient"], &[], "waits\nwrote\n")?;
    for (name, target) in [("one", "rwlock = \"g_table\""), ("all", "kind = \"rwlock\"")] {
        let file = FOLDER.path().join(format!("overlap-{name}.toml"));
        fs::write(&file, format!("[[lock]]\n{target}\nuse = \"rwlock:prefer=patient\"\n"))?;
        prints(&["--config", &file.to_string_lossy()], &[], "waits\nwrote\n")?;
    }
    Ok(())
}

#[test]
fn a_thread_reads_again_while_a_writer_waits_unless_writers_are_preferred_strictly() -> Result<()> {
    for who in ["own", "readers", "writers", "patient"] {
        prints(&["--rwlock", who], &["nested"], "again\n")?;
    }
    Ok(())
}

/// Starts it, lets a command change who goes first while the writer waits, and lets it end.
fn switched(words: &[&str], shown: &str) -> Result<()> {
    let program = Program::start_file(&OVERLAP)?;
    ensure!(program.said == "waits", "{}", program.said);
    let pid = program.child.id().to_string();
    let begun = Instant::now();
    let outcome = lockwright().args(["switch", &pid]).args(words).run()?;
    ensure!(outcome.end == End::Code(0), "{words:?}: {}", outcome.describe());
    while !lockwright().args(["switch", &pid]).run()?.text().contains(shown) {
        ensure!(begun.elapsed() < PATIENCE, "it doesn't take up '{shown}'");
        sleep(Duration::from_millis(100));
    }
    let printed = program.end()?;
    ensure!(printed == "wrote\n", "{printed}");
    Ok(())
}

#[test]
fn a_running_program_takes_up_who_goes_first_while_a_writer_starves() -> Result<()> {
    switched(&["--rwlock", "patient"], "readers-writer locks: rwlock:prefer=patient")?;
    switched(&["g_table", "rwlock:prefer=patient"], "rwlock g_table (overlap")
}
