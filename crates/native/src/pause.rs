//! How a waiter that stays awake passes the time between two looks at its word.
//!
//! ```text
//!   look ── not yet ──► pause, mfence, tpause: a while ─────────────► look
//!                  └──► umwait, mwaitx, wfe: watch the word's line, look again, sleep until it changes, or a while
//! ```
//!
//! The default is the hint that every processor has. Falsafi, Guerraoui, Picorel & Trigonakis (*Unlocking Energy*, USENIX ATC
//! 2016) recommend `mfence` on their Xeon, where it draws less power than PAUSE. The other instructions let the core rest. A
//! processor may lack them, so each is used only on request, and only if CPUID (on aarch64 the kernel's list) has it.
//!
//! Invariants:
//! 1. A turn ends by itself after [`TICKS`] (`wfe`: at the kernel's next event, within 0.1 ms), whether or not the word changes. So no
//!    wake-up can be lost for longer than that.
//! 2. After its cache line is watched, and before the sleep, the word is read again: so a store in between is seen.
//! 3. A turn itself neither reads nor writes memory: orderings stay those of the looks.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The instruction with which a waiter passes the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Pause {
    /// The processor's hint for spin loops: PAUSE, on aarch64 ISB.
    Hint,
    /// A full barrier.
    Mfence,
    /// Intel's timed pause (WAITPKG): the light sleep C0.1, for a while.
    Tpause,
    /// The same, until the word's cache line is written (WAITPKG).
    Umwait,
    /// AMD's counterpart (MONITORX).
    Mwaitx,
    /// Arm's wait for an event: a store to the word's cache line is one, and the kernel sends a stream of others.
    Wfe,
}

/// The longest turn, in ticks of the time-stamp counter: 0.1 to 0.2 us.
#[cfg(target_arch = "x86_64")]
const TICKS: u32 = 400;

/// How many looks fit into the longest turn: waits without a clock count time in looks.
const LOOKS_OF_A_SLEEP: u32 = 8;

/// The kind that this process uses.
static USED: AtomicU8 = AtomicU8::new(Pause::Hint as u8);

impl Pause {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Hint, Self::Mfence, Self::Tpause, Self::Umwait, Self::Mwaitx, Self::Wfe];

    /// Its name, as in `LOCKWRIGHT_PAUSE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hint => "pause",
            Self::Mfence => "mfence",
            Self::Tpause => "tpause",
            Self::Umwait => "umwait",
            Self::Mwaitx => "mwaitx",
            Self::Wfe => "wfe",
        }
    }

    /// The kind with this name.
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().as_bytes() == name)
    }

    /// Does this processor have it, and does the kernel (or the hypervisor) let us use it?
    pub fn is_here(self) -> bool {
        match self {
            Self::Hint | Self::Mfence => true,
            Self::Tpause | Self::Umwait => has_waitpkg(),
            Self::Mwaitx => has_monitorx(),
            Self::Wfe => has_events(),
        }
    }

    /// Does any machine that we test on have it? The others are written only from the vendors' manuals.
    pub fn is_tested(self) -> bool {
        cfg!(target_arch = "x86_64") && matches!(self, Self::Hint | Self::Mfence)
    }

    /// From now on every waiter of this process uses it; `false`: this processor lacks it, and nothing changes.
    pub fn publish(self) -> bool {
        let is_here = self.is_here();
        if is_here {
            USED.store(self as u8, Relaxed); // waiters may use any kind at any time
        }
        is_here
    }

    /// The kind that this process uses.
    pub fn used() -> Self {
        let used = USED.load(Relaxed); // a hint
        Self::ALL.into_iter().find(|kind| *kind as u8 == used).unwrap_or(Self::Hint)
    }

    /// One turn; `is_same`: is the word at `address` still what the waiter has seen?
    ///
    /// # Safety
    /// This processor has it ([`is_here`](Self::is_here)). The address is readable.
    pub unsafe fn turn(self, address: *const u8, is_same: &dyn Fn() -> bool) {
        match self {
            Self::Hint => spin_loop(),
            Self::Mfence => barrier(),
            _ => sleep(self, address, is_same),
        }
    }
}

/// One turn of the kind that this process uses.
#[inline(always)]
pub(crate) fn once(address: *const u8, is_same: impl Fn() -> bool) {
    // Relaxed: a hint.
    if USED.load(Relaxed) == Pause::Hint as u8 {
        spin_loop();
    } else {
        another(address, &is_same);
    }
}

#[cold]
#[inline(never)]
fn another(address: *const u8, is_same: &dyn Fn() -> bool) {
    // SAFETY: `publish` accepts only what this processor has; the address is that of a word.
    unsafe { Pause::used().turn(address, is_same) };
}

/// The length of a turn, in looks of an ordinary wait.
#[inline(always)]
pub(crate) fn looks() -> u32 {
    // Relaxed: a hint.
    if USED.load(Relaxed) <= Pause::Mfence as u8 { 1 } else { LOOKS_OF_A_SLEEP }
}

