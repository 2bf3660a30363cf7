//! What the front locks' words and seats say, step by step.

extern crate std;

mod memos;

use crate::front::tuning::MOST_COUNTED;
use crate::front::{Alone, By, slo};
use crate::front::{
    CHAINED, Choose, FREE, GRANTED, HELD, Note, Observe, PROMISED, Parts, Rule, SOMEBODY, Seat,
    Taken, Tuning, View, WAITED, Waiter, Word0, acquire, leave_line, release,
};
use crate::front::{barging, counts, fifo, hints, malthusian, mutexee, saturation};
use crate::testing::{Threads, interrupted, run_on, torn};
use core::cell::Cell;
use core::ptr::null_mut;
use lockwright_platform::{Machine, Ordering::Relaxed, Platform, Ptr, RawLock, Sections, Word};
use std::vec::Vec;

pub(crate) struct Memory {
    pub(crate) word: Word0<Threads>,
    counts: <Threads as Platform>::Word,
    hints: <Threads as Platform>::Word,
    pub(crate) tail: <Threads as Platform>::Ptr<Waiter<Threads>>,
}

impl Memory {
    pub(crate) fn new(word: u32, hints: u32) -> Self {
        let new = <<Threads as Platform>::Word as Word>::new;
        Self {
            word: Word0::of(new(word)),
            counts: new(0),
            hints: new(hints),
            tail: Ptr::new(null_mut()),
        }
    }

    pub(crate) fn parts(&self) -> Parts<'_, Threads> {
        let Self { word, counts, hints, tail } = self;
        Parts {
            word,
            counts,
            hints,
            by: core::ptr::null(),
            thread: 0,
            kind: 0,
            site: 0,
            tail,
            owner: None,
            seat: None,
        }
    }
}

fn tuning<R: Rule<Threads>>() -> Tuning {
    R::defaults(Tuning::for_cpus(2))
}

fn node_of<'a>(parts: &Parts<'_, Threads>) -> &'a Waiter<Threads> {
    Waiter::take(parts.word, parts.by, parts.thread, Note::default(), None, None)
}

/// Everybody joins the line, even if the lock is free.
struct Joins;

impl<P: Machine> Rule<P> for Joins {
    fn arrive(_: &View<'_, P>, _: &mut Note) -> Option<Taken> {
        None
    }
}

impl<P: Machine> Choose<P> for Joins {
    const HOLDS_BACK: bool = true;
}

impl<P: Machine> Observe<P> for Joins {}

/// Real threads in two clusters, which follow each other by real doors.
#[test]
fn near_waiters_lose_no_section() {
    const EACH: u64 = if cfg!(miri) { 20 } else { 20_000 };
    struct Counter(core::cell::UnsafeCell<u64>);
    // SAFETY: only the lock's holder uses it.
    unsafe impl Sync for Counter {}
    let lock = Alone::<Threads, slo::Lock>::new();
    let sum = Counter(core::cell::UnsafeCell::new(0));
    std::thread::scope(|scope| {
        for number in 0..6 {
            let (lock, sum) = (&lock, &sum);
            scope.spawn(move || {
                run_on(number % 2);
                let mut by = By::default();
                for _ in 0..EACH {
                    // SAFETY: locked and unlocked in turn, with a node that outlives both; the sum is the holder's.
                    unsafe {
                        lock.lock(&raw mut by);
                        *sum.0.get() += 1;
                        lock.unlock(&raw mut by);
                    }
                }
            });
        }
    });
    assert_eq!(sum.0.into_inner(), 6 * EACH);
}

#[test]
fn hints_that_glibcs_code_has_spoilt_heal() {
    let hints = hints::NAPPING | hints::LENGTH;
    let memory = Memory::new(FREE, hints | hints::STEPS);
    acquire::<Threads, Joins>(&memory.parts(), &tuning::<Joins>());
    assert_eq!(memory.word.now(), HELD);
    assert_eq!(memory.hints.load(Relaxed) & hints, 0);
}

/// Is the lock free, and in nobody's way?
fn is_whole(memory: &Memory, tuning: &Tuning) -> bool {
    memory.word.is_free() && View::<Threads>::new(&memory.parts(), tuning).is_line_empty()
}

