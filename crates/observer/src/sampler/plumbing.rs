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
        || MODULES.iter().any(|start| frame.module.starts_with(start))
        || FUNCTIONS.iter().any(|start| name.starts_with(start))
        || frame.file.as_ref().is_some_and(|file| FILES.iter().any(|part| file.contains(part)))
        || (frame.module == "[vdso]")
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
    }
}
