//! The virtual machine, from outside.

use super::guest;
use super::kernel::{Kernel, MODULE, run as finish};
use super::report::KernelRun;
use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use lockwright_tests::{Child, End};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// CPUs, the first half of which count as big. If they were more than this machine's, each signal between them would wait for one that
/// isn't running, and to patch a kernel takes thousands.
fn cpus() -> usize {
    thread::available_parallelism().map_or(2, |count| count.get().clamp(2, 4))
}

/// Runs the machine until it has reported, its console in `log`.
pub(super) fn run(
    kernel: &Kernel,
    module: &Path,
    policy: &[u8],
    log: &Path,
    limit: u64,
    bar: &ProgressBar,
) -> Result<End> {
    bar.set_message("packing the machine's files");
    let files = tempfile::tempdir()?;
    let archive = pack(files.path(), module, policy)?;
    // No /dev/kvm: inside a virtual machine it may not run a stock kernel, and then QEMU only says so by failing.
    let qemu = Child::new("qemu-system-x86_64")
        .args([
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-m",
            "1024",
            "-nic",
            "none",
            "-no-reboot",
        ])
        .args(["-display", "none", "-monitor", "none", "-serial", "stdio"])
        .args(["-smp".to_owned(), cpus().to_string()])
        .args([
            "-kernel".as_ref(),
            kernel.image().as_os_str(),
            "-initrd".as_ref(),
            archive.as_os_str(),
        ])
        .args(["-append", "console=ttyS0 panic=-1 rdinit=/init -- kernel-policy --guest"])
        .limit(limit);
    bar.set_message("booting");
    thread::scope(|scope| {
        let machine = scope.spawn(|| qemu.run_logged(log));
        while !machine.is_finished() {
            let console = fs::read(log).unwrap_or_default();
            if let Some(step) = said(&String::from_utf8_lossy(&console), guest::STEP).last() {
                bar.set_message(step.to_owned());
            }
            thread::sleep(Duration::from_millis(200));
        }
        machine.join().expect("it doesn't panic").map(|(end, _)| end)
    })
}

/// What the machine reports.
pub(super) fn report(console: &str) -> Option<KernelRun> {
    said(console, guest::REPORT).last().and_then(|line| serde_json::from_str(line).ok())
}

/// The lines that begin with `mark`, without it. The kernel's own messages may precede it.
fn said<'a>(console: &'a str, mark: &str) -> impl Iterator<Item = &'a str> {
    console.lines().filter_map(move |line| Some(line.split_once(mark)?.1.trim()))
}

/// The machine's first file system: this program as its init, the libraries that it needs, the module, and the policy.
fn pack(folder: &Path, module: &Path, policy: &[u8]) -> Result<PathBuf> {
    let root = folder.join("root");
    for name in ["proc", "sys"] {
        fs::create_dir_all(root.join(name))?;
    }
    let own = env::current_exe()?;
    // Its symbols would be most of the archive.
    finish("strip", |strip| {
        strip.args(["-o".as_ref(), root.join("init").as_os_str(), own.as_os_str()])
    })?;
    fs::copy(module, root.join(format!("{MODULE}.ko")))?;
    fs::write(root.join(guest::POLICY), policy)?;
    for library in libraries(&own)? {
        let copy = root.join(library.strip_prefix("/")?);
        fs::create_dir_all(copy.parent().context("a library in '/'")?)?;
        fs::copy(&library, copy)?;
    }
    let archive = folder.join("archive.cpio");
    let script = "cd \"$1\" && find . | cpio --quiet --create --format=newc >\"$2\"";
    finish("sh", |sh| sh.args(["-c", script, "sh"]).args([&root, &archive]))?;
    Ok(archive)
}

/// The libraries of a program, and its loader.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let outcome = Child::new("ldd").args([program]).run()?;
    ensure!(outcome.end == End::Code(0), "ldd: {}", outcome.describe());
    let text = outcome.text();
    // "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x...)", "/lib64/ld-linux-x86-64.so.2 (0x...)"
    let paths =
        text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(PathBuf::from).collect())
}
