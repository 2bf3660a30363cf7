//! `lockwright profile`: who holds a program's locks, and whether our probes are where tracers look for them.

use super::{FOLDER, LIBRARY, compiled, lockwright};
use anyhow::{Context, Result, bail, ensure};
use lockwright_tests::{Child, End, Running};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The programs run until we stop them. So do we, should a fact not show.
const LONGEST: Duration = Duration::from_secs(120);

fn holders(name: &str, flags: &[&str]) -> PathBuf {
    compiled(name, "holders.c", flags)
}

static HOLDERS: LazyLock<PathBuf> = LazyLock::new(|| holders("holders", &["-O2"]));

fn start(program: &Path, arguments: &[&str]) -> Result<Running> {
    Child::new(program).args(arguments).limit(600).start()
}

fn line(mark: &str) -> u64 {
    let text = include_str!("holders.c");
    let at = text.lines().position(|line| line.ends_with(&format!("/* {mark} */")));
    at.expect("a line with that mark") as u64 + 1
}

/// Samples until what is wanted was seen.
fn profile_until(program: &Running, seen: impl Fn(&Value) -> Option<()>) -> Result<()> {
    let pid = program.pid().to_string();
    let start = Instant::now();
    loop {
        let words =
            ["profile", "-p", &pid, "--sample", "--quiet", "--time", "300ms", "--format", "json"];
        let outcome = lockwright().args(words).run()?;
        ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        let found: Value = serde_json::from_str(&outcome.text())?;
        if seen(&found).is_some() {
            return Ok(());
        }
        if start.elapsed() > LONGEST {
            bail!("not seen in {LONGEST:?}: {found:#}");
        }
    }
}

fn says(site: &Value, function: &str, line: u64) -> Option<()> {
    let file = site["file"].as_str()?;
    (site["function"] == function && site["line"] == line && file.ends_with("holders.c"))
        .then_some(())
}

#[test]
fn a_slow_holder_among_twenty_locks_is_named_in_each_kind_of_build() -> Result<()> {
    // The first is another test's, too: compiled once, not under its feet.
    for path in [&*HOLDERS, &holders("holders-O0", &["-O0"])] {
        let program = start(path, &[])?;
        let is_there = |found: &Value| {
            let first = &found["locks"][0];
            (first["name"] == "table+0x28" && first["kind"] == "mutex").then_some(())?;
            says(&first["waiters"][0], "lookup", line("lookup"))?;
            // Only where the kernel lets us look at threads that run.
            let may_look = found["running_unseen"].is_null();
            let holder = &first["holders"][0];
            let running = says(holder, "slow_update", line("slow_update"))
                .filter(|()| holder["state"] == "running");
            if may_look { running } else { Some(()) }
        };
        profile_until(&program, is_there)?;
    }
    Ok(())
}

#[test]
fn readers_writer_locks_and_holders_that_sleep_are_known() -> Result<()> {
    let program = start(&HOLDERS, &["rwlock"])?;
    profile_until(&program, |found| {
        let first = &found["locks"][0];
        (first["name"] == "index_lock" && first["kind"] == "readers-writer lock").then_some(())?;
        says(&first["waiters"][0], "reader", line("reader"))?;
        let slept = first["holders"].as_array()?.iter().find(|site| site["state"] == "sleeping")?;
        says(slept, "rebuild", line("rebuild"))
    })
}

#[test]
fn without_symbols_places_are_told() -> Result<()> {
    let program = start(&holders("holders-bare", &["-O2", "-s"]), &[])?;
    profile_until(&program, |found| {
        let first = &found["locks"][0];
        let is_place = first["name"].as_str()?.starts_with("holders-bare .");
        let function = first["waiters"][0]["function"].as_str()?;
        (is_place && function.starts_with("holders-bare+0x")).then_some(())
    })
}

#[test]
fn the_report_fits_and_flames_are_drawn() -> Result<()> {
    let program = start(&HOLDERS, &[])?;
    let pid = program.pid().to_string();
    let flame = FOLDER.path().join("flame.svg").display().to_string();
    let to = FOLDER.path().join("report.txt").display().to_string();
    let start = Instant::now();
    loop {
        let words = ["profile", "-p", &pid, "--sample", "-q", "--time", "0.3"];
        let outcome = lockwright().args(words).args(["--flame", &flame, "--output", &to]).run()?;
        ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        ensure!(outcome.text().is_empty(), "the report went to the file, too: {}", outcome.text());
        let report = fs::read_to_string(&to)?;
        ensure!(report.lines().all(|line| line.chars().count() <= 80), "{report}");
        if report.contains("\n1. table+0x28, a mutex in holders")
            && report.contains("lookup (holders.c:")
        {
            break;
        }
        ensure!(start.elapsed() < LONGEST, "{report}");
    }
    let drawn = fs::read_to_string(&flame)?;
    for part in ["<svg", "waiters (", "table+0x28 (", "lookup ("] {
        ensure!(drawn.contains(part), "no '{part}' in the flame graph");
    }
    Ok(())
}

