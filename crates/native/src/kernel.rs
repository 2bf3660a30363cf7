//! System calls, made directly: not by libc's `syscall`, which the program may define, and which sets the program's `errno`.

use core::arch::asm;

/// A system call; its result, or the negated error number.
///
/// # Safety
/// As the system call with this number.
#[inline(always)]
pub unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> libc::c_long {
    let [a, b, c, d, e, f] = arguments;
    let result: libc::c_long;
    // SAFETY: the caller's promise; the kernel keeps all other registers.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    result
}

/// What a register can pass to the kernel.
pub trait Argument {
    /// Its bits, as wide as a register.
    fn word(self) -> usize;
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl Argument for $number {
            fn word(self) -> usize {
                self as usize // signed numbers keep their sign
            }
        })*
    };
}
numbers!(i32 u32 i64 u64 usize);

impl<T> Argument for *const T {
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

impl<T> Argument for *mut T {
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

/// [`call`] with up to six arguments of any kind; unsafe as that.
#[macro_export]
macro_rules! system_call {
    ($number:expr $(, $argument:expr)* $(,)?) => {{
        let words: &[usize] = &[$($crate::kernel::Argument::word($argument)),*];
        let mut all = [0; 6];
        all[..words.len()].copy_from_slice(words);
        $crate::kernel::call($number, all)
    }};
}
pub use system_call;

/// The process's id, which is its first thread's.
pub fn process_id() -> u32 {
    // SAFETY: no preconditions.
    unsafe { call(libc::SYS_getpid, [0; 6]) as u32 }
}

/// Zeroed memory, whole pages that are private to the process; `None`: there is none left.
pub fn map(bytes: usize) -> Option<*mut u8> {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh anonymous mapping overlaps nothing.
    let at = unsafe { system_call!(libc::SYS_mmap, 0_usize, bytes, protection, flags, -1, 0) };
    (at > 0).then_some(core::ptr::with_exposed_provenance_mut(at as usize))
}

/// Unmaps these bytes.
///
/// # Safety
/// They are the caller's own mapping, and nobody uses them any more.
pub unsafe fn unmap(at: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { system_call!(libc::SYS_munmap, at, bytes) };
}

/// Sets the protection of these pages; `false`: the kernel refuses.
///
/// # Safety
/// Nobody uses them in a way that this forbids.
pub unsafe fn protect(at: *mut u8, bytes: usize, protection: i32) -> bool {
    // SAFETY: the caller's promise.
    unsafe { system_call!(libc::SYS_mprotect, at, bytes, protection) == 0 }
}

/// The calling thread's kernel id.
pub fn thread_id() -> u32 {
    // SAFETY: no preconditions.
    unsafe { call(libc::SYS_gettid, [0; 6]) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_errors_are_the_kernels() {
        // SAFETY: no preconditions; a descriptor that nobody has.
        unsafe {
            assert_eq!(thread_id(), libc::gettid() as u32);
            assert_eq!(
                call(libc::SYS_close, [usize::MAX, 0, 0, 0, 0, 0]),
                -libc::c_long::from(libc::EBADF)
            );
        }
    }
}
