//! Attach and detach on x86-64. The modules below know its calling convention and its relocations.

mod call;
mod image;
mod refuse;
mod stop;
mod words;

use super::{Done, From};
use crate::hints::Failure;
use image::{Image, images, is_linker};
use lockwright_contract::attached::{ATTACHED, DETACHED, PRELOADED};
use lockwright_observer::mailbox::Remote;
use lockwright_observer::process::{Mapping, Process, mappings};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use stop::{StoppedThread, stop_all};
use words::{To, Two};

/// How long we wait until no thread is in the dynamic linker.
const PATIENCE: Duration = Duration::from_secs(2);

/// Redirects the process's calls to the library, and loads it first if necessary. `lock` becomes the default lock.
/// Returns the default lock in use.
pub(crate) fn attach(
    process: &Process,
    from: &From,
    lock: Option<&str>,
) -> Result<(Done, String), Failure> {
    refuse::check(process)?;
    let two = match steady(|| Two::find(process))? {
        Some(two) => two,
        None => {
            if Remote::find(process).is_ok() {
                return Err(has_it(process));
            }
            let (From::Here(library) | From::Inside(library)) = from;
            refuse::check_name(library)?;
            if let From::Here(library) = from {
                refuse::check_library(process, library)?;
            }
            load(process, library)?
        }
    };
    if two.how(process)? == PRELOADED {
        return Err(has_it(process));
    }
    let mailbox = Remote::find(process)?;
    // A process that was detached earlier still has its old lock.
    let lock = lock.or((two.how(process)? == DETACHED).then_some("auto"));
    if let Some(lock) = lock {
        // The first thread that waits takes up the lock.
        mailbox.set_default(lock)?;
    }
    let done = lead(process, To::Us)?.ok_or_else(|| {
        let pid = process.pid;
        Failure::new(format!("process {pid} is already attached"))
            .hint(format!("lockwright switch {pid} LOCK; or lockwright attach --undo {pid}"))
    })?;
    let has = || {
        let table = mailbox.posted()?.map_or_else(|| mailbox.table(), Ok)?;
        Ok(table.default)
    };
    Ok((done, lock.map_or_else(has, |lock| Ok(lock.to_owned()))?))
}

fn has_it(process: &Process) -> Failure {
    let pid = process.pid;
    Failure::new(format!("process {pid} was started with lockwright and already has its locks"))
        .hint(format!("lockwright switch {pid} LOCK"))
}

/// Redirects the process's calls back to glibc. The library stays loaded: threads that wait in it leave as they get
/// their locks.
pub(crate) fn detach(process: &Process) -> Result<Done, Failure> {
    let pid = process.pid;
    let not_attached = || {
        Failure::new(format!("process {pid} ({}) is not attached", process.name()))
            .hint(format!("lockwright attach {pid}"))
    };
    let two = steady(|| Two::find(process))?.ok_or_else(not_attached)?;
    if two.how(process)? == PRELOADED {
        return Err(Failure::new(format!("process {pid} was started with lockwright"))
            .hint(format!("glibc's algorithm: lockwright switch {pid} glibc")));
    }
    lead(process, To::Glibc)?.ok_or_else(not_attached)
}

/// Does `read` again if it fails: what it reads disappears when the program closes a library. A few times are enough, as
/// each takes only milliseconds.
fn steady<T>(mut read: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    const TIMES: u32 = 20;
    for _ in 1..TIMES {
        if let Ok(found) = read() {
            return Ok(found);
        }
        sleep(Duration::from_millis(2));
    }
    read()
}

/// Loads the library into the process.
fn load<'a>(process: &'a Process, library: &Path) -> Result<Two<'a>, Failure> {
    let pid = process.pid;
    let refuse = |why: &str| Failure::new(format!("cannot attach to process {pid}: {why}"));
    let places = steady(|| places(process, &refuse))?;
    call::load(process, &places, library)?;
    steady(|| Two::find(process))?.ok_or_else(|| {
        refuse(&format!("its dynamic linker would not load '{}'", library.display())).hint(
            "may it read and execute the file? is static TLS left? try `lockwright run -- PROGRAM`",
        )
    })
}

