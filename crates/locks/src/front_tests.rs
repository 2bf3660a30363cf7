//! What the front locks' words and seats say, step by step.

extern crate std;

mod memos;

use crate::front::{Arrived, barging, fifo, malthusian, mood, mutexee, saturation, side};
use crate::front::{
    CHAINED, Choose, FREE, GRANTED, HELD, Note, Observe, PROMISED, Parts, Rule, SOMEBODY, Seat,
    Tuning, View, WAITED, Waiter, Word0, acquire, release,
};
use crate::testing::{Threads, torn};
use core::cell::Cell;
use core::ptr::{null, null_mut};
use lockwright_platform::{Machine, Ordering::Relaxed, Platform, Ptr, Word};
use std::vec::Vec;

pub(crate) struct Memory {
    pub(crate) word: Word0<Threads>,
    side: <Threads as Platform>::Word,
    mood: <Threads as Platform>::Word,
    pub(crate) tail: <Threads as Platform>::Ptr<Waiter<Threads>>,
}

impl Memory {
    pub(crate) fn new(word: u32, mood: u32) -> Self {
        let new = <<Threads as Platform>::Word as Word>::new;
        Self {
            word: Word0::of(new(word)),
            side: new(0),
            mood: new(mood),
            tail: Ptr::new(null_mut()),
        }
    }

    pub(crate) fn parts(&self) -> Parts<'_, Threads> {
        let Self { word, side, mood, tail } = self;
        Parts {
            word,
            side,
            mood,
            by: core::ptr::null(),
            thread: 0,
            kind: 0,
            site: 0,
            tail,
            owner: None,
        }
    }
}

fn tuning<R: Rule<Threads>>() -> Tuning {
    R::defaults(Tuning::for_cpus(2))
}

fn node_of<'a>(parts: &Parts<'_, Threads>) -> &'a Waiter<Threads> {
    Waiter::take(parts.word, parts.by, parts.thread, Note::default(), None)
}

/// Everybody joins the line, even if the lock is free.
struct Joins;

impl<P: Machine> Rule<P> for Joins {
    fn arrive(_: &View<'_, P>) -> Arrived {
        Arrived::Joins(Note::default())
    }
}

impl<P: Machine> Choose<P> for Joins {
    const HOLDS_BACK: bool = true;
}

impl<P: Machine> Observe<P> for Joins {}

/// What a thread has said about itself, and the line's tail at that moment.
struct Said<'a> {
    memory: &'a Memory,
    is_joining: Cell<bool>,
    node: Cell<*const Waiter<Threads>>,
    is_beside: Cell<bool>,
}

impl<'a> Said<'a> {
    fn nothing(memory: &'a Memory) -> Self {
        let (is_joining, node, is_beside) = (Cell::new(false), Cell::new(null()), Cell::new(false));
        Self { memory, is_joining, node, is_beside }
    }
}

impl Seat<Threads> for Said<'_> {
    fn joins(&self) {
        assert!(self.memory.tail.load(Relaxed).is_null(), "it has joined, and not said so before");
        self.is_joining.set(true);
    }

    fn sits(&self, node: *const Waiter<Threads>) {
        let is_tail = core::ptr::eq(self.memory.tail.load(Relaxed), node);
        assert!(node.is_null() || self.is_joining.get() && is_tail, "not the node that joined");
        self.is_joining.set(false);
        self.node.set(node);
    }

    fn is_beside(&self, counted: bool) {
        self.is_beside.set(counted);
    }
}

#[test]
fn hints_that_glibcs_code_has_spoilt_heal() {
    let hints = mood::NAPPING | mood::LENGTH;
    let memory = Memory::new(FREE, hints | mood::STEPS);
    acquire::<Threads, Joins>(memory.parts(), &tuning::<Joins>(), None);
    assert_eq!(memory.word.now(), HELD);
    assert_eq!(memory.mood.load(Relaxed) & hints, 0);
}

#[test]
fn who_joins_says_so_before_and_after() {
    let memory = Memory::new(FREE, 0);
    let said = Said::nothing(&memory);
    for at in 1.. {
        memory.word.give_alone();
        memory.tail.store(null_mut(), Relaxed);
        said.is_joining.set(false);
        said.node.set(null());
        let acquires =
            || acquire::<Threads, Joins>(memory.parts(), &tuning::<Joins>(), Some(&said));
        let is_done = torn(at, acquires).is_some();
        let is_in_line = !memory.tail.load(Relaxed).is_null();
        let is_known = said.is_joining.get() || !said.node.get().is_null();
        assert!(is_known || !is_in_line || memory.word.now() == HELD, "torn at {at}");
        if is_done {
            assert!(at > 10, "{at} steps: it did nothing");
            return;
        }
    }
}

