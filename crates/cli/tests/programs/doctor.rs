//! `doctor`: whether a program can be reached, and whose locks it waits for.

use super::*;

fn doctor(arguments: &[&str]) -> Result<Outcome> {
    lockwright().args(["doctor"]).args(arguments).run()
}

fn traced(program: &Path) -> Result<Outcome> {
    lockwright().args(["doctor", "--run", "--limit", "50"]).args([program]).run()
}

fn script(name: &str, text: &str) -> String {
    let path = FOLDER.path().join(name);
    executable(&path, text).expect("the temporary folder takes files");
    path.to_str().expect("a path in UTF-8").to_owned()
}

#[test]
fn verdict_follows_the_share_of_our_locks() -> Result<()> {
    let outcome = lockwright()
        .args(["doctor", "--run", "--limit", "50", contend_path(), "exit", "3"])
        .run()?;
    let text = outcome.text();
    assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
    assert!(text.contains("run       exit code 3\n"), "{text}");
    // At times a thread waits for another inside glibc as it ends.
    let share = text.split("verdict   reachable: ").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(share.context("a verdict")?.parse::<f64>()? > 90.0, "{text}");
    let ours = text.lines().find(|line| line.ends_with("  liblockwright.so"));
    let count = ours.and_then(|line| line.split_whitespace().next()).context("a line of ours")?;
    assert!(count.parse::<u32>()? > 0, "{text}");
    assert_eq!(outcome.errors(), COUNT, "the program's output goes to standard error");
    Ok(())
}

#[test]
fn waits_for_threads_to_end_are_no_locks() -> Result<()> {
    let outcome = traced(&compiled("join", "join.c", &[]))?;
    let text = outcome.text();
    assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
    assert!(text.contains("verdict   reachable"), "{text}");
    let imports = "imports   no pthread locks at its start; libraries loaded later may use some\n";
    assert!(text.contains(imports), "{text}");
    // At times a thread waits for another inside glibc as it starts or ends.
    if text.contains("waits     none") {
        let waits = "waits     none (and one thread join): nothing was contended\n";
        assert!(text.contains(waits), "{text}");
    }
    Ok(())
}

#[test]
fn who_calls_the_system_call_waits() -> Result<()> {
    let program = compiled("raw", "raw.c", &[]);
    let outcome = traced(&program)?;
    let text = outcome.text();
    assert_eq!(outcome.end, End::Code(1), "{}", outcome.describe());
    assert!(text.contains("waits     20 futex waits, 0.0 % of them in our locks\n"), "{text}");
    assert!(text.contains(" 20  100.0 %  raw\n"), "{text}");
    let verdict = "verdict   not reachable: 0.0 % of its waits are ours\n\
                   hint      link our locks instead of those of 'raw': docs/sync.md\n";
    assert!(text.ends_with(verdict), "{text}");
    // In a script, too.
    let script = script("raw.sh", &format!("#!/bin/sh\n'{}'\n", program.display()));
    let outcome = traced(Path::new(&script))?;
    assert_eq!(outcome.end, End::Code(1), "{}", outcome.describe());
    assert!(outcome.text().contains(" 20  100.0 %  raw\n"), "{}", outcome.describe());
    Ok(())
}

/// Counting slows a program down, so it ends.
#[test]
fn a_great_many_waits_are_not_all_counted() -> Result<()> {
    let outcome = traced(&compiled("raw-many", "raw.c", &["-DWAITS=12000", "-DNS=0"]))?;
    let text = outcome.text();
    assert!(text.contains("run       exit code 0\n"), "{}", outcome.describe());
    let waits = "waits     the first 10000 futex waits, 0.0 % of them in our locks\n";
    assert!(text.contains(waits), "{text}");
    assert!(text.contains(" 10000  100.0 %  raw-many\n"), "{text}");
    Ok(())
}

/// Also in a program whose functions have no names any more.
#[test]
fn rusts_locks_are_named() -> Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/std_mutex.rs");
    let program = FOLDER.path().join("std-mutex");
    let rustc = Path::new(env!("CARGO")).with_file_name("rustc");
    let outcome = Child::new(rustc).args(["-O", "-o"]).args([&program, &source]).run()?;
    ensure!(outcome.end == End::Code(0), outcome.describe());
    let stripped = FOLDER.path().join("std-mutex-stripped");
    let outcome = Child::new("strip").args(["-o"]).args([&stripped, &program]).run()?;
    ensure!(outcome.end == End::Code(0), outcome.describe());
    for (program, whose) in [
        (&program, "std-mutex: Rust std's locks"),
        (&stripped, "std-mutex-stripped: Rust: std's locks, or a crate's"),
    ] {
        let outcome = traced(program)?;
        let text = outcome.text();
        assert_eq!(outcome.end, End::Code(1), "{}", outcome.describe());
        assert!(text.lines().any(|line| line.ends_with(whose)), "{text}");
        assert!(text.contains("not reachable: 0.0 % of its waits are ours\n"), "{text}");
        assert!(text.ends_with("use lockwright_sync's Mutex, Condvar, RwLock: docs/sync.md\n"));
        let outcome = doctor(&[program.to_str().context("a path in UTF-8")?])?;
        assert_eq!(outcome.end, End::Code(1), "{}", outcome.describe());
        assert!(outcome.text().contains("not reachable: no pthread locks, but Rust"), "{text}");
    }
    Ok(())
}

