//! glibc's static probes, for bpftrace, perf, SystemTap and gdb: each is a `nop`, and a note that says where it is and
//! which register holds its argument (docs/profile.md lists them).
//!
//! They stand where glibc's stand. What glibc's own functions serve has glibc's own probes, if it was built with them:
//! none fires twice. The argument is wherever the compiler has it anyway, so a probe is one instruction, and no more.

/// A probe of glibc's, by its name, with its arguments.
macro_rules! fire {
    ($name:ident, $($argument:expr),+) => {
        probe::probe!(libpthread, $name, $($argument),+)
    };
}
pub(crate) use fire;