#[test]
fn a_process_that_ends_leaves_what_was_seen() -> Result<()> {
    // On a busy machine it may have ended before anybody looks: then one that lives longer is next.
    for seconds in ["0.5", "4", "30"] {
        let program = Child::new("sleep").args([seconds]).limit(60).start()?;
        let pid = program.pid().to_string();
        let words = ["profile", "-p", &pid, "--sample", "-q", "--time", "3600s"];
        let outcome = lockwright().args(words).limit(120).run()?;
        if outcome.end == End::Code(0) {
            ensure!(outcome.text().contains("then it ended"), "{}", outcome.text());
            return Ok(());
        }
        ensure!(!Path::new("/proc").join(&pid).exists(), "{}", outcome.describe());
    }
    bail!("nobody looked at a process within 30 s")
}

/// A static probe: its name, where it is, and where its arguments are.
struct Probe {
    name: String,
    at: u64,
    arguments: String,
}

/// The probes of a library, by its notes.
fn probes(file: &object::File<'_>) -> Result<Vec<Probe>> {
    let notes = file.section_by_name(".note.stapsdt").context("no notes")?.uncompressed_data()?;
    let mut rest = &notes[..];
    let mut found = Vec::new();
    let number = |bytes: &[u8]| -> Result<u64> { Ok(u64::from_le_bytes(bytes.try_into()?)) };
    while rest.len() >= 12 {
        let part = |at: usize| rest[at..at + 4].try_into().map(u32::from_le_bytes);
        let (name, length, kind) = (part(0)? as usize, part(4)? as usize, part(8)?);
        ensure!(kind == 3 && rest[12..].starts_with(b"stapsdt\0"), "another kind of note: {kind}");
        let start = 12 + name.next_multiple_of(4);
        let body = &rest[start..start + length];
        let mut texts = body[24..].split(|byte| *byte == 0).map(String::from_utf8_lossy);
        ensure!(texts.next().as_deref() == Some("libpthread"), "another provider");
        let name = texts.next().context("a name")?.into_owned();
        let arguments = texts.next().context("arguments")?.into_owned();
        found.push(Probe { name, at: number(&body[..8])?, arguments });
        rest = &rest[(start + length.next_multiple_of(4)).min(rest.len())..];
    }
    Ok(found)
}

/// glibc's names, and how many arguments each has.
const PROBES: [(&str, usize); 15] = [
    ("cond_broadcast", 1),
    ("cond_destroy", 1),
    ("cond_signal", 1),
    ("cond_wait", 2),
    ("mutex_acquired", 1),
    ("mutex_destroy", 1),
    ("mutex_entry", 1),
    ("mutex_release", 1),
    ("mutex_timedlock_acquired", 1),
    ("mutex_timedlock_entry", 2),
    ("rdlock_acquire_read", 1),
    ("rdlock_entry", 1),
    ("rwlock_unlock", 1),
    ("wrlock_acquire_write", 1),
    ("wrlock_entry", 1),
];

