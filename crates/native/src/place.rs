//! Where the calling thread runs: the CPU from the kernel's restartable-sequences area (one load), its
//! class and domain from a table that [`learn`] fills from the topology.

use crate::kernel::system_call;
use crate::symbol::{self, Scope};
use core::sync::atomic::{AtomicIsize, AtomicU8, AtomicU16, Ordering::Relaxed};
use lockwright_platform::{Class, FULL_SPEED, Place};

/// The number of CPUs in the table; a CPU with a higher number counts as class 0, domain 0.
pub const CPUS: usize = 1024;

/// The number of classes that are told apart.
pub const CLASSES: usize = 8;

/// Offset of the thread's `struct rseq` from its thread pointer; 0: not known (glibc before 2.35).
#[unsafe(link_section = ".lockwright.start")]
static RSEQ: AtomicIsize = AtomicIsize::new(0);
static CLASS: [AtomicU8; CPUS] = [const { AtomicU8::new(0) }; CPUS];
static FASTEST: AtomicU8 = AtomicU8::new(0);
/// The speed of each class's cores; 0: not known, counts as the fastest.
static SPEED: [AtomicU16; CLASSES] = [const { AtomicU16::new(0) }; CLASSES];
static DOMAIN: [AtomicU16; CPUS] = [const { AtomicU16::new(0) }; CPUS];
/// The highest domain that was recorded, plus one; 0: none.
static CLUSTERS: AtomicU16 = AtomicU16::new(0);

/// Records one CPU's class and domain.
pub fn set(cpu: usize, class: Class, domain: u16) {
    if let (Some(c), Some(d)) = (CLASS.get(cpu), DOMAIN.get(cpu)) {
        c.store(class.0, Relaxed); // a table of hints: any mixture of old and new is legal
        d.store(domain, Relaxed);
        CLUSTERS.fetch_max(domain.saturating_add(1), Relaxed); // a hint, too
    }
}

/// How many clusters of CPUs the machine has, as far as it is known.
#[inline]
pub fn clusters() -> u16 {
    CLUSTERS.load(Relaxed) // a hint, as the table
}

/// The class of one CPU.
pub fn class_of(cpu: usize) -> Class {
    Class(CLASS.get(cpu).map_or(0, |class| class.load(Relaxed))) // a table of hints
}

/// Records how fast a class's cores are: any unit, the same for all classes.
pub fn set_speed(class: Class, speed: u16) {
    if let Some(known) = SPEED.get(usize::from(class.0)) {
        known.store(speed, Relaxed); // a hint, as the table
    }
}

/// The speed of a class's cores, in 1024ths of the fastest. Classes are counted as by [`among_usable`].
pub fn speed(class: Class) -> u32 {
    let fastest = FASTEST.load(Relaxed); // a hint, as the table
    let of = |class: u8| match SPEED.get(usize::from(class)).map(|speed| speed.load(Relaxed)) {
        None | Some(0) => FULL_SPEED,
        Some(speed) => speed.into(),
    };
    let (ours, most) = (of(class.0.saturating_add(fastest)), of(fastest));
    (FULL_SPEED * ours / most).clamp(1, FULL_SPEED)
}

/// Records the fastest class that the program may run on: for the program, those are the big cores.
pub fn set_fastest(class: Class) {
    FASTEST.store(class.0, Relaxed); // a hint, as the table
}

/// As [`here`], with classes counted from the fastest one that the program may run on ([`set_fastest`]).
#[inline]
pub fn among_usable() -> Place {
    let place = here();
    Place { class: Class(place.class.0.saturating_sub(FASTEST.load(Relaxed))), ..place }
}

