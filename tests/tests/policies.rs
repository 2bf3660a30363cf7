//! Policies in a running program under stress (`stress/switching.c`): adversaries break nothing, and loads and unloads, also by
//! commands that are killed, lose nothing.

use anyhow::{Context, Error, Result, bail, ensure};
use libtest_mimic::{Arguments, Trial};
use lockwright_contract::post::remote::Memory;
use lockwright_contract::programs::helpers;
use lockwright_contract::programs::maps::{MapKind, MapSpec, View};
use lockwright_platform::hooks::{Context as Asked, Hook, Node};
use lockwright_policy::control::{Answered, Control, Prepared};
use lockwright_policy::image::{Image, build};
use lockwright_policy::object::{HookCode, Insn, NamedMap, Object};
use lockwright_policy::shipped::shipped;
use lockwright_policy::verify::verify;
use lockwright_tests::{compile, is_soak, library, scratch, source_dir};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Nothing here takes that long.
const PATIENCE: Duration = Duration::from_secs(120);
/// No hook takes that long.
const NO_BUDGET: u32 = 1_000_000_000;
const SLOT: u32 = 1;
/// How often a waiter may be passed over. So few that adversaries reach it.
const BYPASS: u64 = 3;

fn main() {
    if let [_, first, pid, at] = &std::env::args().collect::<Vec<_>>()[..]
        && first == "--loader"
    {
        let error = load_forever(pid, at);
        eprintln!("error: {error:#}");
        std::process::exit(1);
    }
    let mut arguments = Arguments::from_args();
    // Eight threads on few CPUs are stress enough.
    arguments.test_threads = Some(1);
    let trial = |name: &'static str, run: fn(Stress) -> Result<()>| {
        let run = move || Stress::start(name).and_then(run).map_err(|error| explained(name, error));
        Trial::test(name, move || run().map_err(|error| format!("{error:#}").into()))
    };
    let trials = vec![
        trial("adversaries_break_nothing", adversaries),
        trial("nobody_is_passed_over_too_often", passed),
        trial("shipped_policies_run", shipped_policies),
        trial("loads_and_unloads_lose_nothing", loads_and_unloads),
        trial("loaders_that_are_killed_leave_nothing", killed_loaders),
        trial("a_slow_policy_is_taken_off", slow),
    ];
    libtest_mimic::run(&arguments, trials).exit();
}

/// How long each part takes: some tenths of a second, or much longer in a soak.
fn spell(ms: u64) -> Duration {
    Duration::from_millis(if is_soak() { ms * 120 } else { ms })
}

/// Where the program under stress of this test lies, and what it writes.
fn folder(test: &str) -> Result<PathBuf> {
    scratch(&format!("policies/{test}"))
}

/// What the program says if it finds that something is wrong.
const ERRORS: &str = "stderr";

/// Why a test has failed: the program under stress may have said more.
fn explained(test: &str, error: Error) -> Error {
    let said = folder(test).and_then(|folder| Ok(fs::read_to_string(folder.join(ERRORS))?));
    match said.unwrap_or_default().trim() {
        "" => error,
        said => error.context(format!("the program under stress said '{said}'")),
    }
}

/// Another process's memory.
struct Remote(File);

impl Remote {
    fn open(pid: u32) -> io::Result<Self> {
        File::options().read(true).write(true).open(format!("/proc/{pid}/mem")).map(Self)
    }
}

impl Memory for Remote {
    type Error = io::Error;

    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, at)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }
}

/// The program under stress, all of whose locks ask the policy in slot 1. It ends with its input, so it can't outlive us.
struct Stress {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    memory: Remote,
    /// The address of its policies.
    at: u64,
}