#[test]
fn the_library_has_glibcs_probes_and_each_is_at_an_instruction_of_its_own() -> Result<()> {
    let bytes = fs::read(&*LIBRARY)?;
    let file = object::File::parse(&*bytes)?;
    let probes = probes(&file)?;
    let names: BTreeSet<&str> = probes.iter().map(|probe| probe.name.as_str()).collect();
    let wanted: BTreeSet<&str> = PROBES.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, wanted);
    let unlock = file
        .dynamic_symbols()
        .find(|symbol| symbol.name() == Ok("pthread_mutex_unlock"))
        .context("no pthread_mutex_unlock")?;
    let mut on_the_path = BTreeSet::new();
    for probe in &probes {
        let (_, count) = PROBES.iter().find(|(name, _)| *name == probe.name).context("a name")?;
        let arguments: Vec<_> = probe.arguments.split(' ').collect();
        ensure!(arguments.len() == *count, "{}: {}", probe.name, probe.arguments);
        ensure!(arguments.iter().all(|one| one.starts_with("8@")), "{}", probe.arguments);
        let text = file.section_by_name(".text").context("no code")?;
        ensure!(probe.at >= text.address(), "{} is not in .text", probe.name);
        let at = usize::try_from(probe.at - text.address())?;
        let code = text.data()?.get(at..at + 8).context("not in .text")?;
        if cfg!(target_arch = "x86_64") {
            // `nop`, or an instruction of the mutex's fast path, with or without a prefix for the later registers.
            let short = if code[0] & 0xf0 == 0x40 { &code[1..] } else { code };
            let is_the_paths_own = match probe.name.as_str() {
                // `cmpq $0, 24(r64)`: is there a line?
                "mutex_entry" => {
                    short[0] == 0x83 && short[1] >> 3 == 0b01_111 && short[2..4] == [24, 0]
                }
                // `mov r32, 8(r64)`: the owner
                "mutex_acquired" => short[0] == 0x89 && short[1] >> 6 == 1 && short[2] == 8,
                // `xor eax, eax`: the answer
                "mutex_release" => code[0] == 0x31 && code[1] == 0xc0,
                _ => false,
            };
            let is_in_unlock =
                (unlock.address()..unlock.address() + unlock.size()).contains(&probe.at);
            ensure!(
                is_the_paths_own || (code[0] == 0x90 && !is_in_unlock),
                "{} at {:#x}: {code:x?}",
                probe.name,
                probe.at
            );
            if is_the_paths_own {
                on_the_path.insert(probe.name.as_str());
            }
        }
    }
    if cfg!(target_arch = "x86_64") {
        assert_eq!(on_the_path.len(), 3, "these cost an instruction each on the fast path");
    }
    let is_loaded = |at| {
        file.segments().any(|part| (part.address()..part.address() + part.size()).contains(&at))
    };
    ensure!(probes.iter().all(|probe| is_loaded(probe.at)));
    Ok(())
}

#[test]
fn figures_of_emulated_little_cores_are_called_emulated() -> Result<()> {
    let spec = "big:0,little:1x3";
    for (emulated, is_said) in [(spec, true), ("", false)] {
        let file = FOLDER.path().join(format!("emulated-{is_said}.json"));
        let words = ["profile", "--quiet", "--format", "json", "--output"];
        let child = lockwright().args(words).args([&file]).args(["--", super::contend_path()]);
        let outcome = child.env("LOCKWRIGHT_EMULATE", emulated).run()?;
        ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        let found: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
        let said = found.to_string().contains(&format!(r#""emulated":"{spec}""#));
        ensure!(said == is_said, "{found:#}");
    }
    Ok(())
}

#[test]
fn every_section_is_recorded_and_this_machines_threshold_decides() -> Result<()> {
    let config = TempDir::new()?;
    let machine = config.path().join("lockwright/machine.toml");
    fs::create_dir_all(machine.parent().context("a folder")?)?;
    let file = config.path().join("sections.json");
    // No share is below 0, and none reaches 2.
    for (threshold, starts) in [(0.0, "delegate this one (docs/delegation.md): "), (2.0, "")] {
        let cpu = lockwright_bench::Machine::here().cpu;
        let known = format!("threads = 2\nlines = 1\nup_to = 0.9\nover_glibc = {threshold:.1}\n");
        fs::write(&machine, format!("cpu = {cpu:?}\nclass = []\n[delegation]\n{known}"))?;
        let words = ["profile", "--sections", "--event", "page-faults", "--format", "json"];
        let child = lockwright().args(words).args(["--output"]).args([&file]);
        let child = child.args(["--", super::contend_path()]);
        let outcome = child.env("XDG_CONFIG_HOME", config.path()).run()?;
        ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
        let found: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
        let sections = &found["sections"];
        assert_eq!((&sections["sections"], &sections["dropped"]), (&24_000.into(), &0.into()));
        assert_eq!(sections["event"], "page-faults");
        let locks = sections["locks"].as_array().context("an array")?;
        let mut names: Vec<_> = locks.iter().filter_map(|lock| lock["name"].as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["g_lock", "own_lock"]);
        for lock in locks {
            assert_eq!(lock["sections"], 12_000);
            let share = |name: &str| lock[name].as_f64().context("a share");
            let both = share("waiting")? + share("holding")?;
            ensure!((0.0..=1.0).contains(&both) && both == share("in_sections")?, "{lock}");
            // Only sections of threads that were seen in time are watched.
            ensure!(lock["events"]["sections"].as_u64() <= Some(12_000), "{lock}");
            let delegate = lock["delegate"].as_str().context("a text")?;
            ensure!(
                delegate.starts_with(starts) && delegate.is_empty() == starts.is_empty(),
                "{lock}"
            );
        }
    }
    Ok(())
}
