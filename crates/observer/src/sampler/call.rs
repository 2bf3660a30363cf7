//! System calls by name.

/// A system call's name; its number, if it is newer than we know.
pub(crate) fn call_name(number: i64) -> String {
    let known = usize::try_from(number).ok().and_then(syscalls::Sysno::new);
    known.map_or_else(|| format!("system call {number}"), |call| call.name().to_owned())
}