/// A wait for a free lock, torn before each access to an atomic, one after the other: nobody has the lock then, and nobody is in line.
fn torn_everywhere<R: Rule<Threads>>() {
    let tuning = tuning::<R>();
    let mut lost = 0;
    for at in 1.. {
        let memory = Memory::new(FREE, 0);
        let (seat, by) = (Seat::default(), 0);
        let parts = || Parts { by: (&raw const by).cast(), seat: Some(&seat), ..memory.parts() };
        if torn(at, || acquire::<Threads, R>(&parts(), &tuning)).is_some() {
            assert!(at > 5, "{at} steps: it did nothing");
            assert!(lost <= 1, "at {lost} steps it had the lock and did not know");
            return;
        }
        let parts = memory.parts();
        let line = View::new(&parts, &tuning);
        // SAFETY: its wait doesn't go on.
        if unsafe { seat.leave(&line) } {
            line.release();
        }
        lost += u32::from(!is_whole(&memory, &tuning));
    }
}

#[test]
fn who_is_torn_out_of_a_wait_leaves_nothing_wherever_that_is() {
    torn_everywhere::<Joins>();
    torn_everywhere::<fifo::Lock>();
    torn_everywhere::<barging::Lock>();
    torn_everywhere::<slo::Lock>();
}

#[test]
fn who_is_torn_behind_others_is_in_nobodys_way() {
    let tuning: &'static Tuning = std::boxed::Box::leak(std::boxed::Box::new(tuning::<Joins>()));
    for behind in [false, true] {
        for at in 1.. {
            let memory: &'static Memory =
                std::boxed::Box::leak(std::boxed::Box::new(Memory::new(HELD, 0)));
            let head = join_line(&memory.parts(), tuning);
            let node = node_of(&memory.parts());
            let seat = Seat::default();
            let parts = || Parts { seat: Some(&seat), ..memory.parts() };
            let joins = || {
                seat.joins(node);
                View::new(&parts(), tuning).join(node);
                seat.waits();
            };
            let is_done = torn(at, joins).is_some();
            // Somebody joins behind a thread that has joined, and has linked nothing yet.
            let last = behind.then(|| join_line(&memory.parts(), tuning));
            let parts = memory.parts();
            let line = View::new(&parts, tuning);
            // SAFETY: its wait doesn't go on.
            assert!(!unsafe { seat.leave(&line) });
            // The head leaves to the next one in line, if there is any.
            // SAFETY: its node is this thread's.
            unsafe { leave_line(&line, head) };
            if let Some(last) = last {
                assert_eq!(last.gate.load(Relaxed) & 7, 2, "it is head, torn at {at}");
                // SAFETY: as above.
                unsafe { leave_line(&line, last) };
            }
            assert!(memory.tail.load(Relaxed).is_null(), "torn at {at}");
            if is_done {
                assert!(at > 5, "{at} steps: it did nothing");
                break;
            }
        }
    }
}

#[test]
fn who_is_torn_beside_the_line_is_counted_out() {
    let (mut beside, mut left_behind) = (0, 0);
    for at in 1..40 {
        let memory = Memory::new(HELD, 0);
        let (seat, tuning) = (Seat::default(), tuning::<malthusian::Lock>());
        let parts = || Parts { seat: Some(&seat), ..memory.parts() };
        let waits = || acquire::<Threads, malthusian::Lock>(&parts(), &tuning);
        assert!(torn(at, waits).is_none(), "the lock was held");
        let parts = memory.parts();
        let view = View::new(&parts, &tuning);
        beside += view.contenders();
        // SAFETY: its wait doesn't go on.
        assert!(!unsafe { seat.leave(&view) });
        left_behind += view.contenders();
    }
    assert!(beside > 0, "nobody waited beside the line");
    // Between the two steps of counting out: better one too many than another thread missing.
    assert!(left_behind <= 2, "{left_behind}");
}

