//! Wide locks: locks that need more than the 8 bytes of a mutex, because their words lie in cache lines of their own.
//!
//! ```text
//!     as published                       in place, 8 bytes
//!     ┌──────┐  ┌──────┐  ┌──────┐       ┌────────────┐     ┌──────┐  ┌──────┐
//!     │ next │  │ slot │  │ slot │       │ home, users├────►│ next │  │ slot │ ...   null: free, and no memory
//!     └──────┘  └──────┘  └──────┘       └────────────┘     └──────┘  └──────┘
//! ```
//!
//! [`Apart`] is a value in a line of its own. A wide lock is made of such lines; the simulator, the models and the bench use it
//! directly. [`Wide`] puts it behind 8 bytes. It counts the lock's users beside the pointer, and a holder that leaves nobody behind
//! gives the lines back. That costs two more atomic operations on one word, so measure a wide lock directly.
//!
//! State: (home, users). enter: (null, 0) -> (home, 1), or (home, n) -> (home, n + 1). unlock, by its holder: (home, n) ->
//! (home, n - 1), then it releases the lock at home; or (home, 1) -> (null, 0), and the lines are its own.
//!
//! 1. Free exactly while home = null.
//! 2. Every thread that holds or waits at home is counted, until right before it releases. So a thread that counts down to 0 holds
//!    the lock, and is alone with it.
//! 3. A thread that has counted itself out touches home only to release, and not after that: the next thread may give it back.

use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::{NonNull, null_mut};
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{InPlace, Platform, Ptr, RawLock, Sections, TryLock};

/// A value in a line of its own, from the machine's pool.
pub struct Apart<P: Platform, T> {
    at: NonNull<T>,
    machine: PhantomData<fn(P)>,
}

// SAFETY: it owns its value.
unsafe impl<P: Platform, T: Send> Send for Apart<P, T> {}
// SAFETY: as above.
unsafe impl<P: Platform, T: Sync> Sync for Apart<P, T> {}

impl<P: Platform, T> Apart<P, T> {
    /// Takes a line for `value`.
    pub fn new(value: T) -> Self {
        const { assert!(size_of::<T>() <= P::LINE && align_of::<T>() <= 128) }
        let at: *mut T = P::take_line().cast();
        // SAFETY: large enough, aligned, and ours alone.
        unsafe { at.write(value) };
        // SAFETY: a line of memory isn't null.
        let at = unsafe { NonNull::new_unchecked(at) };
        Self { at, machine: PhantomData }
    }
}

impl<P: Platform, T> Deref for Apart<P, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: written by `new`, and ours until we are dropped.
        unsafe { self.at.as_ref() }
    }
}

impl<P: Platform, T> Drop for Apart<P, T> {
    fn drop(&mut self) {
        // SAFETY: as in `deref`; nobody writes to it any more.
        unsafe {
            self.at.drop_in_place();
            P::give_line(self.at.as_ptr().cast());
        }
    }
}

/// The most users that can be counted: a line's address leaves that many bits free.
const USERS: usize = 127;

/// A wide lock behind 8 bytes.
pub struct Wide<P: Platform, L> {
    /// Where the lock lives, and how many threads use it. Written by arriving threads and by holders.
    home: P::Ptr<L>,
}

/// What an acquisition remembers.
pub struct Node<P: Platform, L: Sections<P>> {
    /// Written and read by its owner alone.
    home: *mut L,
    inner: L::Node,
}

impl<P: Platform, L: Sections<P>> Default for Node<P, L> {
    fn default() -> Self {
        Self { home: null_mut(), inner: L::Node::default() }
    }
}

fn users<L>(counted: *mut L) -> usize {
    counted.addr() & USERS
}

fn home<L>(counted: *mut L) -> *mut L {
    counted.map_addr(|address| address & !USERS)
}

fn with_users<L>(home: *mut L, users: usize) -> *mut L {
    home.map_addr(|address| address | users)
}

impl<P: Platform, L: TryLock<P>> Wide<P, L> {
    /// Builds a home that nobody knows yet.
    fn build() -> *mut L {
        const { assert!(size_of::<L>() <= P::LINE && align_of::<L>() <= 128) }
        let home: *mut L = P::take_line().cast();
        // SAFETY: large enough, aligned, and ours alone.
        unsafe { home.write(L::new()) };
        home
    }

    /// Gives its lines back.
    ///
    /// # Safety
    /// It came from `build`, and the caller is alone with it.
    unsafe fn demolish(home: *mut L) {
        // SAFETY: the caller's promise.
        unsafe {
            home.drop_in_place();
            P::give_line(home.cast());
        }
    }

