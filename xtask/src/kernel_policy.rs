//! A lock of a stock Debian kernel asks a policy, in a virtual machine: what `docs/policies-kernel.md` describes.
//!
//! ```text
//!   here   kernel.rs   fetches the kernel and its headers, builds the module (crates/kernel/livepatch)
//!          machine.rs  packs the machine's first file system, runs QEMU, reads what the machine says
//!   there  guest.rs    the machine's init: this same program. Loads policy and module under load, counts, removes them
//! ```

mod guest;
mod kernel;
mod machine;
mod report;

use crate::answer::No;
use crate::test::install_packages;
use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use lockwright_platform::hooks::Hook;
use lockwright_policy::kernel::foreign;
use lockwright_policy::object::Object;
use lockwright_policy::shipped::shipped;
use lockwright_tests::scratch;
use lockwright_text::beside;
use report::KernelRun;
use std::fs;
use std::time::Duration;

/// Flags.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A policy that we ship, or an object file; it has cmp_node, and calls only helpers that the kernel has.
    #[arg(long, value_name = "NAME|FILE", default_value = BIG_FIRST)]
    policy: String,
    /// Debian's package of the kernel.
    #[arg(long, value_name = "PACKAGE", default_value = "linux-image-cloud-amd64")]
    kernel: String,
    /// Seconds that the machine may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit: u64,
    /// Be the machine's init.
    #[arg(long, hide = true)]
    guest: bool,
}

/// The policy whose choices we know: it never puts a thread of a slow core in front of others.
const BIG_FIRST: &str = "big-first";

/// What we run. The kernel's packages name their compiler.
const PACKAGES: [&str; 5] = ["binutils", "cpio", "dpkg", "make", "qemu-system-x86"];

pub(crate) fn main(args: Args) -> Result<()> {
    if args.guest {
        guest::main();
    }
    ensure!(
        cfg!(target_arch = "x86_64"),
        "this needs an x86-64 machine: the kernel's packages are Debian's for amd64"
    );
    let object = policy(&args.policy)?;
    fit(&args.policy, &object)?;
    install_packages(&PACKAGES)?;
    let bar = ProgressBar::new_spinner()
        .with_style(ProgressStyle::with_template("{spinner} {wide_msg}")?);
    bar.enable_steady_tick(Duration::from_millis(200));
    let folder = scratch("kernel-policy")?;
    let kernel = kernel::fetch(&args.kernel, &folder, &bar)?;
    let module = kernel.module(&bar)?;
    let log = folder.join("console.log");
    let end = machine::run(&kernel, &module, &object, &log, args.limit, &bar)?;
    bar.finish_and_clear();
    let console = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let report = machine::report(&console);
    let report = report.with_context(|| {
        format!("the machine reported nothing ({end})\nhint: less {}", log.display())
    })?;
    print!("{}", told(&args.policy, &report));
    let faults = faults(&args.policy, &report, &console);
    ensure!(faults.is_empty(), No(format!("{}\nhint: less {}", faults.join("; "), log.display())));
    Ok(())
}

/// The object file of a policy.
fn policy(name: &str) -> Result<Vec<u8>> {
    if let Some(ours) = shipped().iter().find(|ours| ours.name == name) {
        return Ok(ours.object.to_vec());
    }
    let known: Vec<&str> = shipped().iter().map(|ours| ours.name).collect();
    fs::read(name).with_context(|| {
        format!(
            "'{name}' is neither a file nor a policy of ours\nhint: one of {}",
            known.join(", ")
        )
    })
}

/// Does the module ask what this policy answers, and does the kernel have its helpers?
fn fit(name: &str, object: &[u8]) -> Result<()> {
    let object = Object::read(object).with_context(|| format!("cannot read '{name}'"))?;
    let asked = object.hooks.iter().filter(|code| guest::ASKED.contains(&code.hook));
    let asked: Vec<_> = asked.collect();
    ensure!(
        asked.iter().any(|code| code.hook == Hook::CmpNode),
        "'{name}' has no cmp_node, and the module asks little else\nhint: --policy {BIG_FIRST}"
    );
    let missing: Vec<&str> =
        asked.iter().flat_map(|code| foreign(code)).map(|helper| helper.name).collect();
    ensure!(
        missing.is_empty(),
        "'{name}' calls {}, which the kernel lacks\nhint: --policy {BIG_FIRST}",
        missing.join(" and ")
    );
    Ok(())
}

