//! The whole bench, tiny: one repetition of a few milliseconds. What a run says must have the right
//! shape; how fast a lock is, is never asserted.
//!
//! The bench starts its own program as `PROGRAM bench --worker ...`, so this test has its own `main`:
//! called with `bench` first it is that program, else it runs the tests below, by itself.

use clap::Parser;
use lockwright_bench::Args;
use lockwright_energy::Watts;
use lockwright_shards::{Merge, Merger};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

#[derive(Parser)]
enum Program {
    Bench(Args),
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("bench") {
        let Program::Bench(args) = Program::parse();
        let library = std::env::var_os("BENCH_TEST_LIBRARY").map(PathBuf::from);
        let library = library.ok_or("no library\nhint: give one".to_owned());
        return lockwright_bench::main(args, library, Watts::assumed, None).unwrap_or_else(failed);
    }
    if std::env::args().nth(1).as_deref() == Some("merge") {
        let mut folders: Vec<PathBuf> = std::env::args().skip(2).map(PathBuf::from).collect();
        let output = folders.pop();
        let by = Merger { program: "lockwright", commands: &["bench"], times: &[] };
        let merged = Merge::read(&folders, output.as_deref(), by).expect("all shards");
        let words = ["lockwright".to_owned()].into_iter().chain(merged.words());
        let Program::Bench(args) = Program::parse_from(words);
        let library = Err("no library".to_owned());
        return lockwright_bench::main(args, library, Watts::assumed, Some(merged))
            .unwrap_or_else(failed);
    }
    let tests: &[(&str, fn())] = &[
        ("every_workload_gives_every_file", every_workload_gives_every_file),
        (
            "every_lock_of_the_catalogue_runs_in_process",
            every_lock_of_the_catalogue_runs_in_process,
        ),
        ("a_library_that_does_not_replace_the_lock_is_found_out", wrong_library_is_found_out),
        (
            "a_library_that_runs_another_lock_is_found_out",
            library_that_runs_another_lock_is_found_out,
        ),
        ("bad_values_are_named_with_a_hint", bad_values_are_named_with_a_hint),
        ("shards_are_measured_apart_and_told_together", shards_are_told_together),
        ("joules_are_those_of_the_source_that_is_named", joules_are_those_of_the_source),
        ("a_point_beside_a_hog_says_so_and_leaves_none", a_point_beside_a_hog_says_so),
        ("hogs_end_when_the_bench_is_killed", hogs_end_when_the_bench_is_killed),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let listed = std::env::args().any(|a| a == "--list");
    let chosen = tests
        .iter()
        .filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| name.contains(w)));
    for (name, test) in chosen {
        if listed {
            println!("{name}: test");
        } else {
            println!("test {name} ...");
            test();
        }
    }
    ExitCode::SUCCESS
}

fn failed(cause: anyhow::Error) -> ExitCode {
    eprintln!("error: {cause:#}");
    ExitCode::from(2)
}

