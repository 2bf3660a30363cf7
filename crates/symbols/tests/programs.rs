//! C programs whose addresses and stacks are named while they run, and after they have ended.

use anyhow::{Context, Result, ensure};
use lockwright_symbols::{
    AddressSpace, Frame, Place, Registers, Symboliser, Unwinder, blocked, threads,
};
use lockwright_tests::compile;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

const FUTEX: i64 = libc::SYS_futex;

/// A program that is killed when the test is over.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/holder.c")
}

fn line(mark: &str) -> u32 {
    let text = std::fs::read_to_string(source()).unwrap();
    let at = text.lines().position(|line| line.ends_with(&format!("/* {mark} */"))).unwrap();
    u32::try_from(at).unwrap() + 1
}

/// A waiter: its lock's address, and its stack.
struct Waiter {
    lock: u64,
    stack: Vec<u64>,
}

/// Starts it, and looks at its four waiters once they wait.
fn look(program: &Path) -> Result<(Program, Symboliser, Vec<Waiter>)> {
    let child = Program(Command::new(program).stdin(Stdio::null()).spawn()?);
    let pid = child.0.id().cast_signed();
    let waiting = loop {
        let all = threads(pid)?.into_iter().filter_map(|tid| blocked(pid, tid).ok().flatten());
        let waiting: Vec<_> = all.filter(|all| all.call == Some(FUTEX)).collect();
        if waiting.len() == 4 {
            break waiting;
        }
        sleep(Duration::from_millis(2));
    };
    let mut space = AddressSpace::of_process(pid)?;
    space.learn_threads();
    let mut names = Symboliser::new(space);
    let mut unwinder = Unwinder::new(&mut names);
    let waiters = waiting.into_iter().map(|blocked| {
        let registers = Registers {
            instruction: blocked.instruction,
            stack: blocked.stack_pointer,
            ..Registers::default()
        };
        Waiter { lock: blocked.arguments[0], stack: unwinder.sleeping(names.space(), registers) }
    });
    let waiters = waiters.collect();
    Ok((child, names, waiters))
}

fn frames(names: &mut Symboliser, stack: &[u64]) -> Vec<Frame> {
    stack.iter().flat_map(|&address| names.code(address).to_vec()).collect()
}

fn run(command: &str, arguments: &[&Path]) -> Result<()> {
    let mut all = Command::new(command);
    let words = arguments.iter().map(|path| path.as_os_str());
    let status = all.args(words).status().with_context(|| command.to_owned())?;
    ensure!(status.success(), "{command}: {status}");
    Ok(())
}

/// The functions from the one that locks to the thread's first.
fn expect_lines(names: &mut Symboliser, waiters: &[Waiter], what: &str) {
    for waiter in waiters {
        let frames = frames(names, &waiter.stack);
        let own: Vec<_> = frames
            .iter()
            .filter(|frame| frame.file.as_ref().is_some_and(|file| file.ends_with("holder.c")))
            .map(|frame| (frame.function.as_deref().unwrap_or("?"), frame.line.unwrap_or(0)))
            .collect();
        let expected = ["inner", "waiting", "waiter"].map(|function| (function, line(function)));
        assert_eq!(own, expected, "{what}: {}", shown(&frames));
        assert!(
            frames.iter().any(|frame| frame.name().contains("pthread_mutex_lock")),
            "{what}: {}",
            shown(&frames)
        );
    }
}

fn expect_places(names: &mut Symboliser, waiters: &[Waiter], what: &str) {
    let mut places: Vec<_> = waiters.iter().map(|waiter| names.data(waiter.lock)).collect();
    places.sort_by_key(|place| match place {
        Place::Symbol { .. } => 0,
        Place::Heap { .. } => 1,
        Place::Stack { .. } => 2,
        _ => 3,
    });
    assert_eq!(places[0].to_string(), "record+0x28", "{what}");
    assert!(matches!(places[1], Place::Heap { .. }), "{what}: {places:?}");
    assert!(matches!(places[2], Place::Stack { .. }), "{what}: {places:?}");
    if cfg!(target_arch = "x86_64") {
        let Place::ThreadLocal { name, .. } = &places[3] else { panic!("{what}: {places:?}") };
        assert_eq!(name.as_deref(), Some("own"), "{what}");
    }
}

