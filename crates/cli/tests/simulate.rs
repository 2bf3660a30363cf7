//! `lockwright sim`, whole: what it prints and writes, and that a rerun gives the same bytes.

mod recorded;

use anyhow::{Context, Result, ensure};
use lockwright_stats::trace::{Step, TraceThread};
use lockwright_tests::{Child, End, Outcome};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Short: the simulator is slow in debug builds.
const SHORT: [&str; 4] = ["--duration", "100us", "--warmup", "20us"];

fn sim(arguments: &[&str]) -> Result<Outcome> {
    Child::new(env!("CARGO_BIN_EXE_lockwright")).args(["sim"]).args(arguments).args(SHORT).run()
}

fn good(arguments: &[&str]) -> Result<Outcome> {
    let outcome = sim(arguments)?;
    ensure!(outcome.end == End::Code(0), outcome.describe());
    Ok(outcome)
}

const STUDY: [&str; 10] = [
    "--machine",
    "m1",
    "--lock",
    "mcs,fifo:bypass=1",
    "--threads",
    "2,max",
    "--seeds",
    "2",
    "--sweep",
    "gap=0,1k",
];

#[test]
fn a_rerun_gives_the_same_bytes_and_every_point_has_its_runs() -> Result<()> {
    let arguments = [&STUDY[..], &["--json"]].concat();
    let first = good(&arguments)?.text();
    assert_eq!(good(&arguments)?.text(), first);
    let whole: Value = serde_json::from_str(&first)?;
    assert_eq!(whole["origin"], "simulated");
    let points = whole["points"].as_array().context("points")?;
    let names: Vec<_> = points
        .iter()
        .map(|point| format!("{} {} {}", point["threads"], point["swept"]["gap"], point["lock"]))
        .collect();
    let mut expected = Vec::new();
    for threads in [2, 8] {
        for gap in ["0.0", "1000.0"] {
            for lock in ["mcs", "fifo:bypass=1"] {
                expected.push(format!("{threads} {gap} \"{lock}\""));
            }
        }
    }
    assert_eq!(names, expected);
    for point in points {
        let runs = point["runs"].as_array().context("runs")?;
        assert_eq!((runs[0]["seed"].as_u64(), runs[1]["seed"].as_u64()), (Some(1), Some(2)));
        let of = |run: &Value| run["throughput"].as_f64().unwrap_or_default();
        let (low, high) = (of(&runs[0]).min(of(&runs[1])), of(&runs[0]).max(of(&runs[1])));
        assert!(low > 0.0, "{point}");
        assert_eq!(point["throughput"]["low"].as_f64(), Some(low));
        assert_eq!(point["throughput"]["high"].as_f64(), Some(high));
        assert_eq!(point["params"]["lines"], 4.0);
    }
    Ok(())
}

#[test]
fn the_simulators_own_speed_is_real_and_does_not_change_what_it_prints() -> Result<()> {
    let arguments = ["--machine", "m1", "--lock", "mcs", "--seed", "1", "--json"];
    let (plain, timed) = (good(&arguments)?, good(&[&arguments[..], &["--speed"]].concat())?);
    assert_eq!(plain.text(), timed.text().replace(" --speed", ""));
    let said = timed.errors();
    assert!(said.contains("simulator (real): ") && said.contains(" events/s per core"), "{said}");
    let whole: Value = serde_json::from_str(&plain.text())?;
    let run = &whole["points"][0]["runs"][0];
    let count = |key: &str| run[key].as_u64().context("a count");
    // Every step but those that run on beneath others' events is an event itself.
    assert!(count("steps")? > count("events")? && count("events")? > 0, "{run}");
    Ok(())
}

#[test]
fn every_file_is_written_and_says_that_it_is_simulated() -> Result<()> {
    let folder = TempDir::new()?;
    let dir = folder.path().join("new/folder");
    let dir = dir.to_str().context("a path in UTF-8")?;
    let text = good(&[&STUDY[..], &["--output", dir]].concat())?.text();
    assert!(text.starts_with("simulated: m1 (Apple M1)"), "{text}");
    for name in [
        "report.html",
        "results.json",
        "results.csv",
        "throughput.svg",
        "latency.svg",
        "energy.svg",
    ] {
        let file = fs::read_to_string(Path::new(dir).join(name)).context(name)?;
        assert!(file.contains("simulated"), "{name}");
        assert!(file.contains("fifo:bypass=1"), "{name}");
    }
    let csv = fs::read_to_string(Path::new(dir).join("results.csv"))?;
    assert_eq!(csv.lines().count(), 1 + 2 * 2 * 2 * 2);
    let columns = csv.lines().map(|line| line.split(',').count());
    // A lock's options have no second comma here.
    let first = csv.lines().next().context("a header")?.split(',').count();
    assert!(columns.into_iter().all(|count| count == first), "{csv}");
    Ok(())
}