/// All rounds of a point are in one shard; what a kill has cut off is measured again; the report has all of it.
fn shards_are_told_together() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("all.json");
    let shard = |part: &'static str| -> Vec<String> {
        let grid = "--lock in:mcs --threads 1,2 --rounds 2 --time 5ms --no-latency --no-ceiling -q";
        let mut words: Vec<String> = grid.split(' ').map(str::to_owned).collect();
        words.extend(["--json".into(), json.display().to_string()]);
        words.extend(["--out".into(), dir.path().display().to_string(), "--resume".into()]);
        words.extend(["--shard".into(), part.into()]);
        words
    };
    let run = |words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        bench(&words, None)
    };
    for part in ["1/2", "2/2"] {
        let (code, stdout, stderr) = run(&shard(part));
        assert_eq!(code, 0, "{stderr}");
        assert!(stdout.starts_with(&format!("shard {part} is done: 2 results")), "{stdout}");
    }
    assert!(!json.exists(), "a shard reports nothing");
    let file = dir.path().join("shard-2-of-2.jsonl");
    let whole = std::fs::read_to_string(&file).unwrap();
    let first = whole.lines().take(2).map(|line| format!("{line}\n")).collect::<String>();
    std::fs::write(&file, format!("{first}{{\"job\":\"1: ")).unwrap();
    let (code, _, stderr) = run(&shard("2/2"));
    assert_eq!(code, 0, "{stderr}");
    let again = std::fs::read_to_string(&file).unwrap();
    assert!(again.starts_with(&first) && again.lines().count() == 3, "{again}");

    // Only the merge's own folder is written to, and not before all is there.
    std::fs::write(&json, "precious").unwrap();
    let output = dir.path().join("report");
    let merge = || {
        let mut merge = Command::new(std::env::current_exe().unwrap());
        merge.arg("merge").args([dir.path(), &output]).output().unwrap()
    };
    std::fs::write(&file, &first).unwrap();
    let lacking = merge();
    let stderr = String::from_utf8_lossy(&lacking.stderr);
    assert!(!lacking.status.success() && stderr.contains("shard 2/2 lacks 1 result"), "{stderr}");
    assert!(!output.exists(), "{stderr}");
    std::fs::write(&file, &again).unwrap();
    let merged = merge();
    let stderr = String::from_utf8_lossy(&merged.stderr);
    assert!(merged.status.success(), "{stderr}");
    assert!(stderr.contains("write nothing here"), "{stderr}");
    assert_eq!(std::fs::read_to_string(&json).unwrap(), "precious");
    let report = std::fs::read_to_string(output.join("results.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let samples = report["measured"]["samples"].as_array().unwrap();
    let mut seen: Vec<_> = samples
        .iter()
        .map(|one| ["row", "subject", "rep"].map(|key| one[key].as_u64().unwrap()))
        .collect();
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() == 8, "two points, two locks, two rounds: {seen:?}");
    assert!(!report["command"].as_str().unwrap().contains("--shard"), "{}", report["command"]);

    // Locks behave otherwise with it.
    let mut paused = Command::new(std::env::current_exe().unwrap());
    paused.arg("bench").args(shard("2/2")).env("LOCKWRIGHT_PAUSE", "nop");
    let paused = paused.output().unwrap();
    let stderr = String::from_utf8_lossy(&paused.stderr);
    assert!(!paused.status.success() && stderr.contains("belongs to another plan"), "{stderr}");

    // Of another machine: its rounds would be compared with ours.
    std::fs::write(&file, first.replacen("\"machine\":\"", "\"machine\":\"other", 1)).unwrap();
    let (code, _, stderr) = run(&shard("2/2"));
    assert!(code == 2 && stderr.contains("begun on another machine (other"), "{stderr}");
}

/// Runs this program as `bench ARGS`; returns code, stdout, stderr. Kills it with its group after a minute.
fn bench(args: &[&str], library: Option<&Path>) -> (i32, String, String) {
    bench_on(args, library, None)
}

/// The same; `sys`: where it looks for energy.
fn bench_on(args: &[&str], library: Option<&Path>, sys: Option<&Path>) -> (i32, String, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    if let Some(sys) = sys {
        command.env(lockwright_energy::VARIABLE, sys);
    }
    command.arg("bench").args(args).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    match library {
        Some(library) => command.env("BENCH_TEST_LIBRARY", library),
        None => command.env_remove("BENCH_TEST_LIBRARY"),
    };
    let mut child = command.spawn().unwrap();
    let mut pipes = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let readers = (
        std::thread::spawn(move || text(&mut pipes.0)),
        std::thread::spawn(move || text(&mut pipes.1)),
    );
    let deadline = Instant::now() + Duration::from_secs(120);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            // SAFETY: a signal to the group of our own child, which is not yet waited for.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            panic!("bench {args:?} hung");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    (status.code().unwrap_or(-1), readers.0.join().unwrap(), readers.1.join().unwrap())
}

fn text(from: &mut impl Read) -> String {
    let mut text = String::new();
    from.read_to_string(&mut text).unwrap();
    text
}

fn every_workload_gives_every_file() {
    // Where the machine stands still, a few milliseconds are over before anything is done. Then more of them must do.
    let times = ["0.01", "0.1", "1"];
    let mut busy = times.iter().map(|time| gives_every_file(time));
    assert!(busy.any(|is_busy| is_busy), "most points do nothing, however long they run");
}