/// What the thread that loads the library needs to know.
fn places(process: &Process, refuse: &impl Fn(&str) -> Failure) -> Result<call::Places, Failure> {
    let (libcs, others) = words::libc_of(images(process)?);
    let [libc] = libcs.as_slice() else {
        return Err(match libcs.len() {
            0 => refuse("it has no glibc"),
            _ => refuse("it has several libcs (dlmopen)"),
        });
    };
    for image in others.iter().filter(|image| image.may_be_sanitizer(&process.program())) {
        if address(image, "__tsan_init")?.is_some() {
            return Err(refuse("ThreadSanitizer watches it and knows only glibc's locks"));
        }
    }
    let dlopen = address(libc, "dlopen")?
        .ok_or_else(|| refuse("its glibc is older than 2.34").hint("lockwright run -- PROGRAM"))?;
    let restorer = call::restorer(process, &libc.path)
        .ok_or_else(|| refuse("its libc has no code that signal handlers return to"))?;
    Ok(call::Places { dlopen, restorer })
}

/// The address of a function that the object defines.
fn address(image: &Image<'_>, name: &str) -> Result<Option<u64>, Failure> {
    let symbols = image.definitions()?;
    let found = symbols.iter().find(|symbol| symbol.name == name);
    Ok(found.map(|symbol| image.base.wrapping_add(symbol.value)))
}

/// Redirects the words while all threads are stopped. `None`: they already lead there.
fn lead(process: &Process, to: To) -> Result<Option<Done>, Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        let (loaded, two, places) = steady(|| {
            let loaded = objects(process)?;
            let two = Two::find(process)?.ok_or_else(|| process.ended())?;
            let places = two.places()?;
            Ok((loaded, two, places))
        })?;
        let begin = Instant::now();
        let threads = stop_all(process)?;
        let busy = in_linker(process, &threads)?;
        // If a library was loaded in between, its slots must be redirected, too.
        if busy.is_none() && loaded == objects(process)? {
            let redirected = two.redirected(process, &places, to)?;
            let changes = &redirected.changes;
            let how = if to == To::Us { ATTACHED } else { DETACHED };
            let was = two.how(process)?;
            if changes.is_empty() && was == how {
                return Ok(None);
            }
            if to == To::Us {
                two.keep_originals(process)?;
            }
            two.write(process, changes)?;
            two.set_how(process, how)?;
            drop(threads);
            let kept = if to == To::Glibc { redirected.for_good } else { 0 };
            let (words, files, still) = (redirected.words, redirected.files, begin.elapsed());
            return Ok(Some(Done { words, files, kept, still }));
        }
        drop(threads);
        if Instant::now() > end {
            let who = busy.map_or("the process".to_owned(), |id| format!("thread {id}"));
            return Err(Failure::new(format!(
                "{who} never leaves the dynamic linker; process {} stays as it was",
                process.pid
            ))
            .hint("try again"));
        }
        sleep(Duration::from_millis(2));
    }
}

/// The code of the loaded objects.
fn objects(process: &Process) -> Result<Vec<Mapping>, Failure> {
    let maps = mappings(process.pid).map_err(|error| process.gone(&error))?;
    Ok(maps.into_iter().filter(|map| map.is_code && map.path.is_absolute()).collect())
}

/// A thread that is in the dynamic linker. It may be about to fill a slot.
fn in_linker(process: &Process, threads: &[StoppedThread]) -> Result<Option<libc::pid_t>, Failure> {
    let maps = mappings(process.pid).map_err(|error| process.gone(&error))?;
    let code: Vec<_> = maps.iter().filter(|map| map.is_code && is_linker(&map.path)).collect();
    let is_there = |thread: &&StoppedThread| {
        let registers = thread.registers();
        registers.is_some_and(|r| code.iter().any(|map| (map.start..map.end).contains(&r.rip)))
    };
    Ok(threads.iter().find(is_there).map(|thread| thread.id))
}
