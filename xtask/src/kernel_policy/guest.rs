//! The virtual machine's init: puts the policy into the kernel and takes it out again, under load.

use super::kernel::MODULE;
use super::report::{KernelRun, Phase, Stats};
use anyhow::{Context, Result, ensure};
use lockwright_platform::hooks::Hook;
use lockwright_policy::kernel::Programs;
use lockwright_policy::object::Object;
use lockwright_policy::verify::verify;

use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, delete_module, finit_module, reboot, uname};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Before what is being done, on the console.
pub(super) const STEP: &str = "lockwright-step: ";
/// Before the report.
pub(super) const REPORT: &str = "lockwright-report: ";
/// The policy's object file.
pub(super) const POLICY: &str = "policy.bpf.o";
/// The hooks that the module asks.
pub(super) const ASKED: [Hook; 2] = [Hook::CmpNode, Hook::SkipShuffle];

/// Threads for each CPU.
const THREADS: usize = 3;
/// The patch stays until the policy has been asked this often ...
const ASKED_ENOUGH: u64 = 200;
/// ... and has chosen this often. Then it has been seen at work.
const CHOSEN_ENOUGH: u64 = 20;
/// But no longer than this: a policy may choose nobody.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long to look at the load without the patch.
const LOOK: Duration = Duration::from_secs(2);

/// Runs, reports, and switches the machine off.
pub(super) fn main() -> ! {
    match demonstrate() {
        Ok(report) => match serde_json::to_string(&report) {
            Ok(report) => println!("{REPORT}{report}"),
            Err(error) => println!("{STEP}cannot report: {error}"),
        },
        Err(error) => println!("{STEP}{error:#}"),
    }
    rustix::fs::sync();
    let _ = reboot(RebootCommand::PowerOff);
    panic!("the machine can't be switched off");
}

fn demonstrate() -> Result<KernelRun> {
    for (kind, place) in [("proc", "/proc"), ("sysfs", "/sys"), ("bpf", "/sys/fs/bpf")] {
        mount(kind, place, kind, MountFlags::empty(), None)
            .with_context(|| format!("cannot mount {place}"))?;
    }
    let mut report = KernelRun {
        kernel: uname().release().to_string_lossy().into_owned(),
        ..KernelRun::default()
    };
    println!("{STEP}asking the kernel's verifier");
    let object = Object::read(&fs::read(Path::new("/").join(POLICY))?)?;
    let verified = verify(object).map_err(|rejected| anyhow::anyhow!("{rejected}"))?;
    let programs = Programs::load(&verified)?;
    let mut parameters = Vec::new();
    for (hook, verdict) in programs.hooks().filter(|(hook, _)| ASKED.contains(hook)) {
        report
            .hooks
            .push((hook.name().to_owned(), verdict.err().map(|refusal| refusal.reason.clone())));
        let path = PathBuf::from("/sys/fs/bpf").join(hook.name());
        if programs.pin(hook, &path)? {
            parameters.push(format!("{}={}", hook.name(), path.display()));
        }
    }
    let cpus = thread::available_parallelism()?.get();
    parameters.push(format!("little={}", cpus / 2));
    let load = PipeLoad::default();
    let (reader, writer) = pipe()?;
    thread::scope(|scope| {
        for number in 0..THREADS * cpus {
            let (load, reader, writer) = (&load, &reader, &writer);
            scope.spawn(move || load.run(number % cpus, number as u64, reader, writer));
        }
        let shown = show(&load, &parameters.join(" "), &mut report);
        load.is_over.store(true, Relaxed);
        shown
    })?;
    (report.written, report.read) = (load.written.into_inner(), load.read.into_inner());
    Ok(report)
}