/// All points, for `time` seconds each. `true`: at least four in five did something.
fn gives_every_file(time: &str) -> bool {
    let dir = std::env::temp_dir().join(format!("lockwright-bench-{}", std::process::id()));
    let out = dir.to_str().unwrap();
    let workloads =
        "mutex,uncontended,queue,barrier,trylock,timedlock,calls,rwlock,memory,order,epoch";
    let args = [
        "--workload",
        workloads,
        "--lock",
        "parking_lot",
        "std",
        "in:ticket",
        "--threads",
        "2",
        "--cs",
        "50",
        "--gap",
        "100",
        "--time",
        time,
        "--rounds",
        "1",
        "--count",
        "100",
        "--lines",
        "2",
        "--quiet",
        "--out",
        out,
    ];
    let (code, stdout, stderr) = bench(&args, None);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(stdout.starts_with("real: "), "{stdout}");

    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    let json: serde_json::Value = serde_json::from_str(&read("results.json")).unwrap();
    assert_eq!(json["origin"], "real");
    // uncontended, queue and memory are two points each.
    let (rows, locks) = (14, 4);
    assert_eq!(json["rows"].as_array().unwrap().len(), rows);
    assert_eq!(json["summaries"].as_array().unwrap().len(), rows * locks);
    let (mut busy, mut idle) = (0, 0);
    let mut ceilings = 0;
    for sample in json["measured"]["samples"].as_array().unwrap() {
        let who = &json["subjects"][sample["subject"].as_u64().unwrap() as usize];
        ceilings += u32::from(who["role"] == "ceiling");
        let answer = &sample["answer"];
        assert_eq!(answer["counted"], answer["expected"], "{sample}");
        match sample["status"].as_str().unwrap() {
            "ok" if answer["ops"].as_u64().unwrap() > 0 => busy += 1,
            "ok" => idle += 1,
            other => assert_eq!(other, "unsupported", "{sample}"),
        }
    }
    // mutex, trylock, timedlock and epoch; on one CPU two threads show nothing that one doesn't.
    let each = std::thread::available_parallelism().unwrap().get().min(2) as u32;
    assert!(ceilings >= 4 * each, "{ceilings}");
    let wide = stdout.lines().find(|line| line.chars().count() > 80);
    assert!(wide.is_none(), "wider than a terminal: {wide:?}");
    for said in ["(ceiling)", " ceiling", "op/J", "P50", "P99", "P99.9", "max"] {
        assert!(stdout.contains(said), "no {said} in {stdout}");
    }
    let raw = read("raw.csv");
    let mut csv = csv::Reader::from_reader(raw.as_bytes());
    let width = csv.headers().unwrap().len();
    let lines: Vec<_> = csv.records().map(|r| r.unwrap()).collect();
    assert!(lines.len() >= rows * locks + 4 * each as usize, "{} lines", lines.len());
    assert!(lines.iter().all(|l| l.len() == width && l.get(width - 1) == Some("real")));
    let not_offered = lines.iter().filter(|l| l.iter().any(|cell| cell == "not offered")).count();
    // in:ticket has no condition variables (queue 2, barrier 1), deadlines (2), readers; std no deadlines.
    assert!(not_offered >= 8, "{not_offered}");
    let sums = read("summary.csv");
    let mut csv = csv::Reader::from_reader(sums.as_bytes());
    let at = |name: &str, headers: &csv::StringRecord| headers.iter().position(|h| h == name);
    let headers = csv.headers().unwrap().clone();
    let of = at("of_ceiling", &headers).unwrap();
    let sums: Vec<_> = csv.records().map(|r| r.unwrap()).collect();
    assert_eq!(sums.len(), rows * locks, "a ceiling is no lock");
    // Where a worker did nothing there is no ratio; a queue has no ceiling.
    assert!(sums.iter().any(|l| &l[0] == "mutex" && l[of].parse::<f64>().is_ok()), "{sums:?}");
    assert!(sums.iter().all(|l| &l[0] != "queue" || l[of].is_empty()), "{sums:?}");
    for name in ["wait_p50_ns", "wait_p99_ns", "wait_p999_ns", "wait_max_ns", "epoch_p999_ns"] {
        assert!(at(name, &headers).is_some(), "{name}");
    }
    for (plot, word) in [("throughput.svg", "ratio to glibc"), ("latency.svg", "P99")] {
        let svg = read(plot);
        assert!(
            svg.contains(word) && svg.contains("parking_lot") && svg.contains("real: "),
            "{plot}"
        );
    }
    let page = read("README.md");
    assert!(page.contains("| kernel | Linux ") && page.contains("throughput.svg"), "{page}");
    std::fs::remove_dir_all(&dir).unwrap();
    busy > 4 * idle
}