    /// Counts the caller in.
    fn enter(&self) -> *mut L {
        let mut seen = self.home.load(Relaxed); // the exchanges below check it
        loop {
            let result = if seen.is_null() {
                let fresh = Self::build();
                // STATE: (null, 0) -> (home, 1).
                // ORDERING: Release [build]: the lock is built before others use it. Acquire, pairs with [leave]: the last
                // critical section, of which the fresh lock knows nothing, is over.
                let result =
                    self.home.compare_exchange(null_mut(), with_users(fresh, 1), AcqRel, Relaxed);
                if result.is_err() {
                    // SAFETY: nobody else has ever seen it.
                    unsafe { Self::demolish(fresh) };
                }
                result.map(|_| fresh)
            } else if users(seen) == USERS {
                Err(P::spin_until_ptr(&self.home, Relaxed, |now| users(now) < USERS))
            } else {
                let more = with_users(home(seen), users(seen) + 1);
                // STATE: (home, n) -> (home, n + 1).
                // ORDERING: Acquire, pairs with [build].
                self.home.compare_exchange(seen, more, Acquire, Relaxed).map(home)
            };
            match result {
                Ok(home) => return home,
                Err(now) => seen = now,
            }
        }
    }

    /// Counts out the caller, who holds the lock; `true`: nobody else was there.
    fn leave(&self) -> bool {
        let mut seen = self.home.load(Relaxed);
        loop {
            let last = users(seen) == 1;
            let fewer = if last { null_mut() } else { with_users(home(seen), users(seen) - 1) };
            // STATE: (home, 1) -> (null, 0), or (home, n) -> (home, n - 1).
            // ORDERING: Release [leave]: the critical section comes before whatever the next holder does. If others are
            // there, the lock at home says so, too.
            match self.home.compare_exchange(seen, fewer, Release, Relaxed) {
                Ok(_) => return last,
                Err(now) => seen = now,
            }
        }
    }
}

impl<P: Platform, L: TryLock<P>> Sections<P> for Wide<P, L> {
    type Node = Node<P, L>;

    fn new() -> Self {
        Self { home: P::Ptr::new(null_mut()) }
    }

    lockwright_platform::held_sections!(P);
}

impl<P: Platform, L: TryLock<P>> RawLock<P> for Wide<P, L> {
    unsafe fn lock(&self, node: *mut Node<P, L>) {
        let home = self.enter();
        // SAFETY: by invariant 2, home stays; the node is the caller's, and its inner node serves only that lock.
        unsafe {
            (*node).home = home;
            (*home).lock(&raw mut (*node).inner);
        }
    }

    unsafe fn lock_in_front(
        &self,
        node: *mut Node<P, L>,
        window_ns: u32,
        is_free: impl Fn() -> bool,
    ) {
        let home = self.enter();
        // SAFETY: as in `lock`.
        unsafe {
            (*node).home = home;
            (*home).lock_in_front(&raw mut (*node).inner, window_ns, is_free);
        }
    }

    unsafe fn unlock(&self, node: *mut Node<P, L>) {
        // SAFETY: the caller locked with this node. If it is alone, it has the lock to itself (invariant 2). Otherwise another
        // counted thread waits for our release, or comes after it.
        unsafe {
            let home = (*node).home;
            if self.leave() {
                Self::demolish(home);
            } else {
                (*home).unlock(&raw mut (*node).inner);
            }
        }
    }
}

impl<P: Platform, L: TryLock<P>> TryLock<P> for Wide<P, L> {
    unsafe fn try_lock(&self, node: *mut Node<P, L>) -> bool {
        // Relaxed: only a hint that saves taking some lines.
        if !self.home.load(Relaxed).is_null() {
            return false;
        }
        let home = Self::build();
        // SAFETY: nobody else knows this home, so this does not wait.
        unsafe {
            (*node).home = home;
            (*home).lock(&raw mut (*node).inner);
        }
        // STATE: (null, 0) -> (home, 1), else unchanged.
        // ORDERING: AcqRel, as in `enter`: [build], and Acquire pairs with [leave].
        let got = self.home.compare_exchange(null_mut(), with_users(home, 1), AcqRel, Relaxed);
        if got.is_err() {
            // SAFETY: nobody else has ever seen it.
            unsafe { Self::demolish(home) };
        }
        got.is_ok()
    }
}

// SAFETY: null is free (invariant 1); one pointer without a destructor, and a free lock owns no memory.
unsafe impl<P: Platform, L> InPlace for Wide<P, L> {}
