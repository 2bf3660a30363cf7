//! A lock that runs sections on threads other than the ones that asked. It is as small as possible, and shows that the traits,
//! and the models' checks, leave room for delegation.
//!
//! Source: DSM-Synch of Panagiota Fatourou and Nikolaos D. Kallimanis, *Revisiting the Combining Synchronization
//! Technique*, PPoPP 2012: a thread that finds the queue empty runs its own section, then those of its followers. After a few
//! it leaves the rest to the next thread. The lock has no `lock` and no `unlock`: nobody holds it.

use lockwright_model::checker::{Budget, Checker, Data, Loom, Shuttle};
use lockwright_model::machine::{self, Machine};
use lockwright_model::scenario::{
    self, Way, destruction, explore, is_asked_for, lock, only_known_models_are_asked_for,
};
use lockwright_platform::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lockwright_platform::{Platform, Ptr, Sections, Word};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Our section has not run.
const WAITING: u32 = 0;
/// Somebody has run our section.
const RUN: u32 = 1;
/// We are to run our section, and those after it.
const OURS: u32 = 2;
/// How many sections one thread runs before it leaves the rest to the next.
const MOST: u32 = 2;

/// How many sections ran on a thread other than the one that asked, in all.
static CARRIED: AtomicU32 = AtomicU32::new(0);

struct Request<P: Platform> {
    /// The next node, written by the thread that came next.
    next: P::Ptr<Request<P>>,
    /// Written by the thread that runs sections.
    state: P::Word,
    /// Written by its owner before it joins the queue.
    job: Cell<Option<Job>>,
}

impl<P: Platform> Default for Request<P> {
    fn default() -> Self {
        let (next, state) = (P::Ptr::new(null_mut()), P::Word::new(WAITING));
        Self { next, state, job: Cell::new(None) }
    }
}

/// A section that lies on its owner's stack, and how to run it there.
#[derive(Clone, Copy)]
struct Job {
    run: unsafe fn(*mut ()),
    section: *mut (),
}

struct Combining<P: Platform> {
    /// The node that came last.
    tail: P::Ptr<Request<P>>,
}

impl<P: Platform> Sections<P> for Combining<P> {
    type Node = Request<P>;

    fn new() -> Self {
        Self { tail: P::Ptr::new(null_mut()) }
    }

    unsafe fn with<R: Send>(&self, node: *mut Request<P>, section: impl FnOnce() -> R + Send) -> R {
        // A panic is a result, too: it belongs to the owner, not to the runner.
        let mut result = None;
        let mut section = Some(section);
        let mut run = || {
            let section = section.take().expect("a section runs once");
            result = Some(catch_unwind(AssertUnwindSafe(section)));
        };
        // SAFETY: the caller keeps the node for us; others know it only until it is RUN or OURS. `run` lies here until then.
        unsafe {
            let mine = &*node;
            mine.job.set(Some(job(&mut run)));
            // ORDERING: AcqRel [join]: our node is ready before it is found; with an empty queue, pairs with [leave].
            let before = self.tail.swap(node, AcqRel);
            let mut state = OURS;
            if !before.is_null() {
                // ORDERING: Release [follow]: our node is ready before it is found.
                (*before).next.store(node, Release);
                // ORDERING: Acquire, pairs with [run], [ours]: we see what the section has done.
                state = P::spin_until(&mine.state, Acquire, |state| state != WAITING);
            }
            if state == OURS {
                self.serve(node);
            } else {
                CARRIED.fetch_add(1, Relaxed);
            }
        }
        match result.expect("it was run") {
            Ok(result) => result,
            Err(cause) => resume_unwind(cause),
        }
    }
}

fn job<F: FnMut()>(run: &mut F) -> Job {
    unsafe fn call<F: FnMut()>(section: *mut ()) {
        // SAFETY: `section` is the `run` that this function was chosen for; its owner waits meanwhile.
        unsafe { (*section.cast::<F>())() }
    }
    Job { run: call::<F>, section: (&raw mut *run).cast() }
}