#[test]
fn a_class_that_got_nothing_is_said_everywhere() -> Result<()> {
    let folder = TempDir::new()?;
    let dir = folder.path().to_str().context("a path in UTF-8")?;
    let asked = ["--machine", "m1", "--lock", "mcs,asl-mcs", "--seed", "1", "--output", dir];
    let text = good(&[&asked[..], &["--threads", "8"]].concat())?.text();
    // Latencies have a table of their own.
    let (_, latencies) = text.rsplit_once("\n\nlock ").context("a second table")?;
    let little = latencies.lines().find(|line| line.starts_with("asl-mcs")).context("a row")?;
    ensure!(little.ends_with(" none") && latencies.contains("P99 little\n"), "{text}");
    let note = "note: asl-mcs: no operation finished on a little core within 100 µs, as its window is up to 100ms: \
                --duration 300ms shows them";
    ensure!(unbroken(&text).contains(note), "{text}");
    ensure!(!text.contains("note: mcs"), "{text}");
    let file = |name: &str| fs::read_to_string(folder.path().join(name)).context(name.to_owned());
    ensure!(file("latency.svg")?.contains("none ended"));
    ensure!(file("report.html")?.contains(note.trim_start_matches("note: ")));
    let whole: Value = serde_json::from_str(&file("results.json")?)?;
    let class = &whole["points"][1]["runs"][0]["classes"][1];
    assert_eq!((&class["threads"], &class["operations"]), (&4.into(), &0.into()));
    let csv = file("results.csv")?;
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().context("a header")?;
    let at = |name: &str| header.iter().position(|column| *column == name).context(name.to_owned());
    let of_asl = lines.nth(1).context("two runs")?;
    assert_eq!((of_asl[at("little_operations")?], of_asl[at("little_p99_ns")?]), ("0", ""));
    // Where no thread was, nothing is missing.
    let text = good(&[&asked[..], &["--threads", "4"]].concat())?.text();
    ensure!(!text.contains("note:") && !text.contains("none"), "{text}");
    let text = good(&[&asked[..], &["--threads", "4,8"]].concat())?.text();
    ensure!(unbroken(&text).contains("within 100 µs in 1 of 2 runs"), "{text}");
    ensure!(file("latency.svg")?.contains("little: none ended"));
    Ok(())
}

#[test]
fn transfers_on_the_way_have_a_table_and_columns_and_change_nothing_else() -> Result<()> {
    let folder = TempDir::new()?;
    let dir = folder.path().to_str().context("a path in UTF-8")?;
    let asked = ["--machine", "m1", "--lock", "mcs,ttas", "--workload", "bench:gap=0"];
    let asked = [&asked[..], &["--seed", "1", "--output", dir]].concat();
    let file = |name: &str| fs::read_to_string(folder.path().join(name)).context(name.to_owned());
    let whole = || -> Result<Value> { Ok(serde_json::from_str(&file("results.json")?)?) };
    let plain = good(&asked)?.text();
    let (plain_csv, mut plain_json) = (file("results.csv")?, whole()?);
    let text = good(&[&asked[..], &["--transfers"]].concat())?.text();
    let title = "Transfers of lines from the beginning of an unlock";
    ensure!(!plain.contains(title) && text.contains(title), "{text}");
    let (_, table) = text.split_once(title).context("a table")?;
    let mcs = table.lines().find(|line| line.starts_with("mcs ")).context("a row")?;
    // The waiter's gate: the releaser takes its line, the waiter fetches a copy.
    ensure!(mcs.split_whitespace().filter(|cell| *cell == "1.00").count() == 2, "{text}");
    ensure!(file("report.html")?.contains(title));
    let csv = file("results.csv")?;
    ensure!(csv.contains("wakes,path_hand_overs,path_transfers,") && !plain_csv.contains("path_"));
    // Nothing else changes.
    let mut json = whole()?;
    for point in json["points"].as_array_mut().context("points")? {
        let run = point["runs"][0].as_object_mut().context("a run")?;
        let path = run.remove("path").context("a path")?;
        ensure!(path["hand_overs"].as_u64() > Some(0), "{path}");
    }
    json["command"] = Value::Null;
    plain_json["command"] = Value::Null;
    assert_eq!(json, plain_json);
    let refused = sim(&["--list", "--transfers"])?;
    ensure!(refused.end == End::Code(2), refused.describe());
    ensure!(refused.errors().contains("'--transfers'"), refused.describe());
    Ok(())
}