/// Looks up glibc's rseq area. Call this once, early. Before that, and if glibc has no such area, the CPU comes from a call.
pub fn learn() {
    let offset = symbol::find(Scope::Process, c"__rseq_offset").cast::<isize>();
    let size = symbol::find(Scope::Process, c"__rseq_size").cast::<u32>();
    // SAFETY: if glibc has these symbols, they are a `const ptrdiff_t` and a `const unsigned int`.
    unsafe {
        if !offset.is_null() && !size.is_null() && *size > 0 {
            RSEQ.store(*offset, Relaxed); // written once; a thread that still sees 0 uses the call
        }
    }
}

/// The CPU that the calling thread runs on.
#[inline]
pub fn cpu() -> u32 {
    let offset = RSEQ.load(Relaxed);
    if offset != 0 {
        let id = rseq_cpu(offset);
        if (id as i32) >= 0 {
            return id;
        }
    }
    let (mut cpu, none) = (u32::MAX, core::ptr::null_mut::<u32>());
    // SAFETY: a writable word. Without that call it stays a CPU that isn't in any table.
    unsafe { system_call!(libc::SYS_getcpu, &raw mut cpu, none, 0_usize) };
    cpu
}

/// `cpu_id` of the rseq area, at byte 4.
#[cfg(target_arch = "x86_64")]
#[inline]
fn rseq_cpu(offset: isize) -> u32 {
    let id: u32;
    // SAFETY: glibc keeps a registered `struct rseq` at this offset from every thread's pointer.
    unsafe {
        core::arch::asm!("mov {id:e}, fs:[{at} + 4]", id = out(reg) id, at = in(reg) offset,
            options(nostack, readonly, preserves_flags));
    }
    id
}

/// `cpu_id` of the rseq area, at byte 4. Untested on this architecture.
#[cfg(target_arch = "aarch64")]
#[inline]
fn rseq_cpu(offset: isize) -> u32 {
    let base: *const u8;
    // SAFETY: reads the thread pointer, no memory.
    unsafe { core::arch::asm!("mrs {}, tpidr_el0", out(reg) base, options(nomem, nostack)) };
    // SAFETY: glibc keeps a registered `struct rseq` at this offset from every thread's pointer.
    unsafe { base.offset(offset + 4).cast::<u32>().read_volatile() }
}

/// The place of the calling thread.
#[inline]
pub fn here() -> Place {
    let cpu = cpu();
    let class = CLASS.get(cpu as usize).map_or(0, |class| class.load(Relaxed));
    let domain = DOMAIN.get(cpu as usize).map_or(0, |domain| domain.load(Relaxed));
    Place { cpu, class: Class(class), domain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rseq_and_the_call_agree_on_a_pinned_thread() {
        // SAFETY: a zeroed set is an empty set; pid 0 is the calling thread.
        let pinned = unsafe {
            let cpu = libc::sched_getcpu() as usize;
            let mut one: libc::cpu_set_t = core::mem::zeroed();
            libc::CPU_SET(cpu, &mut one);
            assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &one), 0);
            cpu as u32
        };
        assert_eq!(cpu(), pinned);
        learn();
        assert_eq!(cpu(), pinned);
        set(pinned as usize, Class(2), 5);
        assert_eq!(here(), Place { cpu: pinned, class: Class(2), domain: 5 });
        set_fastest(Class(2));
        assert!(among_usable().class.is_big());
        set_fastest(Class(1));
        assert_eq!(among_usable(), Place { cpu: pinned, class: Class(1), domain: 5 });
        set_fastest(Class(0));
    }

    #[test]
    fn speeds_are_those_of_classes_that_the_program_may_run_on() {
        assert_eq!(speed(Class(5)), FULL_SPEED, "nothing is known");
        set_speed(Class(5), 900);
        set_speed(Class(6), 300);
        let speeds = |fastest| {
            set_fastest(Class(fastest));
            let speeds = [0, 1].map(|class| speed(Class(class)));
            set_fastest(Class(0));
            speeds
        };
        assert_eq!(speeds(5), [FULL_SPEED, FULL_SPEED / 3]);
        assert_eq!(speeds(6), [FULL_SPEED; 2], "the seventh class is as fast as can be");
    }
}