impl<P: Platform> Combining<P> {
    /// Runs the section of `first`, and some of those that follow it.
    ///
    /// # Safety
    /// `first` is the caller's own, at the head of the queue.
    unsafe fn serve(&self, first: *mut Request<P>) {
        let mut at = first;
        for served in 1.. {
            // SAFETY: the owner of `at` waits until it is RUN; the first one is the caller's.
            unsafe {
                let request = &*at;
                let Job { run, section } = request.job.get().expect("it was set before joining");
                run(section);
                // ORDERING: Acquire, pairs with [follow].
                let mut next = request.next.load(Acquire);
                // ORDERING: Release [leave]: the sections are over before the queue is empty.
                if next.is_null()
                    && self.tail.compare_exchange(at, null_mut(), Release, Relaxed).is_err()
                {
                    // ORDERING: Acquire, pairs with [follow].
                    next = P::spin_until_ptr(&request.next, Acquire, |next| !next.is_null());
                }
                if at != first {
                    // ORDERING: Release [run]. After this `at` may be gone.
                    request.state.store(RUN, Release);
                }
                if next.is_null() {
                    return;
                }
                if served == MOST {
                    // ORDERING: Release [ours]: the sections before it are over.
                    return (*next).state.store(OURS, Release);
                }
                at = next;
            }
        }
    }
}

const BUDGET: Budget = Budget { preemptions: 3, time: Duration::from_millis(1400), draws: 300 };

fn all<C: Checker>(threads: usize) {
    type Of<C> = Combining<Machine<C, 0>>;
    let way: Way<Of<C>, Request<Machine<C, 0>>> = lock::<C, 0, Of<C>>;
    let name = format!("delegation, {threads} threads");
    scenario::sections::<C, 0, Of<C>>(&name, BUDGET, vec![way; threads], false, way);
    let name = format!("delegation, the last of {threads} destroys");
    if threads == 2 {
        destruction::<C, 0, Of<C>>(&name, BUDGET, 2);
    }
}

#[test]
fn what_is_asked_for_is_there() {
    only_known_models_are_asked_for(|| {
        all::<Shuttle>(2);
        panics::<Shuttle>();
    });
}

#[test]
fn sections_that_others_run_exclude_each_other() {
    all::<Loom>(2);
    all::<Loom>(3);
    all::<Shuttle>(4);
    if is_asked_for("delegation") {
        assert_ne!(CARRIED.load(Relaxed), 0, "no section was run by another thread");
    }
}

/// A section's panic goes to its owner, whichever thread runs it, and the others' sections run.
fn panics<C: Checker>() {
    explore::<C>("delegation, one panics", BUDGET, || {
        machine::begin::<C>();
        {
            let shared = Arc::new((Combining::<Machine<C, 0>>::new(), C::Data::new()));
            let other = shared.clone();
            let handle = machine::spawn::<C>(move || {
                let mut node = Request::default();
                // SAFETY: the node outlives the section.
                unsafe { other.0.with(&mut node, || other.1.bump()) };
            });
            let mut node = Request::default();
            let fails = || {
                // Not `panic!`: the checkers' hooks need not know.
                let section = || -> u32 { resume_unwind(Box::new("the owner's")) };
                // SAFETY: the node outlives the section.
                unsafe { shared.0.with(&mut node, section) }
            };
            let cause = catch_unwind(AssertUnwindSafe(fails)).expect_err("it panics");
            assert_eq!(cause.downcast_ref(), Some(&"the owner's"));
            machine::join::<C>(vec![handle]);
            assert_eq!(shared.1.get(), 1);
        }
        machine::end();
    });
}

#[test]
fn a_panic_is_carried_back_to_its_owner() {
    panics::<Loom>();
    panics::<Shuttle>();
}

/// Checks the scenario itself: it notices a lock that excludes nobody.
#[test]
fn a_lock_that_excludes_nobody_is_noticed() {
    struct Open;
    impl<P: Platform> Sections<P> for Open {
        type Node = ();
        fn new() -> Self {
            Self
        }
        unsafe fn with<R: Send>(&self, _: *mut (), section: impl FnOnce() -> R + Send) -> R {
            section()
        }
    }
    let way: Way<Open, ()> = lock::<Loom, 0, Open>;
    let run = || {
        scenario::sections::<Loom, 0, Open>("open, 2 threads", BUDGET, vec![way; 2], false, way);
    };
    let cause = catch_unwind(run).err();
    let cause = cause.as_ref().and_then(|cause| cause.downcast_ref::<String>());
    assert_eq!(
        cause.is_some_and(|cause| cause.contains("Causality violation")),
        is_asked_for("open")
    );
}