/// The text with its broken lines put together again.
fn unbroken(text: &str) -> String {
    text.replace("\n  ", " ")
}

#[test]
fn threads_that_finished_nothing_are_counted() -> Result<()> {
    let text =
        good(&["--machine", "m1", "--lock", "mcs", "--seed", "1", "--threads", "200"])?.text();
    ensure!(
        unbroken(&text)
            .contains(" of 200 threads finished no operation within 100 µs: --duration 1ms"),
        "{text}"
    );
    Ok(())
}

#[test]
fn a_machine_is_a_file_too_and_its_figures_can_be_swept() -> Result<()> {
    let folder = TempDir::new()?;
    let file = folder.path().join("mine.toml");
    let m1 = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/profiles/m1.toml");
    fs::write(&file, fs::read_to_string(m1)?.replace("name = \"m1\"", "name = \"mine\""))?;
    let file = file.to_str().context("a path in UTF-8")?;
    let path = "class.big.line_ns=1,1000";
    let arguments =
        ["--machine", file, "--lock", "mcs", "--threads", "1", "--sweep", path, "--json"];
    let whole: Value = serde_json::from_str(&good(&arguments)?.text())?;
    assert_eq!(whole["machines"][0]["name"], "mine");
    let rate =
        |point: usize| whole["points"][point]["throughput"]["median"].as_f64().unwrap_or(0.0);
    // Four lines of 1 us each, or of 1 ns.
    assert!(rate(1) > 200e3 && rate(1) < 250e3, "{}", rate(1));
    assert!(rate(0) > 10.0 * rate(1), "{} {}", rate(0), rate(1));
    Ok(())
}

#[test]
fn a_timeline_is_a_trace_with_a_track_for_each_cpu() -> Result<()> {
    let folder = TempDir::new()?;
    let file = folder.path().join("trace.json");
    let path = file.to_str().context("a path in UTF-8")?;
    let one = ["--machine", "m1", "--lock", "glibc", "--seed", "7", "--timeline", path];
    let text = good(&one)?.text();
    assert!(text.contains(path), "{text}");
    let trace: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
    assert_eq!(trace["otherData"]["seed"], 7);
    let events = trace["traceEvents"].as_array().context("events")?;
    let tracks = events.iter().filter(|event| event["name"] == "thread_name").count();
    assert_eq!(tracks, 8 + 1);
    Ok(())
}

#[test]
fn a_recorded_program_runs_with_its_threads_for_as_long_as_it_did() -> Result<()> {
    let steps = vec![
        Step::Compute(700),
        Step::Acquire { lock: 0, wait_ns: 40 },
        Step::Compute(300),
        Step::Release(0),
    ];
    let folder = TempDir::new()?;
    let file = &*recorded::write(&folder, vec![recorded::thread(steps); 3], 150_000)?;
    let outcome = Child::new(env!("CARGO_BIN_EXE_lockwright"))
        .args(["sim", "--machine", "m1", "--lock", "mcs", "--seed", "1", "--json", "--trace", file])
        .run()?;
    ensure!(outcome.end == End::Code(0), outcome.describe());
    let whole: Value = serde_json::from_str(&outcome.text())?;
    assert_eq!((&whole["duration_ns"], &whole["warmup_ns"]), (&150_000.into(), &0.into()));
    let point = &whole["points"][0];
    assert_eq!((&point["workload"], &point["threads"]), (&"server.bin".into(), &3.into()));
    // A pass is the whole recording: 1 us, and the rest of the 150 us asleep.
    assert_eq!(point["runs"][0]["operations"], 3);
    Ok(())
}

/// A replay of such threads on five CPUs of an M1, the last of which is a little one: its notes.
fn notes_of(last: TraceThread, locks: &str) -> Result<Vec<String>> {
    let steps = vec![
        Step::Acquire { lock: 0, wait_ns: 40 },
        Step::Compute(300),
        Step::Release(0),
        Step::Compute(9_000),
    ];
    let threads = [vec![recorded::thread(steps); 4], vec![last]].concat();
    let folder = TempDir::new()?;
    let file = &*recorded::write(&folder, threads, 400_000)?;
    let outcome = Child::new(env!("CARGO_BIN_EXE_lockwright"))
        .args(["sim", "--machine", "m1", "--seed", "1", "--lock", locks, "--trace", file])
        .run()?;
    ensure!(outcome.end == End::Code(0), outcome.describe());
    let text = unbroken(&outcome.text());
    let mut notes = text.lines().filter_map(|line| line.strip_prefix("note: ")).map(str::to_owned);
    let recorded = notes.next().context("what was recorded")?;
    let rate = "the trace has 10.0 k acquisitions per second (4 in 400 µs by 5 threads on ";
    let more = "the trace has 12.5 k acquisitions per second (5 in 400 µs by 5 threads on ";
    ensure!(recorded.starts_with(rate) || recorded.starts_with(more), "{recorded}");
    Ok(notes.collect())
}