impl Stress {
    fn start(test: &str) -> Result<Self> {
        let folder = folder(test)?;
        let (program, errors) = (folder.join("switching"), File::create(folder.join(ERRORS))?);
        compile(&source_dir().join("stress/switching.c"), &program, &[])?;
        let mut child = Command::new(program)
            .env("LD_PRELOAD", library()?)
            .env("LOCKWRIGHT_LOCK", format!("programmed:slot={SLOT},bypass={BYPASS}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()?;
        let mut output = BufReader::new(child.stdout.take().context("its output")?);
        let mut said = String::new();
        output.read_line(&mut said)?;
        let at = said.trim().rsplit(' ').next().context("an address")?;
        let at = u64::from_str_radix(at.trim_start_matches("0x"), 16)?;
        let (input, memory) = (child.stdin.take(), Remote::open(child.id())?);
        Ok(Self { child, input, output, memory, at })
    }

    fn control(&self) -> Result<Control<'_, Remote>> {
        Control::open(&self.memory, self.at)?.context("another version")
    }

    fn load(&self, image: &Image, budget_ns: u32) -> Result<()> {
        self.load_prepared(&Prepared::new(image, budget_ns)?)
    }

    fn load_prepared(&self, policy: &Prepared) -> Result<()> {
        let said = self.control()?.load(SLOT, policy, PATIENCE)?;
        ensure!(said == Answered::Done, "{said:?}");
        Ok(())
    }

    fn unload(&self) -> Result<()> {
        let said = self.control()?.unload(SLOT, PATIENCE)?;
        ensure!(said == Answered::Done, "{said:?}");
        Ok(())
    }

    /// Critical sections so far.
    fn sections(&mut self) -> Result<u64> {
        self.input.as_mut().context("its input")?.write_all(b"\n")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        line.trim().parse().with_context(|| format!("'{line}' instead of a number"))
    }

    /// Ends it. It has checked itself.
    fn end(mut self) -> Result<()> {
        drop(self.input.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        let status = self.child.wait()?;
        let (counts, end) = text.split_once('\n').context("counts")?;
        ensure!(status.success() && end == "ok\n", "{status}: {text}");
        ensure!(counts.split(' ').all(|count| count != "0"), "something was never done: {text}");
        Ok(())
    }

    /// Pieces of executable memory without a file, open descriptors, and bytes of all its memory.
    fn holds(&self) -> Result<(usize, usize, u64)> {
        let folder = PathBuf::from(format!("/proc/{}", self.child.id()));
        let maps = fs::read_to_string(folder.join("maps"))?;
        let is_code = |line: &&str| line.contains(" r-xp 00000000 00:00 0") && !line.contains('[');
        let pages = fs::read_to_string(folder.join("statm"))?;
        let pages: u64 = pages.split(' ').next().context("pages")?.parse()?;
        let code = maps.lines().filter(is_code).count();
        Ok((code, fs::read_dir(folder.join("fd"))?.count(), pages * 4096))
    }
}

impl Drop for Stress {
    fn drop(&mut self) {
        if self.input.is_some() {
            let _ = self.child.kill(); // a test has failed
        }
        let _ = self.child.wait();
    }
}

const fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn { code, dst, src, off, imm }
}

const EXIT: Insn = insn(0x95, 0, 0, 0, 0);
const NOW: Insn = insn(0x85, 0, 0, 0, helpers::NOW as i32);

/// `r0 = number`.
const fn set(number: u64) -> Insn {
    insn(0xb7, 0, 0, 0, number as i32)
}

/// A way to answer.
type Answers = fn(Hook) -> Vec<Insn>;

/// Answers that no policy should give, in all hooks but these.
const ADVERSARIES: &[(&str, Answers, &[Hook])] = &[
    ("always 0", |_| vec![set(0), EXIT], &[]),
    ("always the largest", |hook| vec![set(hook.largest()), EXIT], &[]),
    ("always the largest, in line", |hook| vec![set(hook.largest()), EXIT], &[Hook::LockContended]),
    ("random", random, &[]),
    ("random, in line", random, &[Hook::LockContended]),
    ("alternating", alternating, &[Hook::LockContended]),
    ("slow", late, &[Hook::LockContended]),
];

/// The clock, modulo what may be answered. `r0 = now; r0 >>= 3; r0 %= largest + 1`.
fn random(hook: Hook) -> Vec<Insn> {
    vec![NOW, insn(0x77, 0, 0, 0, 3), insn(0x97, 0, 0, 0, hook.largest() as i32 + 1), EXIT]
}

/// 0 and the largest in turn: `r1 = &count; r0 = *r1; r0 += 1; *r1 = r0; r0 &= 1; r0 *= largest`.
fn alternating(hook: Hook) -> Vec<Insn> {
    vec![
        insn(0x18, 1, 2, 0, 0),
        insn(0, 0, 0, 0, 0),
        insn(0x79, 0, 1, 0, 0),
        insn(0x07, 0, 0, 0, 1),
        insn(0x7b, 1, 0, 0, 0),
        insn(0x57, 0, 0, 0, 1),
        insn(0x27, 0, 0, 0, hook.largest() as i32),
        EXIT,
    ]
}

/// As random, after many looks at the clock.
fn late(hook: Hook) -> Vec<Insn> {
    [vec![NOW; 500], random(hook)].concat()
}

/// The second in line goes first, each time. The highest `passed` of any waiter goes into the map:
/// `r3 = ctx->curr.passed; r2 = &count; if (*r2 < r3) *r2 = r3; r0 = ctx->round == 1`.
fn second_first(hook: Hook) -> Vec<Insn> {
    let load = |dst, at| insn(0x61, dst, 1, i16::try_from(at).expect("a small offset"), 0);
    if hook != Hook::CmpNode {
        return vec![set(0), EXIT];
    }
    vec![
        load(3, offset_of!(Asked, curr) + offset_of!(Node, passed)),
        insn(0x18, 2, 2, 0, 0),
        insn(0, 0, 0, 0, 0),
        insn(0x79, 4, 2, 0, 0),
        insn(0x3d, 4, 3, 1, 0),
        insn(0x7b, 2, 3, 0, 0),
        load(4, offset_of!(Asked, round)),
        set(1),
        insn(0x15, 4, 0, 1, 1),
        set(0),
        EXIT,
    ]
}

fn policy(name: &str, answers: Answers, without: &[Hook]) -> Result<Image> {
    let spec = MapSpec { kind: MapKind::Array, key_size: 4, value_size: 8, max_entries: 1 };
    let hooks = Hook::ALL.into_iter().filter(|hook| !without.contains(hook));
    let code = |hook| HookCode { hook, insns: answers(hook), lines: Vec::new() };
    let object = Object {
        hooks: hooks.map(code).collect(),
        maps: vec![NamedMap {
            name: "count".to_owned(),
            spec,
            initial: Vec::new(),
            constants: Vec::new(),
        }],
    };
    let verified = verify(object).map_err(|why| anyhow::anyhow!("{name}: {why:?}"))?;
    Ok(build(&verified, name, 0)?)
}

fn adversaries(mut stress: Stress) -> Result<()> {
    for (name, answers, without) in ADVERSARIES {
        stress.load(&policy(name, *answers, without)?, NO_BUDGET)?;
        let before = stress.sections()?;
        // With standby of 100 ms for each contended lock, the program is slow.
        let (begun, least) = (Instant::now(), spell(100));
        loop {
            sleep(Duration::from_millis(10));
            let has_advanced = stress.sections()? > before;
            let policy = stress.control()?.in_slot(SLOT)?.context("the policy is gone")?;
            let is_asked = policy.hooks.iter().any(|hook| hook.asked > 0);
            if begun.elapsed() > least && has_advanced && is_asked {
                break;
            }
            ensure!(begun.elapsed() < PATIENCE, "{name}: {has_advanced}, {policy:?}");
        }
    }
    stress.unload()?;
    // Its threads have tagged themselves.
    let control = stress.control()?;
    let mut tags = control.tags()?;
    tags.sort_unstable_by_key(|(_, tag)| *tag);
    ensure!(tags.iter().map(|(_, tag)| *tag).eq(100..108), "{tags:?}");
    let (thread, _) = tags[3];
    ensure!(control.tag(thread, 7, |_| true)? && control.tags()?.contains(&(thread, 7)));
    stress.end()
}

/// The locks' own count of how often a waiter was passed over reaches its bound, and not more. That the count is right: explorations.
fn passed(stress: Stress) -> Result<()> {
    stress.load(&policy("second first", second_first, &[])?, NO_BUDGET)?;
    let most = || -> Result<u64> {
        let control = stress.control()?;
        let data = control.data(&control.in_slot(SLOT)?.context("it is gone")?)?;
        let value = View::all(&data).next().and_then(|map| map.value(0, 0)).context("a map")?;
        Ok(u64::from_ne_bytes(value.try_into()?))
    };
    let begun = Instant::now();
    while most()? < BYPASS {
        ensure!(begun.elapsed() < PATIENCE, "nobody was passed over so often: {}", most()?);
        sleep(Duration::from_millis(1));
    }
    println!("{BYPASS} times after {:?}", begun.elapsed());
    sleep(spell(200));
    ensure!(most()? == BYPASS, "passed over {} times, and {BYPASS} are allowed", most()?);
    stress.unload()?;
    stress.end()
}

fn shipped_policies(mut stress: Stress) -> Result<()> {
    for policy in shipped() {
        let verified = verify(Object::read(policy.object)?)
            .map_err(|why| anyhow::anyhow!("{}: {why:?}", policy.name))?;
        stress.load(&build(&verified, policy.name, 1)?, NO_BUDGET)?;
        let before = stress.sections()?;
        sleep(spell(20));
        while stress.sections()? == before {
            sleep(Duration::from_millis(1));
        }
        let loaded = stress.control()?.in_slot(SLOT)?.context("it is gone")?;
        ensure!(loaded.name == policy.name && loaded.version == 1, "{loaded:?}");
    }
    stress.unload()?;
    stress.end()
}

fn loads_and_unloads(stress: Stress) -> Result<()> {
    let mut images = Vec::new();
    for (name, answers, without) in ADVERSARIES.iter().filter(|(name, ..)| name.contains("line")) {
        images.push(Prepared::new(&policy(name, *answers, without)?, NO_BUDGET)?);
    }
    // Large maps, so that a leak shows.
    let spec = MapSpec { kind: MapKind::Array, key_size: 4, value_size: 8192, max_entries: 512 };
    let code = HookCode { hook: Hook::CmpNode, insns: vec![set(1), EXIT], lines: Vec::new() };
    let large = Object {
        hooks: vec![code],
        maps: vec![NamedMap {
            name: "large".to_owned(),
            spec,
            initial: Vec::new(),
            constants: Vec::new(),
        }],
    };
    let large = build(&verify(large).map_err(|why| anyhow::anyhow!("{why:?}"))?, "large", 0)?;
    images.push(Prepared::new(&large, NO_BUDGET)?);
    stress.load_prepared(&images[0])?;
    stress.unload()?;
    let before = stress.holds()?;
    let (begun, mut loads, mut took) = (Instant::now(), 0_u64, [Vec::new(), Vec::new()]);
    while begun.elapsed() < spell(500) || loads < 150 {
        let image = &images[loads as usize % images.len()];
        let (at, is_left) = (Instant::now(), loads % 2 == 0);
        stress.load_prepared(image)?;
        took[0].push(at.elapsed());
        loads += 1;
        // Half of them are replaced instead.
        if !is_left {
            let at = Instant::now();
            stress.unload()?;
            took[1].push(at.elapsed());
        }
    }
    stress.unload()?;
    let after = stress.holds()?;
    ensure!(after.0 == 0 && before.0 == 0, "code stays mapped: {before:?}, {after:?}");
    ensure!(after.1 <= before.1, "descriptors stay open: {before:?}, {after:?}");
    // A quarter of the loads have 4 MiB of maps. Threads come and go, and allocate a little.
    let leak = after.2.saturating_sub(before.2);
    ensure!(leak < loads / 4 * (4 << 20) / 2, "{loads} loads, {leak} bytes more");
    for (what, mut took) in ["loads", "unloads"].into_iter().zip(took) {
        took.sort_unstable();
        let [half, most] = [2, 100].map(|part| took[took.len() - 1 - took.len() / part]);
        println!("{} {what}: half within {half:?}, 99 of 100 within {most:?}", took.len());
    }
    println!("{:?} together", begun.elapsed());
    stress.end()
}

/// Loads and unloads until somebody kills this process.
fn load_forever(pid: &str, at: &str) -> anyhow::Error {
    let run = || -> Result<()> {
        let memory = Remote::open(pid.parse()?)?;
        let control = Control::open(&memory, at.parse()?)?.context("another version")?;
        let image = policy("killed", late, &[Hook::LockContended])?;
        let policy = Prepared::new(&image, NO_BUDGET)?;
        println!("ready");
        loop {
            for said in [control.load(SLOT, &policy, PATIENCE)?, control.unload(SLOT, PATIENCE)?] {
                ensure!(said == Answered::Done, "{said:?}");
            }
        }
    };
    run().expect_err("it never ends by itself")
}

fn killed_loaders(mut stress: Stress) -> Result<()> {
    let before = stress.holds()?;
    let rounds = if is_soak() { 1000 } else { 15 };
    for round in 0..rounds {
        let mut loader = Command::new(std::env::current_exe()?)
            .arg("--loader")
            .args([stress.child.id().to_string(), stress.at.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(loader.stdout.take().context("its output")?).read_line(&mut line)?;
        // At some moment or other: each round somewhat later.
        sleep(Duration::from_micros(round * 137 % 5000));
        let was_running = loader.try_wait()?.is_none();
        loader.kill()?;
        loader.wait()?;
        ensure!(was_running && line == "ready\n", "a loader has failed: '{line}'");
    }
    // The next one can load, and nothing of the others stays.
    stress.load(&policy("next", random, &[Hook::LockContended])?, NO_BUDGET)?;
    let sections = stress.sections()?;
    while stress.sections()? == sections {
        sleep(Duration::from_millis(1));
    }
    stress.unload()?;
    let after = stress.holds()?;
    ensure!(after.0 == before.0 && after.1 <= before.1, "{before:?}, {after:?}");
    stress.end()
}

fn slow(stress: Stress) -> Result<()> {
    stress.load(&policy("late", late, &[Hook::LockContended])?, 1)?;
    let begun = Instant::now();
    let (hook, took_ns) = loop {
        let policy = stress.control()?.in_slot(SLOT)?.context("it is gone")?;
        if let Some(slow) = policy.too_slow {
            break slow;
        }
        if begun.elapsed() > PATIENCE {
            bail!("it is still asked: {policy:?}");
        }
        sleep(Duration::from_millis(1));
    };
    ensure!(took_ns > 1 && hook != Hook::LockContended, "{hook:?} took {took_ns} ns");
    stress.unload()?;
    ensure!(stress.control()?.in_slot(SLOT)?.is_none());
    stress.end()
}