/// What happened, in 80 columns.
fn told(name: &str, report: &KernelRun) -> String {
    let mut out =
        beside("", &format!("A mutex of Linux {} asks the policy '{name}'", report.kernel));
    for (hook, refusal) in &report.hooks {
        let verdict =
            refusal.as_ref().map_or("accepted".to_owned(), |why| format!("refused: {why}"));
        out += &beside("", &format!("the kernel's verifier on {hook}: {verdict}"));
    }
    out += &format!("\n{:<34}{:>12}{:>12}{:>12}\n", "", "before", "patched", "after");
    let [before, patched, after] = &report.phases;
    // Nobody counts before there is a module.
    let mut row = |what: &str, before: &str, [patched, after]: [u64; 2]| {
        out += &format!("{what:<34}{before:>12}{patched:>12}{after:>12}\n");
    };
    row("writes and reads of a pipe", &before.rounds.to_string(), [patched.rounds, after.rounds]);
    let (patched, after) = (patched.stats, after.stats);
    row("a mutex was taken: slow paths", "-", [patched.slow_paths, after.slow_paths]);
    row("of these, waited in line", "-", [patched.waits, after.waits]);
    row("policy asked", "-", [patched.asked, after.asked]);
    row("waiters put in front of others", "-", [patched.chosen, after.chosen]);
    row("of these, on a big core", "-", [patched.chosen_big, after.chosen_big]);
    row("most often passed", "-", [patched.passed_max, after.passed_max]);
    let seconds = |ms: u64| format!("{}.{} s", ms / 1000, ms % 1000 / 100);
    out += "\n";
    let through = format!(
        "patched in {}, unpatched in {}, module removed, under load throughout",
        seconds(report.patched_ms),
        seconds(report.unpatched_ms)
    );
    out + &beside("", &through)
        + &beside("", "emulated (QEMU, TCG): it shows that this works, and nothing about speed")
}

/// What is not as it should be.
fn faults(name: &str, report: &KernelRun, console: &str) -> Vec<String> {
    let [before, patched, after] = &report.phases;
    let mut faults = Vec::new();
    let mut check = |holds: bool, fault: &str| {
        if !holds {
            faults.push(fault.to_owned());
        }
    };
    check(report.hooks.iter().all(|(_, refusal)| refusal.is_none()), "the kernel refuses a hook");
    check(patched.stats.asked > 0, "the policy was not asked");
    check(
        after.stats.asked == 0 && after.stats.slow_paths == 0,
        "it was asked after the patch was off",
    );
    check(before.rounds > 0 && patched.rounds > 0 && after.rounds > 0, "the load stood still");
    check(patched.stats.refused == 0, "an answer was out of range");
    check(patched.stats.passed_max <= PASSED_MAX, "a waiter was passed more often than allowed");
    check(report.written == report.read, "the pipe lost or changed what was written");
    if name == BIG_FIRST {
        check(patched.stats.chosen > 0, "the policy changed nothing");
        check(
            patched.stats.chosen_big == patched.stats.chosen,
            "a thread on a little core was put in front",
        );
    }
    let complaint = console.lines().find(|line| COMPLAINTS.iter().any(|word| line.contains(word)));
    if let Some(line) = complaint {
        check(false, &format!("the kernel complains: {}", line.trim()));
    }
    faults
}

/// As in the module.
const PASSED_MAX: u64 = 64;

/// How the kernel says that something is wrong with it.
const COMPLAINTS: [&str; 5] = ["WARNING:", "BUG:", "Oops", "Kernel panic", "general protection"];

#[cfg(test)]
mod tests;
