//! glibc's static probes, for bpftrace, perf, SystemTap and gdb: notes that say at which instruction a tracer may stop,
//! and which registers hold the arguments (docs/profile.md lists them). While nobody traces, they cost nothing, or a `nop`.
//!
//! They stand where glibc's stand. What glibc's own functions serve has glibc's own probes, if it was built with them:
//! none fires twice. The arguments are wherever the compiler has them anyway.

/// An instruction and its note, in the format of SystemTap's `sys/sdt.h`: the place, a base from which tools see that the
/// file was moved, no semaphore, and three names.
macro_rules! note {
    ($instruction:literal, $name:ident, $arguments:literal) => {
        concat!(
            "990: ",
            $instruction,
            r#"
            .pushsection .note.stapsdt,"?","note"
            .balign 4
            .4byte 992f-991f, 994f-993f, 3
            991: .asciz "stapsdt"
            992: .balign 4
            993: .8byte 990b, _.stapsdt.base, 0
            .asciz "libpthread"
            .asciz ""#,
            stringify!($name),
            r#""
            .asciz ""#,
            $arguments,
            r#""
            994: .balign 4
            .popsection
            .ifndef _.stapsdt.base
            .pushsection .stapsdt.base,"aGR","progbits",.stapsdt.base,comdat
            .weak _.stapsdt.base
            .hidden _.stapsdt.base
            _.stapsdt.base: .space 1
            .size _.stapsdt.base, 1
            .popsection
            .endif"#
        )
    };
}
pub(crate) use note;

/// A probe of glibc's, by its name, with its arguments: one `nop`.
macro_rules! fire {
    ($name:ident, $one:expr) => {
        $crate::probes::fire!(@ $name, "8@{0}", $one)
    };
    ($name:ident, $one:expr, $two:expr) => {
        $crate::probes::fire!(@ $name, "8@{0} 8@{1}", $one, $two)
    };
    (@ $name:ident, $arguments:literal, $($argument:expr),+) => {{
        // Before it come all writes that the program asks for before it: so it may not be `nomem`.
        // SAFETY: nothing happens.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            core::arch::asm!(
                $crate::probes::note!("nop", $name, $arguments),
                $(in(reg) $argument,)+
                options(att_syntax, nostack, preserves_flags, readonly)
            );
        }
        // SAFETY: as above. Untested.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            core::arch::asm!(
                $crate::probes::note!("nop", $name, $arguments),
                $(in(reg) $argument,)+
                options(nostack, preserves_flags, readonly)
            );
        }
    }};
}
pub(crate) use fire;