#[test]
fn a_replay_says_why_a_class_of_cores_finished_nothing() -> Result<()> {
    let idle = TraceThread { steps: vec![Step::Compute(5_000)], ..TraceThread::default() };
    let none = "no operation finished on a little core within 400 µs: its threads take no lock in the trace";
    // Whatever the lock: a window has nothing to do with it.
    assert_eq!(notes_of(idle, "mcs,asl")?, [format!("mcs: {none}"), format!("asl: {none}")]);
    let steps =
        vec![Step::Acquire { lock: 0, wait_ns: 0 }, Step::Compute(300_000), Step::Release(0)];
    let late = TraceThread { start_ns: 300_000, steps, ..TraceThread::default() };
    let notes = notes_of(late, "asl")?;
    let [note] = &notes[..] else { anyhow::bail!("{notes:?}") };
    ensure!(note.contains(" µs before the end; --duration 4ms may show some"), "{note}");
    ensure!(note.contains(" within 400 µs: the first started "), "{note}");
    Ok(())
}

/// Starts the command and interrupts it as soon as it listens, as Ctrl-C does.
fn interrupted(arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockwright"));
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let id = child.id().to_string();
    let listens = || -> Result<bool> {
        let status = fs::read_to_string(format!("/proc/{id}/status"))?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.context("SigCgt")?.trim(), 16)?;
        Ok(caught & 1 << (libc::SIGINT - 1) != 0)
    };
    let start = Instant::now();
    while !listens()? {
        ensure!(child.try_wait()?.is_none() && start.elapsed() < Duration::from_secs(60));
        sleep(Duration::from_millis(5));
    }
    ensure!(Command::new("kill").args(["-INT", &id]).status()?.success());
    Ok(child.wait_with_output()?)
}

#[test]
fn ctrl_c_ends_long_work_with_a_line_and_writes_nothing() -> Result<()> {
    let folder = TempDir::new()?;
    let out = folder.path().join("above/out");
    let output = ["--output", out.to_str().context("a path in UTF-8")?];
    // Each takes hours, and would be over by itself long after the test's patience.
    let mut sim = vec!["sim", "--machine", "m1", "--lock", "mcs", "--duration", "900s"];
    sim.extend(output);
    let mut reproduce = vec!["reproduce", "libasl-1", "--seeds", "1000"];
    reproduce.extend(output);
    let explore = ["explore", "mcs", "--time", "100000"];
    for (arguments, said) in [
        (&sim[..], "interrupted: 0 of 5 runs, nothing written\n"),
        (&reproduce, " runs, the last ones of libasl-1, nothing written\n"),
        (&explore, " schedules explored without a finding\n"),
    ] {
        let ended = interrupted(arguments)?;
        let errors = String::from_utf8(ended.stderr)?;
        assert_eq!(ended.status.code(), Some(130), "{arguments:?}: {errors}");
        assert!(errors.starts_with("interrupted: ") && errors.ends_with(said), "{errors}");
        assert!(fs::read_dir(folder.path())?.next().is_none(), "{arguments:?} left something");
    }
    Ok(())
}

#[test]
fn of_a_trace_with_very_many_threads_the_first_run_and_that_is_said() -> Result<()> {
    let steps = vec![Step::Acquire { lock: 0, wait_ns: 0 }, Step::Release(0)];
    let folder = TempDir::new()?;
    let file = &*recorded::write(&folder, vec![recorded::thread(steps); 1030], 20_000)?;
    let outcome = Child::new(env!("CARGO_BIN_EXE_lockwright"))
        .args([
            "sim",
            "--machine",
            "m1",
            "--lock",
            "glibc",
            "--seed",
            "1",
            "--json",
            "--trace",
            file,
        ])
        .run()?;
    ensure!(outcome.end == End::Code(0), outcome.describe());
    ensure!(outcome.describe().contains("the trace has 1030 threads, a run at most 1024"));
    let whole: Value = serde_json::from_str(&outcome.text())?;
    assert_eq!(whole["points"][0]["threads"], 1024);
    Ok(())
}
