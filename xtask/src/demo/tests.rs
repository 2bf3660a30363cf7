//! Tests of `demo`.

use super::*;
use lockwright_bench::Used;
use lockwright_tests::{Child, End};

/// Results of `rounds` rounds, in which each lock has the given multiples of glibc's throughput and times.
fn results(rounds: usize, auto: (f64, u64), asl: (f64, u64)) -> DemoResults {
    let run = |(rate, longer): (f64, u64)| {
        let mut latency = lockwright_numbers::Times::default();
        latency.add(1_000 * longer, 900);
        latency.add(100_000 * longer, 100);
        Run {
            rate: 100_000.0 * rate,
            cpu_ns: 12_345.0,
            latency,
            engine: String::new(),
            libc: String::new(),
            cpu_seconds: 0.1,
            hogs: Used { cpu: Duration::from_millis(25), elapsed: Duration::from_millis(100) },
        }
    };
    let group = |threads, hogs, subjects: Vec<Subject>, slo_ns, locks: &[(f64, u64)]| {
        let runs: Vec<Vec<Run>> =
            locks.iter().map(|lock| (0..rounds).map(|_| run(*lock)).collect()).collect();
        let setting = Setting { database: "sqlite", threads, hogs };
        Group { setting, slo_ns, summaries: summarise(&subjects, &runs) }
    };
    let plain = |lock: &str| Subject { lock: lock.into(), slo_ns: None };
    let own = || vec![plain(GLIBC), plain("auto")];
    let glibc = (1.0, 1);
    let slo_ns = 110_000;
    let timed = Subject { lock: ASL.into(), slo_ns: Some(slo_ns) };
    let pair = vec![plain(GLIBC), plain("fifo"), timed, plain(ASL)];
    DemoResults {
        failed: Vec::new(),
        panels: vec![
            Panel {
                cores: None,
                rounds: rounds as u32,
                seconds: 0.25,
                groups: [2, 8].map(|n| group(n, 0, own(), None, &[glibc, auto])).into(),
            },
            Panel {
                cores: None,
                rounds: rounds as u32,
                seconds: 0.25,
                groups: HOGS.map(|n| group(8, n, own(), None, &[glibc, (0.8, 2)])).into(),
            },
            Panel {
                cores: Some(Cores { spec: "big:0,little:1x3.75".into(), little: 1 }),
                rounds: rounds as u32,
                seconds: 0.25,
                groups: vec![group(2, 0, pair, Some(slo_ns), &[glibc, (0.5, 1), asl, (3.4, 9)])],
            },
        ],
        engines: vec![("sqlite", "SQLite 3.1".into())],
        libc: "glibc 2.36".into(),
        seconds: 0.35,
        rounds: rounds as u32,
        disturbance: 0.0,
        next: next_command(Path::new("/x/target/release/liblockwright.so"), Path::new("/x")),
    }
}

fn verdict(results: &DemoResults) -> String {
    let said = words::verdict(&results.panels);
    said.iter().map(|sentence| words::wrapped(sentence) + "\n").collect()
}

#[test]
fn a_verdict_of_six_lines_says_where_a_lock_is_worse() {
    let said = verdict(&results(9, (1.3, 1), (2.1, 1)));
    assert_eq!(
        said,
        "This machine: auto is 1.30 times as fast as glibc in 2 of 2 settings, and worse\n  nowhere.\n\
         Beside hogs: auto is faster than glibc in none of 2 settings. Worse: SQLite, 8\n  \
         threads, 1 hog (20 % slower); SQLite, 8 threads, 2 hogs (20 % slower).\n\
         Unequal cores (emulated): within its SLO asl is 2.10 times as fast as glibc.\n  \
         Worse: asl without an SLO (P99 9.0 times as long).\n"
    );
    // What is slower comes before what is late, and a missed objective before all.
    let said = verdict(&results(9, (0.7, 4), (2.1, 2))).replace("\n  ", " ");
    assert!(said.contains("Worse: SQLite, 2 threads (30 % slower); "), "{said}");
    assert!(
        said.contains("within its SLO. Worse: asl on SQLite (P99 1.82 of its SLO); "),
        "{said}"
    );
    let late = verdict(&results(9, (1.3, 4), (2.1, 1))).replace("\n  ", " ");
    assert!(late.contains("Worse: SQLite, 2 threads (P99 4.0 times as long)"), "{late}");
}

#[test]
fn a_verdict_fits_however_much_is_worse() {
    let mut worst = results(9, (0.02, 300), (0.1, 777));
    let again = results(9, (0.02, 300), (0.1, 777));
    for (panel, more) in worst.panels.iter_mut().zip(again.panels) {
        panel.groups.extend(more.groups);
    }
    let said = verdict(&worst);
    assert!(said.lines().count() <= 6, "{said}");
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    assert_eq!(said.matches("Worse:").count(), 3, "{said}");
}

#[test]
fn few_rounds_say_nothing() {
    let said = verdict(&results(4, (1.3, 4), (2.1, 1)));
    assert_eq!(said, "No verdict: it needs at least 5 rounds.\n");
}

#[test]
fn tables_fit_a_terminal_and_say_what_is_emulated() {
    let results = results(9, (13.24, 400), (0.0213, 999));
    let mut text = words::tables(&results.panels, "a machine");
    text += &verdict(&results);
    text += &words::wrapped(&words::next(&results.next));
    let wide = text.lines().find(|line| line.chars().count() > 80);
    assert!(wide.is_none(), "wider than a terminal: {wide:?} in\n{text}");
    for said in [
        "(real)",
        "busy (real)",
        "(emulated: big:0,little:1x3.75)",
        "P99.9",
        "longest",
        "of SLO",
        "CPU/op",
    ] {
        assert!(text.contains(said), "no {said} in\n{text}");
    }
}

