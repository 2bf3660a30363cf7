//! Shards of a plan whose jobs are numbers, cut off and merged.

use lockwright_shards::{Error, Flags, Job, Merge, Merger, Plan, Session, Shard};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tempfile::TempDir;

const JOBS: usize = 11;

const BY: Merger =
    Merger { program: "lockwright", commands: &["count"], times: &[("count", "seconds")] };

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn plan(seed: u64) -> Plan {
    Plan::new("lockwright", words(&format!("count --seed {seed} --output x")), [seed.to_string()])
}

fn open(seed: u64, shard: &str, dir: &Path, resume: bool) -> Result<Session, Error> {
    let flags = Flags { shard: Some(shard.parse().unwrap()), resume };
    flags.open(&plan(seed), Some(dir), || "here".into())
}

/// The jobs that were done, and all results if there are all.
fn run(session: &Session) -> Result<(Vec<usize>, Option<Vec<f64>>), Error> {
    let jobs = Job::all((0..JOBS).map(|job| format!("job {job}")));
    let done = Mutex::new(Vec::new());
    let results = session.results(&jobs, |left, keep| {
        left.iter().try_for_each(|&job| {
            done.lock().unwrap().push(job);
            keep(job, 0.1 * job as f64)
        })
    })?;
    Ok((done.into_inner().unwrap(), results))
}

fn merge(seed: u64, folders: &[PathBuf]) -> Result<Vec<f64>, Error> {
    let session = Merge::read(folders, None, BY)?.session(&plan(seed))?;
    Ok(run(&session)?.1.expect("a merged session has all"))
}

fn file(dir: &TempDir, shard: &str) -> PathBuf {
    let (number, of) = shard.split_once('/').unwrap();
    dir.path().join(format!("shard-{number}-of-{of}.jsonl"))
}

#[test]
fn merged_shards_have_what_one_process_has() {
    let dir = TempDir::new().unwrap();
    let (all, whole) = run(&Session::transient()).unwrap();
    assert_eq!(all.len(), JOBS);
    let mut done = Vec::new();
    for shard in 1..=4 {
        let session = open(1, &format!("{shard}/4"), dir.path(), false).unwrap();
        let (mine, results) = run(&session).unwrap();
        assert_eq!(results, None);
        assert!(mine.iter().all(|job| Shard::new(shard, 4).unwrap().owns(*job)));
        done.extend(mine);
    }
    done.sort_unstable();
    assert_eq!(done, all);
    assert_eq!(merge(1, &[dir.path().into()]).unwrap(), whole.unwrap());
}

#[test]
fn a_torn_line_is_dropped_wherever_it_is_torn() {
    let dir = TempDir::new().unwrap();
    let file = file(&dir, "2/3");
    let (mine, _) = run(&open(1, "2/3", dir.path(), false).unwrap()).unwrap();
    let whole = fs::read(&file).unwrap();
    let lines = whole.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lines, mine.len() + 1);
    for length in 0..=whole.len() {
        fs::write(&file, &whole[..length]).unwrap();
        let session = open(1, "2/3", dir.path(), true).unwrap();
        let (left, _) = run(&session).unwrap();
        let kept = whole[..length].iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(left.len(), mine.len() - kept.saturating_sub(1), "cut after {length} bytes");
        assert_eq!(fs::read(&file).unwrap(), whole, "cut after {length} bytes");
    }
}

#[test]
fn a_shard_that_has_begun_goes_on_only_if_that_is_asked_for() {
    let dir = TempDir::new().unwrap();
    let session = open(1, "1/2", dir.path(), false).unwrap();
    let busy = open(1, "1/2", dir.path(), true).err().unwrap();
    assert!(busy.message().contains("another process"), "{busy}");
    drop(session);
    let begun = open(1, "1/2", dir.path(), false).err().unwrap();
    assert!(begun.message().contains("has results already"), "{begun}");
    assert!(begun.hint().ends_with("--shard 1/2 --resume"), "{begun}");
    let other = open(2, "1/2", dir.path(), true).err().unwrap();
    assert!(
        other.message().contains("belongs to another plan: lockwright count --seed 1"),
        "{other}"
    );
    assert!(open(1, "1/2", dir.path(), true).is_ok());
}

