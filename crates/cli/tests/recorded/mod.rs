//! A recorded program, for tests that simulate one.

use anyhow::{Context, Result};
use lockwright_stats::trace::{LockInfo, Meta, Step, Trace, TraceThread};
use std::fs::File;
use tempfile::TempDir;

/// A thread that began with the program.
pub(crate) fn thread(steps: Vec<Step>) -> TraceThread {
    TraceThread { process: 0, class: None, start_ns: 0, steps }
}

/// Writes what the threads of `server` recorded, with one lock; returns the file's path.
pub(crate) fn write(folder: &TempDir, threads: Vec<TraceThread>, span_ns: u64) -> Result<String> {
    let meta = Meta { processes: vec!["server".into()], span_ns, ..Meta::default() };
    let locks = vec![LockInfo { address: 0x7fff_1234_5678, ..LockInfo::default() }];
    let file = folder.path().join("server.bin");
    Trace { meta, locks, threads }.write(File::create(&file)?, &file)?;
    Ok(file.to_str().context("a path in UTF-8")?.to_owned())
}