/// Its own Mutex is linked in, so std's locks in the same program are no obstacle.
#[test]
fn who_links_our_locks_is_reachable() -> Result<()> {
    let program = blame::HOARD_RUST.to_str().context("a path in UTF-8")?;
    let outcome = doctor(&[program])?;
    let text = outcome.text();
    assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
    assert!(text.contains("linker    "), "it is dynamic: {text}");
    assert!(text.contains("verdict   reachable: it links our locks\n"), "{text}");
    Ok(())
}

#[test]
fn thread_sanitizer_is_out_of_reach() -> Result<()> {
    let program = compiled("tsan", "contend.c", &["-fsanitize=thread"]);
    let outcome = doctor(&[program.to_str().context("a path in UTF-8")?])?;
    let text = outcome.text();
    assert_eq!(outcome.end, End::Code(1), "{}", outcome.describe());
    assert!(text.contains("own locks a sanitizer's runtime (libtsan.so."), "{text}");
    assert!(text.contains("verdict   not reachable: under ThreadSanitizer"), "{text}");
    Ok(())
}

#[test]
fn address_sanitizer_is_no_obstacle() -> Result<()> {
    let outcome = traced(&ASAN)?;
    let text = outcome.text();
    assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
    assert!(
        text.contains("run       exit code 0\n") && text.contains("  liblockwright.so\n"),
        "{text}"
    );
    Ok(())
}

#[test]
fn doctor_ends_the_program_at_the_limit() -> Result<()> {
    let outcome = doctor(&["--run", "--limit", "1", "sh", "-c", "sleep 50; true"])?;
    assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
    assert!(
        outcome.text().contains("run       stopped by lockwright after 1 s\n"),
        "{}",
        outcome.describe()
    );
    assert!(outcome.took.as_secs() < 30);
    Ok(())
}

#[test]
fn script_is_followed_to_its_interpreter() -> Result<()> {
    let shell = fs::canonicalize("/bin/sh")?;
    let runs_by = format!("runs by   {}\n", shell.display());
    let first = script("first", "#!/usr/bin/env sh\nexit 9\n");
    let second = script("second", &format!("#!{first}\n"));
    let split = script("split", "#!/usr/bin/env -S A=1 /bin/sh -e\nexit 9\n");
    for script in [&first, &second, &split, &script("bare", "exit 9\n")] {
        let outcome = doctor(&[script])?;
        assert_eq!(outcome.end, End::Code(0), "{}", outcome.describe());
        assert!(outcome.text().contains(&runs_by), "{}", outcome.describe());
    }
    assert_eq!(run(&["--", &first])?.end, End::Code(9));
    Ok(())
}

#[test]
fn script_without_an_interpreter_is_an_error_that_names_both() -> Result<()> {
    let round = FOLDER.path().join("round").display().to_string();
    let cases = [
        (
            "none",
            "#!/usr/bin/env -S no-such-python -u\n",
            127,
            "'no-such-python': not found in PATH",
        ),
        ("dos", "#!/bin/sh\r\n", 127, r"'/bin/sh\r': no such file"),
        ("round", &format!("#!{round}\n"), 126, "more than 5 interpreters of interpreters"),
        ("empty", "#! \n", 126, "its first line names no interpreter"),
    ];
    for (name, text, code, cause) in cases {
        let script = script(name, text);
        for command in ["doctor", "run"] {
            let outcome = lockwright().args([command, &script]).run()?;
            let said = outcome.errors();
            assert_eq!(outcome.end, End::Code(code), "{}", outcome.describe());
            assert!(said.starts_with("error: ") && said.contains(cause), "{said}");
            assert!(said.contains(&script) && said.contains("\nhint: head -n 1 '"), "{said}");
        }
    }
    Ok(())
}

/// A program's libraries are listed without the dynamic linker that its file names.
#[test]
fn looking_at_a_program_runs_nothing_of_its_own() -> Result<()> {
    let linker = script("ld-linux-own.so", "#!/bin/sh\necho ran >\"$0.ran\"\n");
    fs::set_permissions(&linker, fs::Permissions::from_mode(0o777))?;
    let flag = format!("-Wl,--dynamic-linker={linker}");
    let program = compiled("own-linker", "join.c", &[&flag]);
    let outcome = doctor(&[program.to_str().context("a path in UTF-8")?])?;
    assert_eq!(outcome.end, End::Code(2), "{}", outcome.describe());
    // Another glibc's linker looks into folders of its own.
    let error = outcome.errors();
    assert!(error.starts_with("error: cannot find 'libc.so.6', which '"), "{error}");
    assert!(!Path::new(&format!("{linker}.ran")).exists());
    Ok(())
}

#[test]
fn who_asks_for_a_sanitizer_has_none() -> Result<()> {
    let program = compiled("weak", "weak.c", &[]);
    let outcome = doctor(&[program.to_str().context("a path in UTF-8")?])?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    ensure!(!outcome.text().contains("ThreadSanitizer"), "{}", outcome.describe());
    Ok(())
}