#[test]
fn a_merge_says_what_is_missing_and_what_makes_it() {
    let dir = TempDir::new().unwrap();
    for shard in ["1/4", "3/4"] {
        run(&open(1, shard, dir.path(), false).unwrap()).unwrap();
    }
    let shown = dir.path().display();
    let missing = merge(1, &[dir.path().into()]).err().unwrap();
    assert_eq!(missing.message(), "shards 2, 4 of 4 are missing");
    let command = format!("lockwright count --seed 1 --output {shown} --shard");
    let all = format!("for i in 2 4; do {command} $i/4 --resume; done");
    assert_eq!(missing.hint(), all);

    run(&open(1, "4/4", dir.path(), false).unwrap()).unwrap();
    drop(open(1, "2/4", dir.path(), false).unwrap());
    let lacking = merge(1, &[dir.path().into()]).err().unwrap();
    assert_eq!(lacking.message(), "shard 2/4 lacks 3 results");
    assert_eq!(lacking.hint(), format!("{command} 2/4 --resume"));
}

#[test]
fn a_merge_refuses_what_does_not_belong_together() {
    let (one, two) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let folders = [one.path().to_owned(), two.path().to_owned()];
    let why = |folders: &[PathBuf]| merge(1, folders).err().unwrap();
    assert!(why(&folders).message().starts_with("no shard in"), "{}", why(&folders));

    run(&open(1, "1/2", one.path(), false).unwrap()).unwrap();
    run(&open(2, "2/2", two.path(), false).unwrap()).unwrap();
    let other = why(&folders);
    assert!(other.message().contains("belongs to another plan"), "{other}");
    assert!(other.hint().contains("count --seed 2"), "{other}");
    fs::remove_file(file(&two, "2/2")).unwrap();

    run(&open(1, "2/3", two.path(), false).unwrap()).unwrap();
    assert!(why(&folders).message().contains("another number of shards"), "{}", why(&folders));
    assert!(why(&folders).hint().contains("/shard-*-of-3.jsonl"), "{}", why(&folders));
    fs::remove_file(file(&two, "2/3")).unwrap();

    // The same results twice are fine; others are not.
    run(&open(1, "2/2", one.path(), false).unwrap()).unwrap();
    run(&open(1, "2/2", two.path(), false).unwrap()).unwrap();
    assert_eq!(merge(1, &folders).unwrap().len(), JOBS);
    let text = fs::read_to_string(file(&two, "2/2")).unwrap();
    // Times of the machine may differ, and nothing else.
    let timed = |seconds: f64, count: u32| {
        let mut lines: Vec<_> = text.lines().collect();
        let line = format!(r#"{{"job":"job 1","result":[{{"n":{count},"seconds":{seconds}}}]}}"#);
        lines[1] = &line;
        lines.join("\n") + "\n"
    };
    fs::write(file(&one, "2/2"), timed(1.0, 7)).unwrap();
    fs::write(file(&two, "2/2"), timed(2.0, 7)).unwrap();
    assert!(Merge::read(&folders, None, BY).is_ok());
    fs::write(file(&two, "2/2"), timed(1.0, 8)).unwrap();
    assert!(why(&folders).message().contains("disagree: 'job 1'"), "{}", why(&folders));
    fs::write(file(&one, "2/2"), &text).unwrap();

    let tampered = text.replacen(":0.1}", ":0.2}", 1);
    assert_ne!(tampered, text);
    fs::write(file(&two, "2/2"), &tampered).unwrap();
    let disagree = why(&folders);
    assert!(disagree.message().contains("disagree: 'job 1'"), "{disagree}");

    let other_build = text.replacen("\"sources\":\"", "\"sources\":\"0", 1);
    fs::write(file(&two, "2/2"), other_build).unwrap();
    assert!(why(&folders).message().contains("another build"), "{}", why(&folders));
    fs::write(file(&two, "2/2"), text.replacen("{\"job\"", "{\"jab\"", 1)).unwrap();
    assert!(why(&folders).message().contains("damaged: line 2"), "{}", why(&folders));
}

#[test]
fn a_merge_refuses_a_header_before_its_words_are_used() {
    let dir = TempDir::new().unwrap();
    run(&open(1, "1/1", dir.path(), false).unwrap()).unwrap();
    let file = file(&dir, "1/1");
    let text = fs::read_to_string(&file).unwrap();
    for (from, to, why) in [
        ("[\"count\",", "[\"run\",\"--\",\"touch\",", "is from a command that makes no shards"),
        ("[\"count\",\"--seed\",\"1\",\"--output\",\"x\"]", "[]", "that makes no shards"),
        ("\"program\":\"lockwright\"", "\"program\":\"rm -rf ~;\"", "is not a shard of lockwright"),
        ("\"sources\":\"", "\"sources\":\"0", "was made by another build"),
        ("\"version\":\"", "\"version\":\"9", "was made by another build"),
        ("\"of\":1", "\"of\":2", "shard 2 of 2 is missing"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text);
        fs::write(&file, changed).unwrap();
        let refused = merge(1, &[dir.path().into()]).err().unwrap();
        assert!(refused.message().contains(why), "{refused}");
        assert!(!refused.to_string().contains("rm -rf"), "{refused}");
        assert!(!refused.to_string().contains("touch"), "{refused}");
    }
    // What a terminal would obey is only shown.
    let escape = text.replacen("\"1\",\"--output", "\"1\\u001b]0;\",\"--output", 1);
    fs::write(&file, escape.replacen("\"of\":1", "\"of\":2", 1)).unwrap();
    let shown = merge(1, &[dir.path().into()]).err().unwrap().to_string();
    assert!(shown.contains("\\u{1b}]0;") && !shown.contains('\x1b'), "{shown}");
}

#[test]
fn results_go_to_a_regular_file_of_ours_alone() {
    let dir = TempDir::new().unwrap();
    let file = file(&dir, "1/1");
    let refused = || open(1, "1/1", dir.path(), true).err().unwrap();

    // No newline, one, and a beginning that is nearly ours.
    for foreign in ["a song without an end", "{", "{\"form\":1", "a line\n"] {
        fs::write(&file, foreign).unwrap();
        if foreign == "{" {
            // A header that a kill has torn so early is begun again.
            drop(open(1, "1/1", dir.path(), true).unwrap());
            continue;
        }
        let why = refused();
        assert_eq!(why.message().lines().count(), 1, "{why}");
        assert_eq!(fs::read_to_string(&file).unwrap(), foreign, "{why}");
    }
    fs::remove_file(&file).unwrap();

    // What a link leads to, or would.
    let target = dir.path().join("target");
    symlink(&target, &file).unwrap();
    assert!(refused().message().contains("is a symbolic link"), "{}", refused());
    assert!(!target.exists());
    fs::write(&target, "").unwrap();
    assert!(refused().message().contains("is a symbolic link"), "{}", refused());
    assert_eq!(fs::read_to_string(&target).unwrap(), "");
    fs::remove_file(&file).unwrap();

    // Nobody writes to the pipe: a reader would wait for ever. No process is started to make it: until it has its own program, it
    // would hold the locks of the files that other tests have open.
    mknodat(CWD, &file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    assert!(refused().message().contains("is not a regular file"), "{}", refused());
    let read = merge(1, &[dir.path().into()]).err().unwrap();
    assert!(read.message().contains("is not a regular file"), "{read}");
}

#[test]
fn a_merge_is_of_the_plan_that_the_command_makes_here() {
    let dir = TempDir::new().unwrap();
    run(&open(1, "1/1", dir.path(), false).unwrap()).unwrap();
    let merged = Merge::read(&[dir.path().into()], Some(Path::new("out")), BY).unwrap();
    assert_eq!(merged.words(), words("count --seed 1 --output out"));
    let changed = merged.session(&plan(2)).err().unwrap();
    assert!(changed.message().contains("files or settings that differ"), "{changed}");
}

#[test]
fn without_a_shard_the_results_are_all_there_and_kept() {
    let dir = TempDir::new().unwrap();
    let flags = Flags { shard: None, resume: true };
    let session = || flags.open(&plan(1), Some(dir.path()), || "here".into()).unwrap();
    let whole = run(&Session::transient()).unwrap().1;
    assert_eq!(run(&session()).unwrap(), ((0..JOBS).collect(), whole.clone()));
    assert_eq!(run(&session()).unwrap(), (Vec::new(), whole));
    assert!(flags.open(&plan(1), None, || "here".into()).is_err());
}
