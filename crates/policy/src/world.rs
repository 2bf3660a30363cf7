//! The helpers for policies in this process: maps, and what a [`World`] answers.

use lockwright_contract::programs::calls::{self, MachineHelpers};
use lockwright_contract::programs::env::{Env, HelperFn};
use lockwright_contract::programs::helpers::HELPERS;
use lockwright_platform::hooks::World;
use std::cell::Cell;
use std::ptr::NonNull;

thread_local! {
    /// The world of the question that this thread is asking.
    static WORLD: Cell<Option<NonNull<dyn World>>> = const { Cell::new(None) };
}

/// Helpers that `ask` calls are answered by this world.
#[inline]
pub(crate) fn during<T>(world: &dyn World, ask: impl FnOnce() -> T) -> T {
    /// Puts back what was there, even if a world panics.
    struct Before(Option<NonNull<dyn World>>);
    impl Drop for Before {
        fn drop(&mut self) {
            WORLD.set(self.0);
        }
    }
    // SAFETY: only the lifetime is dropped; the pointer is gone before this function returns.
    let world = unsafe {
        std::mem::transmute::<NonNull<dyn World + '_>, NonNull<dyn World>>(NonNull::from(world))
    };
    let _before = Before(WORLD.replace(Some(world)));
    ask()
}

/// What the world answers; 0 where there is none.
fn world<T: Default>(ask: impl FnOnce(&dyn World) -> T) -> T {
    // SAFETY: `during` is on the stack, and holds it.
    WORLD.get().map(|world| ask(unsafe { world.as_ref() })).unwrap_or_default()
}

// What C passes as 32 bits is the lower half of a register.
macro_rules! answers {
    ($($name:ident |$world:ident, $arg:pat_param| $answer:expr;)*) => {
        $(
            unsafe extern "C" fn $name(arg: u64, _: u64, _: u64, _: u64, _: u64, _: &Env) -> u64 {
                let $arg = arg;
                world(|$world| $answer)
            }
        )*
    };
}

answers! {
    now |world, _| world.now();
    cpu |world, _| world.cpu().into();
    pid_tgid |world, _| world.pid_tgid();
    numa |world, _| world.numa().into();
    tag |world, tid| world.tag(tid as u32);
    prio |world, tid| i64::from(world.prio(tid as u32)).cast_unsigned();
    class |world, _| world.class().into();
}

/// The helpers, for an environment.
pub(crate) const HELPER_FUNCTIONS: [HelperFn; HELPERS] =
    calls::helpers(MachineHelpers { now, cpu, pid_tgid, numa, tag, prio, class });