#[test]
fn functions_lines_and_variables_have_names_in_each_kind_of_build() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let builds: [(&str, &[&str]); 4] = [
        ("O0", &["-g", "-O0"]),
        ("O2", &["-g", "-O2"]),
        ("no-pie", &["-g", "-O2", "-no-pie"]),
        ("dwarf-4", &["-gdwarf-4", "-gz", "-O1"]),
    ];
    for (name, flags) in builds {
        let program = scratch.path().join(name);
        compile(&source(), &program, flags)?;
        let (child, mut names, waiters) = look(&program)?;
        expect_lines(&mut names, &waiters, name);
        expect_places(&mut names, &waiters, name);
        // Stored, and read again when the process is gone.
        let stored = serde_json::to_string(names.space())?;
        drop(child);
        let mut names = Symboliser::new(serde_json::from_str(&stored)?);
        expect_lines(&mut names, &waiters, name);
        expect_places(&mut names, &waiters, name);
    }
    Ok(())
}

#[test]
fn debug_information_may_be_elsewhere_and_belongs_to_one_build() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let program = scratch.path().join("apart");
    for build_id in ["-Wl,--build-id", "-Wl,--build-id=none"] {
        compile(&source(), &program, &["-g", "-O2", build_id])?;
        let debug = scratch.path().join("apart.debug");
        run("objcopy", &["--only-keep-debug".as_ref(), &program, &debug])?;
        let link = format!("--add-gnu-debuglink={}", debug.display());
        run("objcopy", &["--strip-all".as_ref(), link.as_ref(), &program])?;
        let (child, mut names, waiters) = look(&program)?;
        expect_lines(&mut names, &waiters, build_id);
        expect_places(&mut names, &waiters, build_id);
        drop(child);
        // Files of another build: nothing is named, rather than named wrongly.
        compile(&source(), &debug, &["-g", "-O1", build_id])?;
        let (_child, mut names, waiters) = look(&program)?;
        let frames = frames(&mut names, &waiters[0].stack);
        assert!(
            frames.iter().any(|frame| frame.name().starts_with("apart+0x")),
            "{}",
            shown(&frames)
        );
        assert!(!frames.iter().any(|frame| frame.name() == "waiting"), "{}", shown(&frames));
    }
    Ok(())
}

#[test]
fn a_program_that_was_replaced_keeps_its_names() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let program = scratch.path().join("replaced");
    compile(&source(), &program, &["-g", "-O2"])?;
    let (_child, names, waiters) = look(&program)?;
    std::fs::remove_file(&program)?;
    std::fs::write(&program, "something else")?;
    let pid = names.space().pid;
    // Without the right to open files through their mappings, nothing can be named.
    let maps = std::fs::read_dir(format!("/proc/{pid}/map_files"))?;
    let first = maps.flatten().next().context("no mapping")?;
    if let Err(error) = std::fs::File::open(first.path()) {
        println!("skipped: cannot open {}: {error}", first.path().display());
        return Ok(());
    }
    let mut names = Symboliser::of_process(pid)?;
    expect_lines(&mut names, &waiters, "replaced");
    Ok(())
}

fn shown(frames: &[Frame]) -> String {
    frames.iter().map(|frame| format!("\n  {frame}")).collect()
}

/// Only the compilers' tables say it: a function without them may have no frame pointer either.
#[test]
#[cfg(target_arch = "x86_64")]
fn where_a_function_returns_is_known_only_by_tables() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    const NONE: [&str; 3] = ["-O2", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    for (name, flags, is_known) in [("with", &["-O2"][..], true), ("without", &NONE, false)] {
        let program = scratch.path().join(name);
        compile(&source(), &program, flags)?;
        let (_child, mut names, waiters) = look(&program)?;
        let stack = &waiters[0].stack;
        let is_waiting = |at: &&u64| names.function(**at).as_deref() == Some("waiting");
        let call = *stack.iter().find(is_waiting).context("waiting")?;
        let slot = Unwinder::new(&mut names).return_slot(call + 1);
        assert_eq!(slot.is_some(), is_known, "{name}: {slot:?}");
    }
    Ok(())
}