/// Patches and unpatches the kernel, while the load goes on.
fn show(load: &PipeLoad, parameters: &str, report: &mut KernelRun) -> Result<()> {
    let [before, patched, after] = &mut report.phases;
    println!("{STEP}the load without the patch");
    load.rounds_of(before, || {
        thread::sleep(LOOK);
        Ok(())
    })?;
    println!("{STEP}patching under load");
    let start = Instant::now();
    let module = File::open(format!("/{MODULE}.ko"))?;
    finit_module(&module, &CString::new(parameters)?, 0).context("cannot load the module")?;
    let state = Path::new("/sys/kernel/livepatch").join(MODULE);
    wait("the patch is in force", || {
        fs::read_to_string(state.join("transition")).is_ok_and(|text| text.trim() == "0")
    })?;
    report.patched_ms = start.elapsed().as_millis() as u64;
    println!("{STEP}the policy decides");
    let stats = Path::new("/sys/module").join(MODULE).join("parameters/stats");
    let stats =
        || Stats::read(&fs::read_to_string(&stats)?).context("cannot read the module's counts");
    load.rounds_of(patched, || {
        let start = Instant::now();
        loop {
            thread::sleep(LOOK / 4);
            let now = stats()?;
            if now.asked >= ASKED_ENOUGH && now.chosen >= CHOSEN_ENOUGH
                || start.elapsed() >= PATIENCE
            {
                return Ok(());
            }
        }
    })?;
    println!("{STEP}taking the patch off under load");
    let start = Instant::now();
    fs::write(state.join("enabled"), "0")?;
    wait("the patch is off", || !state.exists())?;
    report.unpatched_ms = start.elapsed().as_millis() as u64;
    patched.stats = stats()?;
    println!("{STEP}the load without the patch again");
    load.rounds_of(after, || {
        thread::sleep(LOOK);
        Ok(())
    })?;
    after.stats = stats()?.since(&patched.stats);
    // The kernel gives up its own hold on the module a moment after the patch is off.
    let name = CString::new(MODULE)?;
    wait("the module is removed", || delete_module(&name, 0) == Ok(()))
}

/// Waits until this holds.
fn wait(what: &str, holds: impl Fn() -> bool) -> Result<()> {
    let start = Instant::now();
    while !holds() {
        // The kernel wakes sleepers after 15 s to make them switch.
        ensure!(
            start.elapsed() < 2 * PATIENCE,
            "{what}: not after {} s",
            start.elapsed().as_secs()
        );
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Threads that write to one pipe and read from it: each time they take its mutex, which is the kernel's.
#[derive(Default)]
struct PipeLoad {
    is_over: AtomicBool,
    rounds: AtomicU64,
    written: AtomicU64,
    read: AtomicU64,
}

impl PipeLoad {
    fn run(&self, cpu: usize, number: u64, mut reader: &PipeReader, mut writer: &PipeWriter) {
        let mut cpus = CpuSet::new();
        cpus.set(cpu);
        sched_setaffinity(None, &cpus).expect("the machine has this CPU");
        let (mut written, mut read, mut rounds) = (0u64, 0u64, 0);
        while !self.is_over.load(Relaxed) {
            rounds += 1;
            let value = number << 40 | rounds;
            let mut bytes = value.to_ne_bytes();
            // Small enough to be written and read as a whole. Each writes before it reads, so nobody waits for more.
            writer.write_all(&bytes).expect("the pipe is open");
            written = written.wrapping_add(value);
            reader.read_exact(&mut bytes).expect("the pipe is open");
            read = read.wrapping_add(u64::from_ne_bytes(bytes));
            self.rounds.fetch_add(1, Relaxed);
        }
        self.written.fetch_add(written, Relaxed);
        self.read.fetch_add(read, Relaxed);
    }

    /// Counts rounds meanwhile.
    fn rounds_of(&self, phase: &mut Phase, meanwhile: impl FnOnce() -> Result<()>) -> Result<()> {
        let start = self.rounds.load(Relaxed);
        meanwhile()?;
        phase.rounds = self.rounds.load(Relaxed) - start;
        Ok(())
    }
}
