//! `record`: traces of programs, and what is left of a recording.

use super::*;

#[test]
fn record_writes_a_trace_and_ends_as_the_program_did() -> Result<()> {
    let file = FOLDER.path().join("contend.bin");
    let name = file.to_str().context("a path in UTF-8")?;
    let kill = libc::SIGKILL.to_string();
    for (end, how) in
        [(End::Code(7), ["exit", "7"]), (End::Signal(libc::SIGKILL), ["signal", &kill])]
    {
        let options = [
            "profile", "--record", "--force", "--output", name, "--lock", "fifo", "--", "sh", "-c",
        ];
        // Tells where it records.
        let script = format!("echo $LOCKWRIGHT_TRACE; exec {} {}", contend_path(), how.join(" "));
        let outcome = lockwright().args(options).args([script]).run()?;
        assert_eq!(outcome.end, end, "{}", outcome.describe());
        let text = outcome.text();
        let (folder, count) = text.split_once('\n').context("two lines")?;
        assert_eq!(count, COUNT);
        assert!(folder.contains("lockwright-trace-") && !Path::new(folder).exists(), "{folder}");
        let said = outcome.errors();
        let start = format!(
            "trace: {name}\n24,000 acquisitions of 2 locks by 4 threads, on lock fifo and "
        );
        assert!(
            said.starts_with(&start) && said.replace("\n  ", " ").contains("every time is real\n"),
            "{said}"
        );
        let shown = lockwright().args(["profile", "--record", "--show", name]).run()?;
        assert_eq!(format!("trace: {name}\n{}", shown.text()), said);
        let json = lockwright().args(["profile", "--record", "--json", "--show", name]).run()?;
        let json: serde_json::Value = serde_json::from_slice(&json.stdout)?;
        assert_eq!(
            (json["acquisitions"].as_u64(), json["dropped"].as_u64()),
            (Some(24_000), Some(0))
        );
        let locks = json["locks"].as_array().context("an array")?;
        let symbols: Vec<_> = locks.iter().map(|lock| lock["symbol"].as_str()).collect();
        assert_eq!(symbols, [Some("g_lock"), Some("own_lock")], "{json}");
        for lock in locks {
            assert_eq!(
                (lock["acquisitions"].as_u64(), lock["threads"].as_u64()),
                (Some(12_000), Some(4))
            );
            assert!(lock["hold"]["max_ns"].as_u64() >= lock["hold"]["p50_ns"].as_u64(), "{lock}");
        }
        // The holder slept for 1 ms, 46 times.
        assert!(json["idle_ns"].as_u64() > Some(40_000_000), "{json}");
    }
    Ok(())
}

#[test]
fn what_a_killed_command_left_is_removed_by_the_next() -> Result<()> {
    let output = FOLDER.path().join("left.bin").display().to_string();
    let record = ["profile", "--record", "--force", "--output", &output, "--"];
    for (options, variable) in
        [(&record[..], "LOCKWRIGHT_TRACE"), (&["run", "--stats", "--"], "LOCKWRIGHT_STATS")]
    {
        let script = format!("echo ${variable}; kill -KILL $PPID");
        let outcome = lockwright().args(options).args(["sh", "-c", &script]).run()?;
        assert_eq!(outcome.end, End::Signal(libc::SIGKILL), "{}", outcome.describe());
        let text = outcome.text();
        let folder = Path::new(text.trim());
        assert!(folder.is_absolute(), "{text}");
        let outcome = lockwright().args(record).args(["true"]).run()?;
        assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
        assert!(!folder.exists(), "{text}");
    }
    Ok(())
}

#[test]
fn record_says_what_it_has_not() -> Result<()> {
    let name = |name: &str| FOLDER.path().join(name).display().to_string();
    let record = |options: &[&str], program: &str| {
        lockwright().args(["profile", "--record"]).args(options).args(["--", program]).run()
    };
    let outcome = record(&["--output", &name("none.bin")], "true")?;
    assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
    let hint = "no mutex was acquired\nhint: lockwright doctor --run -- PROGRAM\n";
    assert!(outcome.errors().ends_with(hint), "{}", outcome.errors());
    let outcome = record(&["--output", &name("few.bin"), "--limit", "1"], contend_path())?;
    assert_eq!((outcome.end, outcome.text().as_str()), (End::Code(0), COUNT));
    let said = outcome.errors();
    assert!(said.contains("\nnot recorded, at the end: "), "{said}");
    assert!(
        said.contains(" (the limit was reached)\nhint: lockwright profile --record --limit "),
        "{said}"
    );
    // The trace that is there stays: the program is not even started.
    let few = fs::read(name("few.bin"))?;
    let outcome = record(&["--output", &name("few.bin")], contend_path())?;
    assert_eq!((outcome.end, outcome.text().as_str()), (End::Code(2), ""));
    let expected = format!(
        "error: '{}' exists already: a trace is not overwritten\nhint: lockwright profile --record --force -- {}, or --output FILE\n",
        name("few.bin"),
        contend_path(),
    );
    assert_eq!(outcome.errors(), expected);
    assert!(fs::read(name("few.bin"))? == few);
    let outcome = record(&["--output", &name("no/where.bin")], contend_path())?;
    assert_eq!((outcome.end, outcome.text().as_str()), (End::Code(2), ""));
    assert!(outcome.errors().starts_with("error: cannot write '"), "{}", outcome.errors());
    Ok(())
}