/// A sensor that always shows 30 W: the figures follow from it, whatever the machine.
fn joules_are_those_of_the_source() {
    let dir = std::env::temp_dir().join(format!("lockwright-joules-{}", std::process::id()));
    let sensor = dir.join("sys/class/hwmon/hwmon0");
    std::fs::create_dir_all(&sensor).unwrap();
    std::fs::write(sensor.join("name"), "power_meter\n").unwrap();
    std::fs::write(sensor.join("power1_input"), "30000000\n").unwrap();
    let (raw, all) = (dir.join("raw.csv"), dir.join("all.json"));
    let files = ["--csv", raw.to_str().unwrap(), "--json", all.to_str().unwrap()];
    let mut args = vec!["--lock", "std", "--workload", "mutex,uncontended", "--threads", "2"];
    args.extend(["--time", "0.05", "--rounds", "1", "--quiet"].iter().chain(&files));
    let (code, stdout, stderr) = bench_on(&args, None, Some(&dir.join("sys")));
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    // In one line of the table's head or in two, by the widths of the figures.
    assert!(stdout.contains("op/J") && stdout.contains("hwmon"), "{stdout}");
    let stdout = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(stdout.contains("joules (hwmon): power_meter power1_input"), "{stdout}");
    let mut csv = csv::Reader::from_path(&raw).unwrap();
    let headers = csv.headers().unwrap().clone();
    let at = |name: &str| headers.iter().position(|header| header == name).unwrap();
    let [ops, joules, tpp] = ["ops", "joules", "ops_per_joule"].map(at);
    let (mut lines, mut busy) = (0, 0);
    for line in csv.records().map(Result::unwrap) {
        let number = |at: usize| line[at].parse::<f64>().unwrap();
        assert_eq!(&line[at("joules_source")], "hwmon");
        // 30 W for 0.05 s and longer, as the machine allows.
        assert!(number(joules) >= 1.4, "{line:?}");
        lines += 1;
        // Where the machine stood still, the time was over before anything was done.
        if number(ops) > 0.0 {
            assert!((number(tpp) * number(joules) / number(ops) - 1.0).abs() < 1e-3, "{line:?}");
            busy += 1;
        }
    }
    assert!(lines >= 6 && busy > 0, "{busy} of {lines} did something");
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&all).unwrap()).unwrap();
    assert_eq!(json["measured"]["energy"]["source"], "hwmon");
    let mut both = 0;
    for sum in json["summaries"].as_array().unwrap() {
        let [tpp, epo] = ["tpp", "epo"].map(|name| sum[name]["median"].as_f64());
        if let (Some(tpp), Some(epo)) = (tpp, epo) {
            assert!((tpp * epo - 1.0).abs() < 1e-9 && sum["joules_source"] == "hwmon", "{sum}");
            both += 1;
        }
    }
    assert!(both > 0, "{}", json["summaries"]);
    std::fs::remove_dir_all(&dir).unwrap();
}

fn every_lock_of_the_catalogue_runs_in_process() {
    let ids = lockwright_locks::catalog::CATALOG.iter().map(|e| format!("in:{}", e.id));
    let ids: Vec<String> = ids.collect();
    let mut args = vec!["--threads", "3", "--time", "0.01", "--rounds", "1", "--quiet", "--lock"];
    args.extend(ids.iter().map(String::as_str));
    let (code, stdout, stderr) = bench(&args, None);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    for id in &ids {
        assert!(stdout.contains(id.as_str()), "no {id} in {stdout}");
    }
    assert!(!stdout.contains("hung") && !stdout.contains("failed"), "{stdout}");
}