#[test]
fn who_is_torn_beside_the_line_can_be_counted_out() {
    let (mut beside, mut left_behind) = (0, 0);
    for at in 1..40 {
        let memory = Memory::new(HELD, 0);
        let (said, tuning) = (Said::nothing(&memory), tuning::<malthusian::Lock>());
        let waits = || acquire::<Threads, malthusian::Lock>(memory.parts(), &tuning, Some(&said));
        assert!(torn(at, waits).is_none(), "the lock was held");
        let view = View::new(memory.parts(), &tuning);
        if said.is_beside.get() {
            beside += 1;
            assert_eq!(view.contenders(), 1, "torn at {at}");
            view.count_out();
        }
        left_behind += view.contenders();
    }
    assert!(beside > 0, "nobody waited beside the line");
    // Between the two steps of counting out: better one too many than another thread missing.
    assert_eq!(left_behind, 2);
}

#[test]
fn those_beside_the_line_stay_behind_at_a_fork() {
    let memory = Memory::new(HELD, 0);
    let era = |era| Tuning { era, ..tuning::<malthusian::Lock>() };
    let (parents, childs) = (era(0), era(1));
    let parent = View::<Threads>::new(memory.parts(), &parents);
    assert!(parent.count_in(2) && parent.count_in(2) && !parent.count_in(2));
    let child = View::<Threads>::new(memory.parts(), &childs);
    assert_eq!((parent.contenders(), child.contenders()), (2, 0));
    assert!(child.count_in(2) && child.count_in(2) && !child.count_in(2));
    parent.count_out(); // a thread that forked in a signal handler while it waited
    assert_eq!(child.contenders(), 2);
    child.count_out();
    child.count_out();
    assert_eq!(memory.side.load(Relaxed) & side::SPINNERS, 0);
}

#[test]
fn a_node_that_is_in_no_line_any_more_releases_the_word_and_clears_the_owner() {
    let memory = Memory::new(CHAINED, 0);
    let owner = <<Threads as Platform>::Word as Word>::new(SOMEBODY);
    let parts = || Parts { owner: Some(&owner), ..memory.parts() };
    let node = node_of(&parts());
    node.gate.store(GRANTED, Relaxed);
    // SAFETY: it says that it holds the lock, and is nobody else's.
    unsafe { release(parts(), &tuning::<fifo::Lock>(), node) };
    assert_eq!((memory.word.now(), owner.load(Relaxed)), (FREE, 0));
}

#[test]
fn who_dozes_marks_the_word_in_a_crowd_and_not_past_the_heads_turn() {
    let memory = Memory::new(HELD, 0);
    let tuning = Tuning { bypass: 2, ..tuning::<barging::Lock>() };
    let view = View::<Threads>::new(memory.parts(), &tuning);
    let dozes = || {
        memory.word.take_alone();
        assert!(barging::doze(&view, 2, 1_000).is_none(), "held");
        memory.word.now() == WAITED
    };
    memory.side.store(side::CROWDED, Relaxed);
    assert!(!dozes(), "nobody is in line");
    assert!(!View::new(memory.parts(), &tuning).join(node_of(&memory.parts())));
    assert!(dozes());
    memory.side.store(side::CROWDED | side::BYPASS, Relaxed);
    assert!(dozes());
    memory.side.store(side::CROWDED | (2 * side::BYPASS), Relaxed);
    assert!(!dozes(), "the head's turn has come");
    memory.side.store(0, Relaxed);
    assert!(!dozes(), "no crowd");
}

/// Somebody waits awake while the word says 2: what it says after each step, and in the end.
fn words_of_one_that_waits_awake(side: u32) -> (Vec<u32>, u32) {
    let mut words = Vec::new();
    for at in 1.. {
        let memory = Memory::new(WAITED, 0);
        memory.side.store(side, Relaxed);
        let tuning = Tuning { bypass: 2, ..tuning::<mutexee::Lock>() };
        assert!(!View::new(memory.parts(), &tuning).join(node_of(&memory.parts())));
        let view = View::<Threads>::new(memory.parts(), &tuning);
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
    let (words, last) = words_of_one_that_waits_awake(side::BYPASS);
    assert!(words.contains(&PROMISED), "{words:?}");
    assert_eq!(last, WAITED);
}

#[test]
fn nobody_promises_once_the_heads_turn_has_come() {
    for turn in [2 * side::BYPASS, side::TURN] {
        let (words, _) = words_of_one_that_waits_awake(turn);
        assert!(words.iter().all(|&word| word == WAITED), "{turn:#x}: {words:?}");
    }
}

#[test]
fn a_head_that_has_timed_out_has_its_turn() {
    let memory = Memory::new(HELD, 0);
    let left = |tuning: &Tuning, now: u64| {
        Threads::pause((now - Threads::now()) as u32);
        let view = View::<Threads>::new(memory.parts(), tuning);
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
        let view = View::<Threads>::new(memory.parts(), &tuning);
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
