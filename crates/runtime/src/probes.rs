//! glibc's static probes, for bpftrace, perf, SystemTap and gdb. A probe is a note that says at which instruction a tracer may
//! stop, and which registers hold the arguments (docs/profile.md lists the probes). While nobody traces, a probe costs nothing,
//! or a `nop`.
//!
//! They are in the same places as glibc's. Objects that glibc's own functions serve have glibc's own probes, if glibc was built
//! with them; so none fires twice. The arguments are wherever the compiler has them anyway.

/// An instruction and its note, in the format of SystemTap's `sys/sdt.h`: the place, a base by which tools see whether the
/// file was moved, no semaphore, and three strings.
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

/// One of glibc's probes, by its name, with its arguments: one `nop`.
macro_rules! fire {
    ($name:ident, $one:expr) => {
        $crate::probes::fire!(@ $name, "8@{0}", $one)
    };
    ($name:ident, $one:expr, $two:expr) => {
        $crate::probes::fire!(@ $name, "8@{0} 8@{1}", $one, $two)
    };
    (@ $name:ident, $arguments:literal, $($argument:expr),+) => {{
        // Not `nomem`: writes that come before the probe in the source must come before the `nop`.
        // SAFETY: it does nothing.
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
