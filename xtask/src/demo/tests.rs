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

fn sentences(results: &DemoResults) -> [String; 3] {
    words::sentences(&results.panels, &results.next)
}

#[test]
fn three_sentences_say_what_is_better_and_what_is_not() {
    let [better, not, next] = sentences(&results(9, (1.3, 4), (2.1, 1)));
    assert_eq!(
        better,
        "What is better: on this machine (real) auto's throughput is higher in each of 2 settings (1.30 of \
         glibc's); on a big core and a little one (emulated) asl's throughput is, in multiples of glibc's, 2.10 on SQLite with an SLO \
         of 110 µs (the little core's P99: 0.91 of it) and 3.40 on SQLite without an SLO."
    );
    assert_eq!(
        not,
        "What is not: on this machine (real) auto's P99 is longer in each of 2 settings (4.00 of glibc's), its P99.9 is \
         longer in each of 2 settings (4.00 of glibc's) and its longest operation is longer in each of 2 settings (4.00 of \
         glibc's); on this machine beside hogs (real) auto's throughput is lower in each of 2 settings (0.80 of glibc's), its P99 \
         is longer in each of 2 settings (2.00 of glibc's), its P99.9 is longer in each of 2 settings (2.00 of glibc's) and its \
         longest operation is longer in each of 2 settings (2.00 of glibc's); on a big core and a little one (emulated) the little core's times under asl without an SLO are, in multiples of \
         those under glibc, 9.00 for the P99, 9.00 for the P99.9 and 9.00 for the longest operation; no clear difference in auto's CPU \
         time an operation on this machine and auto's CPU time an operation on this machine beside hogs."
    );
    assert!(next.contains("`LD_PRELOAD=\"$PWD/target/release/liblockwright.so\" ./your-program`"));
    // A missed objective isn't a gain, no matter how fast.
    let [better, not, _] = sentences(&results(9, (1.0, 1), (2.1, 2)));
    assert!(!better.contains("2.10"), "{better}");
    assert!(
        not.contains(
            "2.10 on SQLite with an SLO of 110 µs (missed: the little core's P99 is 1.82 of it, fifo's 0.91)"
        ),
        "{not}"
    );
    assert!(not.contains("no clear difference in auto's throughput, P99, P99.9,"), "{not}");
    // If it loses in only some settings, these are named.
    let (mut some, slow) = (results(9, (1.0, 1), (2.1, 2)), results(9, (0.7, 1), (2.1, 2)));
    some.panels[0].groups[1] = slow.panels.into_iter().next().unwrap().groups.pop().unwrap();
    let [_, not, _] = sentences(&some);
    assert!(
        not.contains(
            "auto's throughput is lower in 1 of 2 settings (0.70 of glibc's: SQLite, 8 threads)"
        ),
        "{not}"
    );
}

#[test]
fn few_rounds_say_nothing() {
    let [better, not, _] = sentences(&results(4, (1.3, 4), (2.1, 1)));
    assert!(better.contains("unknown") && not.contains("unknown"), "{better}{not}");
}

#[test]
fn tables_fit_a_terminal_and_say_what_is_emulated() {
    let results = results(9, (13.24, 400), (0.0213, 999));
    let mut text = words::tables(&results.panels, "a machine");
    for sentence in sentences(&results) {
        text += &words::wrapped(&format!("\n{sentence}\n"));
    }
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