#[test]
fn report_picture_and_table_have_a_row_for_each_lock() {
    let results = results(9, (1.3, 4), (2.1, 1));
    let page = report::report(&results, "cargo xtask demo").unwrap();
    for said in [
        ">real</span>",
        ">emulated</span>",
        "SLO 110 µs",
        "<th>hogs’ CPUs</th>",
        "(beside hogs 9 of 0.25 s)",
        "<th>P99.9</th><th>longest</th>",
        "<code>LD_PRELOAD=&quot;$PWD/",
    ] {
        assert!(page.contains(said), "no {said}");
    }
    let svg = picture::svg(&results, &report::machine(&results.libc));
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && page.contains(&svg));
    // Four rows with five figures, three with four (emulation itself uses CPU time), and three in the key.
    assert_eq!(svg.matches("<circle ").count(), 4 * 5 + 3 * 4 + 3);
    let table = picture::markdown(&results);
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 2 + 2 + 2 + 3);
    assert!(lines.iter().all(|line| line.matches('|').count() == 8), "{table}");
    assert!(
        lines[2].starts_with("| SQLite, 2 threads: auto | real | **1.30** | *4.00* |"),
        "{table}"
    );
    let busy = "| SQLite, 8 threads, 1 hog: auto | real | *0.80* | *2.00* |";
    assert!(lines[4].starts_with(busy), "{table}");
    assert!(lines[7].starts_with("| SQLite: asl, SLO 110 µs | emulated | **2.10** |"), "{table}");
    assert!(lines[7].ends_with("| - |"), "{table}");
}

#[test]
fn the_next_command_works_as_it_stands() {
    let command = next_command(Path::new("/lib/a b/x.so"), Path::new("/elsewhere"));
    assert_eq!(command, "LD_PRELOAD=\"/lib/a b/x.so\" ./your-program");
    let library = library_like();
    let command = next_command(&library, library.ancestors().nth(2).unwrap());
    let script = command.replace("./your-program", "sh -c 'echo $LD_PRELOAD'");
    let dir = library.ancestors().nth(2).unwrap();
    let outcome = Child::new("sh").args(["-c", &script]).dir(dir).limit(10).run().unwrap();
    assert_eq!((outcome.end, outcome.text()), (End::Code(0), format!("{}\n", library.display())));
    fs::remove_dir_all(dir).unwrap();
}

/// A file that can be preloaded, two folders down.
fn library_like() -> PathBuf {
    let root = tempfile::tempdir().unwrap().keep().canonicalize().unwrap();
    fs::create_dir(root.join("release")).unwrap();
    let (source, library) = (root.join("empty.c"), root.join("release/empty.so"));
    fs::write(&source, "int lockwright_demo_test;\n").unwrap();
    lockwright_tests::compile(&source, &library, &["-shared", "-fPIC"]).unwrap();
    library
}

#[test]
fn an_objective_is_what_glibc_just_keeps() {
    assert_eq!(
        [objective(101_000.0), objective(110_000.0), objective(99_001.0)],
        [110_000, 110_000, 100_000]
    );
    assert_eq!([objective(1.0), objective(0.0)], [1, 1]);
}

#[test]
fn locks_with_epochs_run_with_an_objective_and_without() {
    let subjects = pair_subjects(5);
    assert_eq!((subjects[0].lock.as_str(), subjects[0].slo_ns), (GLIBC, None));
    let of = |lock: &'static str| subjects.iter().filter(move |subject| subject.lock == lock);
    assert!(of(ASL).map(|subject| subject.slo_ns).eq([Some(5), None]));
    assert_eq!(of(OURS).count(), if find(OURS).is_some() { 2 } else { 0 });
}

#[test]
fn the_demo_goes_on_after_a_run_that_fails_and_says_so_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("program");
    let report = r#"{"operations": 5, "operations_per_second": 10.0, "cpu_seconds": 0.5,
        "process_cpu_seconds": 0.6, "engine": "E 1", "libc": "glibc", "latency_counts": [[100, 4]]}"#;
    // In the second round it is wrong under one of the locks.
    let script = format!(
        "#!/bin/sh\ncase \"$LOCKWRIGHT_LOCK $*\" in\n(auto*--seed\\ 2*) echo 'error: wrong' >&2; exit 1;;\nesac\n\
         echo '{report}'\n"
    );
    lockwright_tests::executable(&path, &*script).unwrap();
    let program = Program { path, library: "".into(), length: 0.1 };
    let bar = ProgressBar::hidden();
    let mut rounds =
        Rounds { program: &program, bar, meter: Disturbance::default(), failed: Vec::new() };
    let setting = Setting { database: "lmdb", threads: 2, hogs: 0 };
    let subjects = [GLIBC, "auto"].map(|lock| Subject { lock: lock.into(), slo_ns: None });
    let runs = rounds.all(&[(setting, subjects.to_vec(), None)], None, 3).unwrap();
    assert_eq!(runs[0].iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    let told = failed(&rounds.failed).unwrap_err();
    assert!(told.is::<No>());
    assert_eq!(
        told.to_string(),
        "a run failed, and its round doesn't count:\nLMDB with 2 threads under auto: wrong"
    );
}
