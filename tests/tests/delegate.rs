//! `liblockwright_delegate.so`, the experiment of `run --delegate`: `delegate/hazards.cpp` does in sections what must not happen on another
//! thread, or must look as if it had not, and checks itself.

#![cfg(target_arch = "x86_64")]

use anyhow::{Context, Result, ensure};
use lockwright_tests::{Child, End, library, preload_list, scratch, source_dir};
use std::fs;
use std::path::{Path, PathBuf};

/// The ways, and what sends sections home in each.
const WAYS: &[(&str, Option<&str>)] = &[
    ("plain", None),
    ("memory", None),
    ("throws", None),
    ("nested", Some("pthread_mutex_lock")),
    ("crossed", Some("pthread_mutex_lock")),
    ("waits", Some("pthread_cond_timedwait")),
    ("spins", Some("too long")),
    ("sleeps", Some("nanosleep")),
    ("asks", Some("gettid")),
    ("forks", Some("fork")),
    ("jumps", None),
    ("signals", None),
    ("faults", None),
    ("frees", None),
    ("kinds", None),
    ("exits", Some("pthread_exit")),
    ("cancels", Some("pthread_testcancel")),
    ("returns", Some("pthread_exit")),
    ("stops", None),
    ("atforks", Some("fork")),
    ("robusts", Some("pthread_mutex_lock")),
    ("sections", None),
    ("async", None),
    ("bases", None),
    ("sequences", None),
];

fn delegates() -> Result<PathBuf> {
    let path = library()?.with_file_name("liblockwright_delegate.so");
    path.canonicalize().with_context(|| {
        format!(
            "cannot find '{}'\nhint: cargo build --release -p lockwright-delegate",
            path.display()
        )
    })
}

fn compiled() -> Result<PathBuf> {
    let binary = scratch("delegate")?.join("hazards");
    let source = source_dir().join("delegate/hazards.cpp");
    let outcome = Child::new("c++")
        .args(["-std=c++17", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .args([source.as_os_str(), "-o".as_ref(), binary.as_os_str()])
        .limit(120)
        .run()?;
    ensure!(outcome.end == End::Code(0), "{}", outcome.describe());
    Ok(binary)
}

/// Can a program set its thread pointer here, and did glibc take the kernel's area for restartable sequences? If not, nothing is delegated,
/// and there is nothing to see.
fn can_delegate() -> bool {
    const FSGSBASE: u64 = 2;
    // SAFETY: no preconditions; glibc's variable, which doesn't change, or null in an older glibc.
    unsafe {
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
        let has_area = size.is_null() || *size != 0;
        libc::getauxval(libc::AT_HWCAP2) & FSGSBASE != 0 && has_area
    }
}

/// Runs one way; `account`: the folder for what happened. Returns how many sections ran elsewhere.
fn run(binary: &Path, way: &str, account: &Path, free: &str) -> Result<u64> {
    let outcome = Child::new(binary)
        .args([way, "4", "0.25"])
        .env("LD_PRELOAD", preload_list(&[&delegates()?, &library()?]))
        .env("LOCKWRIGHT_DELEGATE", "all")
        .env("LOCKWRIGHT_DELEGATE_FREE", free)
        .env("LOCKWRIGHT_DELEGATE_ACCOUNT", account)
        .env("LOCKWRIGHT_SECTIONS", "always")
        .limit(60)
        .run()?;
    ensure!(outcome.end == End::Code(0), "{way}, free '{free}': {}", outcome.describe());
    let text = outcome.text();
    let words: Vec<_> = text.split(' ').collect();
    let at = words.iter().position(|word| *word == "elsewhere,").context("the program says it")?;
    Ok(words[at - 1].parse()?)
}

/// Did this hook send a section home, by the accounts in the folder?
fn has_sent_home(account: &Path, hook: &str) -> Result<bool> {
    for file in fs::read_dir(account)? {
        let counts = home(&fs::read(file?.path())?);
        if counts.iter().any(|(name, count)| name == hook && *count > 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Sections look as if their own thread ran them; and what must not happen elsewhere sends them home, as the account says.
#[test]
fn sections_on_other_threads() -> Result<()> {
    let binary = compiled()?;
    let mut elsewhere = 0;
    for (way, hook) in WAYS {
        let account = scratch(&format!("delegate-{way}"))?;
        elsewhere += run(&binary, way, &account, "")?;
        run(&binary, way, &account, "ask")?;
        let Some(hook) = hook.filter(|_| can_delegate()) else { continue };
        // How often it happens depends on the machine; one of a few runs shows it.
        let mut tries = 0;
        while !has_sent_home(&account, hook)? {
            ensure!(tries < 20, "{way}: {hook} sent nothing home");
            tries += 1;
            run(&binary, way, &account, "ask")?;
        }
        fs::remove_dir_all(&account)?;
    }
    ensure!(elsewhere > 0 || !can_delegate(), "no section ran elsewhere");
    Ok(())
}

/// The names of the hooks, and how many sections each has sent home.
fn home(bytes: &[u8]) -> Vec<(String, u64)> {
    const NAME: usize = 32;
    const REFUSED: usize = 4;
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let hooks = (number(0) >> 32) as usize;
    let names = (0..hooks).map(|hook| {
        let name = bytes[8 + hook * NAME..].split(|byte| *byte == 0).next().expect("one");
        String::from_utf8_lossy(name).into_owned()
    });
    let counts = 8 + hooks * NAME + 8 * REFUSED;
    names
        .chain(["too long".to_owned()])
        .enumerate()
        .map(|(hook, name)| (name, number(counts + 8 * hook)))
        .collect()
}
