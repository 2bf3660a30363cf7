//! Functions that users can't change: those of the C library, of language runtimes, and ours.

use crate::counts::outcome::is_of_a_lock;
use lockwright_symbols::Frame;

/// The index of the innermost frame that belongs to the program, or else of the outermost frame.
pub(crate) fn own(frames: &[Frame]) -> usize {
    frames.iter().position(|frame| !is_plumbing(frame)).unwrap_or(frames.len().saturating_sub(1))
}

/// Does the frame belong to the C library, to a language's runtime library, or to us? The user can't change that code.
pub(crate) fn is_plumbing(frame: &Frame) -> bool {
    const MODULES: [&str; 8] = [
        "libc.so",
        "libc-2.",
        "libpthread",
        "ld-linux",
        "libstdc++.so",
        "libgcc_s.so",
        "[vdso]",
        "liblockwright",
    ];
    const FUNCTIONS: [&str; 9] = [
        "std::",
        "<std::",
        "core::",
        "<core::",
        "alloc::",
        "<alloc::",
        "__gthread_",
        "__gnu_cxx::",
        "__rust",
    ];
    const FILES: [&str; 3] = ["/include/c++/", "/rustc/", "/include/x86_64-linux-gnu/c++/"];
    let name = frame.function.as_deref().unwrap_or_default();
    is_of_a_lock(frame)
        || is_inside_a_lock(name)
        || MODULES.iter().any(|start| frame.module.starts_with(start))
        || FUNCTIONS.iter().any(|start| name.starts_with(start))
        || frame.file.as_ref().is_some_and(|file| FILES.iter().any(|part| file.contains(part)))
        || (frame.module == "[vdso]")
}

/// Is it a function inside the locks of abseil, folly or parking_lot? Their other functions run what the program gives them.
fn is_inside_a_lock(name: &str) -> bool {
    const PARKING_LOT: [&str; 4] =
        ["parking_lot::", "<parking_lot::", "parking_lot_core::", "<parking_lot_core::"];
    const FOLLY: [&str; 2] = ["folly::SharedMutexImpl", "folly::MicroLock"];
    // A version's name may follow: `absl::lts_20220623::Mutex::Lock`.
    const ABSEIL: [&str; 3] = ["::Mutex::", "::CondVar::", "::synchronization_internal::"];
    let starts = |all: &[&str]| all.iter().any(|start| name.starts_with(start));
    let is_abseils = || ABSEIL.iter().any(|part| name.contains(part));
    starts(&PARKING_LOT)
        || starts(&FOLLY)
        || name.starts_with("AbslInternalPerThreadSem")
        || (name.starts_with("absl::") && is_abseils())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_own_function_is_told() {
        let frame = |function: &str, module: &str| Frame {
            function: Some(function.into()),
            module: module.into(),
            ..Frame::default()
        };
        let stack = [
            frame("___pthread_mutex_lock", "libc.so.6"),
            frame("lockwright_runtime::mutex::lock", "server"),
            frame("__gthread_mutex_lock", "server"),
            frame("std::mutex::lock", "server"),
            frame("lookup", "server"),
            frame("main", "server"),
        ];
        assert_eq!((own(&stack), own(&stack[..2])), (4, 1));
        let stack = [
            frame("syscall", "libc.so.6"),
            frame("absl::debian3::synchronization_internal::Waiter::Wait", "libabsl.so"),
            frame("AbslInternalPerThreadSemWait_debian3", "libabsl.so"),
            frame("absl::debian3::Mutex::LockSlowLoop", "libabsl.so"),
            frame("absl::debian3::MutexLock::MutexLock", "server"),
            frame("parking_lot::raw_rwlock::RawRwLock::lock_shared_slow", "server"),
            frame("absl::debian3::container_internal::visit", "server"),
        ];
        assert_eq!((own(&stack), own(&stack[..5])), (6, 4));
    }
}