fn barrier() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it touches no memory.
    unsafe {
        core::arch::asm!("mfence", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

#[cfg(target_arch = "x86_64")]
mod cpuid {
    use core::arch::x86_64::{__cpuid, __cpuid_count};

    /// CPUID leaf 7, ECX bit 5 (Intel, Software Developer's Manual, volume 2: UMONITOR).
    pub(super) fn has_waitpkg() -> bool {
        __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & 1 << 5 != 0
    }

    /// CPUID leaf 8000_0001, ECX bit 29 (AMD, Programmer's Manual, volume 3: MONITORX).
    pub(super) fn has_monitorx() -> bool {
        __cpuid(0x8000_0000).eax >= 0x8000_0001 && __cpuid(0x8000_0001).ecx & 1 << 29 != 0
    }
}
#[cfg(target_arch = "x86_64")]
use cpuid::{has_monitorx, has_waitpkg};

#[cfg(not(target_arch = "x86_64"))]
fn has_waitpkg() -> bool {
    false
}
#[cfg(not(target_arch = "x86_64"))]
fn has_monitorx() -> bool {
    false
}

#[cfg(not(target_arch = "aarch64"))]
fn has_events() -> bool {
    false
}
/// Without the kernel's stream of events, a wait for one might never end.
#[cfg(target_arch = "aarch64")]
fn has_events() -> bool {
    const EVTSTRM: core::ffi::c_ulong = 1 << 2;
    // SAFETY: no preconditions.
    unsafe { libc::getauxval(libc::AT_HWCAP) & EVTSTRM != 0 }
}

/// Sleeps lightly for a while, or until the cache line of `address` is written, if the kind watches it.
#[cfg(target_arch = "x86_64")]
fn sleep(kind: Pause, address: *const u8, is_same: &dyn Fn() -> bool) {
    use core::arch::asm;
    // SAFETY: it has no preconditions.
    let end = unsafe { core::arch::x86_64::_rdtsc() } + u64::from(TICKS);
    // Bit 0 set: C0.1, which ends sooner than C0.2.
    let (state, low, high) = (1u32, end as u32, (end >> 32) as u32);
    match kind {
        // SAFETY: the processor has it; it touches no memory.
        Pause::Tpause => unsafe {
            asm!("tpause {0:e}", in(reg) state, in("eax") low, in("edx") high, options(nostack));
        },
        Pause::Umwait => {
            // SAFETY: the processor has it; the address is that of a word, which it doesn't read.
            unsafe { asm!("umonitor {0}", in(reg) address, options(nostack, preserves_flags)) };
            if is_same() {
                // SAFETY: the processor has it; it touches no memory.
                unsafe {
                    asm!("umwait {0:e}", in(reg) state, in("eax") low, in("edx") high,
                        options(nostack));
                }
            }
        }
        Pause::Mwaitx => {
            // SAFETY: the processor has it; the address is that of a word, which it doesn't read. No hints.
            unsafe {
                asm!("monitorx", in("rax") address, in("ecx") 0, in("edx") 0,
                    options(nostack, preserves_flags));
            }
            if is_same() {
                // RBX is the compiler's own. ECX bit 1: it ends after EBX ticks. EAX 0xf0: the core stays in C0.
                // SAFETY: the processor has it; it touches no memory, and RBX is put back.
                unsafe {
                    asm!("xchg {ticks}, rbx", "mwaitx", "xchg {ticks}, rbx",
                        ticks = inout(reg) u64::from(TICKS) => _, in("eax") 0xf0, in("ecx") 2,
                        options(nostack, preserves_flags));
                }
            }
        }
        Pause::Hint | Pause::Mfence | Pause::Wfe => spin_loop(),
    }
}

/// The same; at the latest the kernel's stream of events, one in 0.1 ms, ends it.
#[cfg(target_arch = "aarch64")]
fn sleep(kind: Pause, address: *const u8, is_same: &dyn Fn() -> bool) {
    if kind != Pause::Wfe {
        return spin_loop();
    }
    // SAFETY: a byte of a word that the waiter itself reads.
    unsafe {
        core::arch::asm!("ldxrb {0:w}, [{1}]", out(reg) _, in(reg) address,
            options(nostack, readonly, preserves_flags));
    }
    if is_same() {
        // SAFETY: it touches no memory.
        unsafe { core::arch::asm!("wfe", options(nostack, preserves_flags)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn sleep(_: Pause, _: *const u8, _: &dyn Fn() -> bool) {
    spin_loop();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Atomic32, Native};
    use lockwright_platform::{Ordering, Platform, Word};

    #[test]
    fn names_are_told_apart_and_found_again() {
        for kind in Pause::ALL {
            assert_eq!(Pause::named(kind.name().as_bytes()), Some(kind));
        }
        assert_eq!(Pause::named(b"nap"), None);
        assert_eq!(Pause::named(b""), None);
    }

    /// With each kind that this processor has, a wait ends when the word changes, and when the time is over.
    #[test]
    fn waits_end_whatever_passes_their_time() {
        for kind in Pause::ALL {
            assert_eq!(kind.publish(), kind.is_here());
            if !kind.is_here() {
                assert_ne!(Pause::used(), kind);
                continue;
            }
            assert_eq!(Pause::used(), kind);
            let word = Atomic32::of(0);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for turn in 1..1000 {
                        Native::spin_until(&word, Ordering::Acquire, |seen| seen == 2 * turn - 1);
                        word.store(2 * turn, Ordering::Release);
                    }
                });
                for turn in 1..1000 {
                    word.store(2 * turn - 1, Ordering::Release);
                    Native::spin_until(&word, Ordering::Acquire, |seen| seen == 2 * turn);
                }
            });
            let start = Native::now();
            assert_eq!(Native::spin_for(&word, Ordering::Acquire, 200_000, |_| false), 1998);
            assert!(Native::now() - start >= 200_000, "{}", kind.name());
            let start = Native::now();
            Native::pause(100_000);
            assert!(Native::now() - start >= 100_000, "{}", kind.name());
        }
        assert!(Pause::Hint.publish());
    }

    /// A turn ends by itself, whether the word has already changed or not.
    #[test]
    fn a_turn_ends_by_itself() {
        let word = Atomic32::of(0);
        for kind in Pause::ALL.into_iter().filter(|kind| kind.is_here()) {
            for same in [true, false] {
                // SAFETY: this processor has it; the word exists.
                (0..100).for_each(|_| unsafe { kind.turn(word.as_ptr().cast(), &|| same) });
            }
        }
    }
}