#[test]
fn those_beside_the_line_stay_behind_at_a_fork() {
    let memory = Memory::new(HELD, 0);
    let era = |era| Tuning { era, ..tuning::<malthusian::Lock>() };
    let (parents, childs) = (era(0), era(1));
    let parts = memory.parts();
    let parent = View::<Threads>::new(&parts, &parents);
    assert!(parent.count_in(2) && parent.count_in(2) && !parent.count_in(2));
    let parts = memory.parts();
    let child = View::<Threads>::new(&parts, &childs);
    assert_eq!((parent.contenders(), child.contenders()), (2, 0));
    assert!(child.count_in(2) && child.count_in(2) && !child.count_in(2));
    parent.count_out(); // a thread that forked in a signal handler while it waited
    assert_eq!(child.contenders(), 2);
    child.count_out();
    child.count_out();
    assert_eq!(memory.counts.load(Relaxed) & counts::SPINNERS, 0);
}

/// Lengths around the edges of the line's count, and of 16 bits.
const LENGTHS: [u32; 13] = [1, 2, 3, 495, 496, 510, 511, 512, 513, 520, 1024, 65_535, 65_536];

fn join_line(parts: &Parts<'_, Threads>, tuning: &Tuning) -> &'static Waiter<Threads> {
    let node = node_of(parts);
    View::new(parts, tuning).join(node);
    node
}

#[test]
fn a_line_of_any_length_is_counted_as_far_as_the_field_goes() {
    let rest = !(hints::LENGTH | hints::NAPPING);
    for most in [1, 3, MOST_COUNTED] {
        let tuning = Tuning { most_counted: most, ..tuning::<fifo::Lock>() };
        for length in LENGTHS {
            let memory = Memory::new(HELD, rest);
            let nodes: Vec<_> = (0..length).map(|_| join_line(&memory.parts(), &tuning)).collect();
            let counted = || hints::waiters(memory.hints.load(Relaxed));
            assert_eq!(counted(), length.min(most), "{length}");
            for (left, node) in (0..length).rev().zip(nodes) {
                // SAFETY: the node is this thread's, and does not wait.
                unsafe { leave_line(&View::new(&memory.parts(), &tuning), node) };
                // The counted waiters were the first.
                assert_eq!(counted(), (left + most.min(length)).saturating_sub(length), "{length}");
            }
            assert_eq!(memory.hints.load(Relaxed), rest, "{length}: other fields");
            assert!(memory.tail.load(Relaxed).is_null());
        }
    }
}

/// If they were forgotten, no line would be crowded any more, and all waiters would stay awake, until the line is empty again.
#[test]
fn those_that_join_while_a_line_empties_stay_counted() {
    let tuning: &'static Tuning = std::boxed::Box::leak(std::boxed::Box::new(tuning::<Joins>()));
    for at in 1.. {
        let memory: &'static Memory =
            std::boxed::Box::leak(std::boxed::Box::new(Memory::new(HELD, 0)));
        let node = join_line(&memory.parts(), tuning);
        let joins = || (0..3).for_each(|_| _ = join_line(&memory.parts(), tuning));
        let leaves = || View::new(&memory.parts(), tuning).leave_empty(node);
        let Some(is_empty) = interrupted(at, joins, leaves) else {
            assert!(at > 3, "the exchange, and an access before and after it");
            return;
        };
        let left = 4 - u32::from(is_empty);
        assert_eq!(hints::waiters(memory.hints.load(Relaxed)), left, "before access {at}");
    }
}

std::thread_local! {
    /// So many waiters come to stand behind one that is about to acquire.
    static BEHIND: Cell<u32> = const { Cell::new(0) };
}

/// As [`Joins`], before some others.
struct Leads;

impl<P: Machine> Rule<P> for Leads {
    fn arrive(_: &View<'_, P>, _: &mut Note) -> Option<Taken> {
        None
    }
}

impl<P: Machine> Choose<P> for Leads {}

impl<P: Machine> Observe<P> for Leads {
    fn begins_to_wait(lock: &View<'_, P>, _: &Waiter<P>) {
        for _ in 0..BEHIND.take() {
            let &Parts { word, by, thread, .. } = lock.parts;
            lock.join(Waiter::take(word, by, thread, Note::default(), None, None));
        }
    }
}

#[test]
fn a_line_that_is_longer_than_the_count_is_crowded() {
    // Whether the holder that leaves was counted, or was not.
    for most_counted in [MOST_COUNTED, 3, 0] {
        for behind in LENGTHS[..11].iter().map(|length| length - 1) {
            for cpus in [2, 500] {
                let memory = Memory::new(FREE, 0);
                let tuning = Tuning { most_counted, cpus, ..tuning::<Joins>() };
                BEHIND.set(behind);
                acquire::<Threads, Leads>(&memory.parts(), &tuning);
                let is_crowded = memory.counts.load(Relaxed) & counts::CROWDED != 0;
                let expected = match most_counted {
                    0 => behind > 0,
                    most => behind.min(most - 1) >= cpus.min(hints::MANY),
                };
                assert_eq!(is_crowded, expected, "{behind} behind, {most_counted} {cpus}");
            }
        }
    }
}

#[test]
fn no_era_takes_a_line_from_before_a_fork_for_its_own() {
    let tuning = |era| Tuning { era, ..tuning::<Joins>() };
    for forks in 1..300 {
        // `Threads` tells eras apart as the pool does: by the forks so far.
        let memory = Memory::new(FREE, 0);
        let parent = crate::testing::forks();
        join_line(&memory.parts(), &tuning(parent));
        (0..forks).for_each(|_| crate::testing::fork());
        let child = tuning(parent + forks);
        let node = node_of(&memory.parts());
        assert!(
            !View::new(&memory.parts(), &child).join(node),
            "behind nobody, after {forks} forks"
        );
        assert_eq!(hints::waiters(memory.hints.load(Relaxed)), 1);
        // The same for a thread that finds the line, and for one that leaves it.
        let memory = Memory::new(FREE, 0);
        let old = join_line(&memory.parts(), &child);
        old.gate.store(GRANTED, Relaxed);
        crate::testing::fork();
        View::new(&memory.parts(), &tuning(child.era + 1)).clear_left_behind();
        View::new(&memory.parts(), &tuning(child.era + 64)).clear_left_behind();
        assert!(!memory.tail.load(Relaxed).is_null(), "not ours to give back");
        acquire::<Threads, Joins>(&memory.parts(), &tuning(child.era + 1));
        assert!(memory.tail.load(Relaxed).is_null());
    }
}

#[test]
fn a_count_of_contenders_from_four_forks_ago_heals() {
    let memory = Memory::new(FREE, 0);
    let era = |era| Tuning { era, ..tuning::<Joins>() };
    let (parents, childs) = (era(0), era(4));
    assert!(View::<Threads>::new(&memory.parts(), &parents).count_in(7));
    let parts = memory.parts();
    let child = View::<Threads>::new(&parts, &childs);
    assert_eq!(child.contenders(), 1, "the field has two bits");
    acquire::<Threads, Joins>(&memory.parts(), &childs);
    assert_eq!(child.contenders(), 0);
    child.count_out(); // of one that was forgotten
    assert_eq!(memory.counts.load(Relaxed) & (counts::SPINNERS | counts::BYPASSES), 0);
}

#[test]
fn a_node_that_is_in_no_line_any_more_releases_the_word_and_clears_the_owner() {
    let memory = Memory::new(CHAINED, 0);
    let owner = <<Threads as Platform>::Word as Word>::new(SOMEBODY);
    let parts = || Parts { owner: Some(&owner), ..memory.parts() };
    let node = node_of(&parts());
    node.gate.store(GRANTED, Relaxed);
    // SAFETY: it says that it holds the lock, and is nobody else's.
    unsafe { release(&View::new(&parts(), &tuning::<fifo::Lock>()), node) };
    assert_eq!((memory.word.now(), owner.load(Relaxed)), (FREE, 0));
}

#[test]
fn who_dozes_marks_the_word_in_a_crowd_and_not_past_the_heads_turn() {
    let memory = Memory::new(HELD, 0);
    let tuning = Tuning { bypass: 2, ..tuning::<barging::Lock>() };
    let parts = memory.parts();
    let view = View::<Threads>::new(&parts, &tuning);
    let dozes = || {
        memory.word.take_alone();
        assert!(barging::doze(&view, 2, 1_000).is_none(), "held");
        memory.word.now() == WAITED
    };
    memory.counts.store(counts::CROWDED, Relaxed);
    assert!(!dozes(), "nobody is in line");
    assert!(!View::new(&memory.parts(), &tuning).join(node_of(&memory.parts())));
    assert!(dozes());
    memory.counts.store(counts::CROWDED | counts::BYPASS, Relaxed);
    assert!(dozes());
    memory.counts.store(counts::CROWDED | (2 * counts::BYPASS), Relaxed);
    assert!(!dozes(), "the head's turn has come");
    memory.counts.store(0, Relaxed);
    assert!(!dozes(), "no crowd");
}

/// Somebody waits awake while the word says 2: what it says after each step, and in the end.
fn words_of_one_that_waits_awake(counts: u32) -> (Vec<u32>, u32) {
    let mut words = Vec::new();
    for at in 1.. {
        let memory = Memory::new(WAITED, 0);
        memory.counts.store(counts, Relaxed);
        let tuning = Tuning { bypass: 2, ..tuning::<mutexee::Lock>() };
        assert!(!View::new(&memory.parts(), &tuning).join(node_of(&memory.parts())));
        let parts = memory.parts();
        let view = View::<Threads>::new(&parts, &tuning);
        let taken = torn(at, || view.spin_and_promise(1_000));
        words.push(memory.word.now());
        if let Some(taken) = taken {
            assert!(taken.is_none(), "held");
            return (words, memory.word.now());
        }
    }
    unreachable!("it ends")
}

#[test]
fn who_promises_says_so_and_gives_it_back() {
    let (words, last) = words_of_one_that_waits_awake(counts::BYPASS);
    assert!(words.contains(&PROMISED), "{words:?}");
    assert_eq!(last, WAITED);
}

#[test]
fn nobody_promises_once_the_heads_turn_has_come() {
    for turn in [2 * counts::BYPASS, counts::TURN] {
        let (words, _) = words_of_one_that_waits_awake(turn);
        assert!(words.iter().all(|&word| word == WAITED), "{turn:#x}: {words:?}");
    }
}

#[test]
fn a_head_that_has_timed_out_has_its_turn() {
    let memory = Memory::new(HELD, 0);
    let left = |tuning: &Tuning, now: u64| {
        Threads::pause((now - Threads::now()) as u32);
        let parts = memory.parts();
        let view = View::<Threads>::new(&parts, tuning);
        view.left_ns(&Note { asked_ns: 1, ..Note::default() })
    };
    let tuning = Tuning { timeout_ns: 1_000, ..tuning::<mutexee::Lock>() };
    assert_eq!(left(&Tuning { timeout_ns: 0, ..tuning }, 1), None, "for as long as it takes");
    assert_eq!(
        [left(&tuning, 401), left(&tuning, 1_001), left(&tuning, 2_000)],
        [Some(600), Some(0), Some(0)]
    );
}

#[test]
fn mutexee_stays_awake_unless_too_many_hand_overs_go_to_sleepers() {
    /// How often of 10,000 hand-overs waiters hardly stay awake, if `of_7` in seven go to sleepers.
    fn hardly_awake(percent: u32, of_7: u32) -> usize {
        let memory = Memory::new(HELD, 0);
        let tuning = Tuning { asleep: percent, ..tuning::<mutexee::Lock>() };
        let parts = memory.parts();
        let view = View::<Threads>::new(&parts, &tuning);
        let mut dice = 1_u32;
        let mut hand_over = || {
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let note = Note { asked_ns: u64::from(dice >> 4), ..Note::default() };
            let slept = (dice >> 16) % 7 < of_7;
            <mutexee::Lock as Observe<Threads>>::acquired(&view, &note, slept);
            saturation::is_asleep(&view)
        };
        (0..10_000).filter(|_| hand_over()).count()
    }
    assert!(hardly_awake(30, 1) < 1_000, "the paper's limit");
    assert!(hardly_awake(6, 1) > 9_000, "the authors' code's");
    assert!(hardly_awake(1, 1) > 9_000 && hardly_awake(99, 1) == 0);
    assert!(hardly_awake(70, 6) > 9_000 && hardly_awake(97, 6) < 1_000, "above a half, too");
}
