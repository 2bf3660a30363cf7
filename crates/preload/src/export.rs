//! What this library exports: glibc's names, under glibc's versions.
//!
//! The dynamic linker accepts a definition without a version for references of any version, but not for `dlvsym`. A
//! caller of `dlvsym` (libtsan) would get glibc's function while everybody else has ours, and two representations of one
//! condition variable would meet. So we export each name under each version that glibc has for it. Condition
//! variables from before 2.3.2 are 8 bytes long, and stay glibc's: their names lead there. The newest version is the
//! default, as in glibc. Names that exist only for old programs (`__pthread_*`) have a default, too, as in older
//! glibcs.
//!
//! A version is an alias beside its function, in the same object file: this crate has one codegen unit in every profile
//! (Cargo.toml). If the linker accepts no versions (build.rs tries), each name jumps to its function.

/// glibc's name of version `$since`: `base` is the first version on this architecture, `cond` that of today's condvars.
#[cfg(versions)]
macro_rules! version {
    (base) => {
        if_x86!("GLIBC_2.2.5", "GLIBC_2.17")
    };
    (cond) => {
        if_x86!("GLIBC_2.3.2", "GLIBC_2.17")
    };
    (dlmopen) => {
        if_x86!("GLIBC_2.3.4", "GLIBC_2.17")
    };
    (v2_28) => {
        "GLIBC_2.28"
    };
    (v2_30) => {
        "GLIBC_2.30"
    };
    (v2_34) => {
        "GLIBC_2.34"
    };
}

#[cfg(all(versions, target_arch = "x86_64"))]
macro_rules! if_x86 {
    ($this:literal, $other:literal) => {
        $this
    };
}
#[cfg(all(versions, target_arch = "aarch64"))] // untested
macro_rules! if_x86 {
    ($this:literal, $other:literal) => {
        $other
    };
}

/// `function as name: default version, older ones;`, or `old function as name: older version;`
#[cfg(versions)]
macro_rules! export {
    ($(old $function:ident as $name:ident: $old:ident;)*) => { $(
        export!(@ $function, $name, $old, "@");
    )* };
    ($($function:ident as $name:ident: $new:ident $(, $old:ident)*;)*) => { $(
        export!(@ $function, $name, $new, "@@");
        $(export!(@ $function, $name, $old, "@");)*
    )* };
    (@ $function:ident, $name:ident, $since:ident, $at:literal) => {
        core::arch::global_asm!(
            concat!(".globl ", export!(alias $name, $since)),
            concat!(".type ", export!(alias $name, $since), ", %function"),
            concat!(".set ", export!(alias $name, $since), ", {function}"),
            concat!(
                ".symver ", export!(alias $name, $since), ", ",
                stringify!($name), $at, version!($since), ", remove"
            ),
            function = sym $function,
        );
    };
    (alias $name:ident, $since:ident) => {
        concat!("lockwright.", stringify!($name), ".", stringify!($since))
    };
}

/// `function as name: versions, which this linker does not accept;`
#[cfg(not(versions))]
macro_rules! export {
    ($($function:ident as $name:ident: $($since:ident),*;)*) => { $(
        const _: () = {
            #[unsafe(export_name = stringify!($name))]
            #[unsafe(naked)]
            unsafe extern "C" fn exported() {
                #[cfg(target_arch = "x86_64")]
                core::arch::naked_asm!("jmp {}", sym $function);
                #[cfg(target_arch = "aarch64")] // untested
                core::arch::naked_asm!("b {}", sym $function);
            }
        };
    )* };
}