fn wrong_library_is_found_out() {
    // A library that loads well and replaces nothing: what it measured would be glibc's lock.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.lines().filter_map(|l| l.split_whitespace().last());
    let loader = libc.into_iter().find(|p| p.contains("/libgcc_s")).expect("libgcc_s is loaded");
    let args = ["--time", "0.01", "--rounds", "1", "--quiet", "--lock", "auto"];
    let (code, _, stderr) = bench(&args, Some(Path::new(loader)));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("was not measured: pthread_mutex_lock came from 'libc"), "{stderr}");
}

/// A library that serves the mutexes by glibc's functions, whatever lock is asked for; `more` is what it says about
/// itself.
fn imposter(dir: &Path, more: &str) -> PathBuf {
    let (source, library) = (dir.join("imposter.c"), dir.join("liblockwright.so"));
    let text = format!(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <pthread.h>\n#include <stdint.h>\n#include <stdio.h>\n\
         int pthread_mutex_lock(pthread_mutex_t *m) {{\n\
           static int (*next)(pthread_mutex_t *);\n\
           if (!next) *(void **)&next = dlsym(RTLD_NEXT, \"pthread_mutex_lock\");\n\
           return next(m); }}\n{more}\n"
    );
    std::fs::write(&source, text).unwrap();
    lockwright_tests::compile(&source, &library, &["-shared", "-fPIC"]).unwrap();
    library
}

fn library_that_runs_another_lock_is_found_out() {
    use lockwright_contract::mailbox::{MAGIC, Mailbox};
    let dir = std::env::temp_dir().join(format!("lockwright-imposter-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let size = size_of::<Mailbox>();
    let mailbox = |magic: u64, now: &str| {
        let len = now.len() - now.matches('\\').count();
        format!(
            "struct {{ uint64_t magic; uint32_t size, len, now_len, unused; const char *now; char text[{size}]; }} \
             lockwright_mailbox = {{ {magic}ull, {size}, 0, {len}, 0, \"{now}\", {{0}} }};"
        )
    };
    let speaks = "__attribute__((constructor)) static void say(void) { fputs(\"lockwright: oh dear\\n\", stderr); }";
    for (more, said) in [
        (String::new(), "'liblockwright.so' does not say which locks it runs"),
        (
            mailbox(MAGIC + 1, "fifo\\n"),
            "'liblockwright.so' is a different version from this command",
        ),
        (mailbox(MAGIC, "glibc\\n"), "the library ran 'glibc', not 'fifo'"),
        (
            mailbox(MAGIC, "fifo\\nlib:x=mcs;"),
            "the library ran 'fifo' and rules for single mutexes",
        ),
        (mailbox(MAGIC, "glibc\\n") + speaks, "not 'fifo': lockwright: oh dear"),
        // The right lock, but not all that was asked for.
        (mailbox(MAGIC, "fifo\\n") + speaks, "was not measured: lockwright: oh dear"),
        (mailbox(MAGIC, "fifo\\n"), ""),
    ] {
        let library = imposter(&dir, &more);
        let args = ["--time", "0.01", "--rounds", "1", "--quiet", "--lock", "fifo"];
        let (code, stdout, stderr) = bench(&args, Some(&library));
        if said.is_empty() {
            assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
        } else {
            assert_eq!((code, stdout.as_str()), (2, ""), "{more}: {stderr}");
            assert!(stderr.starts_with("error: 'fifo' at "), "{stderr}");
            assert!(stderr.contains(said) && stderr.contains("\nhint: "), "{said}: {stderr}");
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

/// The bench, with these arguments.
fn started(args: &str) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("bench").args(args.split(' ')).env_remove("BENCH_TEST_LIBRARY");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The number of hogs that the bench with this process number has started.
fn hogs_of(bench: u32) -> usize {
    let words = format!("\0--hog\0{bench}\0");
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    // That of a process that has ended is empty.
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).ends_with(&words)).count()
}

fn a_point_beside_a_hog_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let grid = "--lock in:mcs --threads 2 --hogs 0,1 --time 50ms --rounds 1 -q --output";
    let bench = started(&format!("{grid} {}", dir.path().display()));
    let id = bench.id();
    let output = bench.wait_with_output().unwrap();
    assert_eq!(hogs_of(id), 0);
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    assert!(stdout.contains("\n2 thr 100/400 ns beside 1 hog\n"), "{stdout}");
    assert!(stdout.contains("\nbeside 1 hog: another process of ours computed"), "{stdout}");
    assert!(stdout.lines().all(|line| line.chars().count() <= 80), "{stdout}");

    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let report: serde_json::Value = serde_json::from_str(&read("results.json")).unwrap();
    let samples = report["measured"]["samples"].as_array().unwrap();
    let mut used = 0.0;
    for sample in samples {
        let point = &report["rows"][sample["row"].as_u64().unwrap() as usize]["point"];
        match point["hogs"].as_u64().unwrap() {
            0 => assert!(sample["hogs_cpus"].is_null(), "{sample}"),
            _ => used += sample["hogs_cpus"].as_f64().unwrap(),
        }
    }
    assert!(used > 0.0, "{samples:?}");
    for name in ["raw.csv", "summary.csv"] {
        let text = read(name);
        let mut csv = csv::Reader::from_reader(text.as_bytes());
        let at = csv.headers().unwrap().iter().position(|header| header == "hogs").unwrap();
        let (busy, quiet): (Vec<_>, Vec<_>) =
            csv.records().map(Result::unwrap).partition(|line| &line[at] == "1");
        // A group may have been discarded, and measured again.
        assert!(busy.len() >= 2 && quiet.len() >= 2, "{text}");
        let is_known = |line: &csv::StringRecord| line[at + 1].parse::<f64>().is_ok();
        assert!(name == "summary.csv" || busy.iter().all(is_known), "{text}");
        assert!(quiet.iter().all(|line| &line[at] == "0" && line[at + 1].is_empty()), "{text}");
    }
}

fn hogs_end_when_the_bench_is_killed() {
    let mut bench = started("--lock in:mcs --threads 2 --hogs 2 --time 600s --rounds 1 -q");
    let id = bench.id();
    let waits_for = |wanted: usize| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while hogs_of(id) != wanted && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        hogs_of(id)
    };
    let begun = waits_for(2);
    bench.kill().unwrap();
    bench.wait().unwrap();
    assert_eq!((begun, waits_for(0)), (2, 0));
}

fn bad_values_are_named_with_a_hint() {
    for (args, error) in [
        (["--lock", "in:msc"], "error: unknown lock 'in:msc'\nhint: did you mean 'in:mcs'? "),
        (["--lock", "in:mcs:spin=1"], "error: unknown lock 'in:mcs:spin=1'\nhint: lockwright list"),
        (["--lock", "fifo:bypas=8"], "error: lock 'fifo:bypas=8': no option 'bypas', did you mean"),
        (["--peer", "x"], "error: 'x' is not NAME=LIBRARY\nhint: --peer "),
        (["--lock", "auto"], "error: no library\nhint: give one"),
        (["--rounds", "1"], "error: no library\nhint: give one"),
        (["--reps", "1"], "error: no library\nhint: give one"),
        (["--pairs", "4"], "error: '4' is not producers:consumers\nhint: --pairs 1:1,4:4"),
        (["--time", "-1"], "error: "),
        (["--slo", "20"], "error: "),
        (["--hogs", "1025"], "error: invalid value '1025' for '--hogs <N>'"),
        (["--hogs", "one"], "error: invalid value 'one' for '--hogs <N>'"),
        (
            ["--emulate", "big:0x2"],
            "error: bad emulated machine 'big:0x2': 'big:0x2': big cores keep",
        ),
        (
            ["--lock=in:mcs", "--json=/no/such/place.json"],
            "error: cannot write '/no/such/place.json': no such file",
        ),
    ] {
        let (code, stdout, stderr) = bench(&args, None);
        assert_eq!((code, stdout.as_str()), (2, ""), "{args:?}: {stderr}");
        assert!(stderr.starts_with(error), "{args:?}: {stderr}");
    }
}
