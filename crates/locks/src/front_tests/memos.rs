//! What front locks note about themselves in the machine's memos: how long they are held, and rests from choices.

use super::{Memory, Vec, tuning};
use crate::front::{Choose, FREE, HELD, Note, Observe, PROMISED, Parts, Rule, Taken, Tuning};
use crate::front::{View, Waiter, acquire, hints};
use crate::front::{cal, fifo, memos, programmed};
use crate::testing::{Threads, run_on};
use lockwright_platform::{Class, Machine, Ordering::Relaxed, Platform, Ptr, Word, hooks};

#[test]
fn a_hold_that_is_measured_marks_the_word_and_counts_as_on_the_fastest_cores() {
    run_on(0);
    let memory = Memory::new(HELD, 0);
    let tuning = tuning::<fifo::Lock>();
    let parts = memory.parts();
    let view = View::<Threads>::new(&parts, &tuning);
    let unknown = memos::usual_hold_ns(&view, Class(0));
    assert_eq!(unknown, 1_000, "a guess");
    let hold = |class, ns| {
        memos::may_measure_hold(&view, Threads::now(), true);
        assert_eq!(memory.word.set(HELD), PROMISED, "its unlock must come by the slow path");
        Threads::pause(ns);
        run_on(class);
        memos::end_of_hold(&view);
        run_on(0);
    };
    hold(1, 7_000);
    assert_eq!(
        memos::usual_hold_ns(&view, Class(0)),
        unknown,
        "it changed to another class meanwhile"
    );
    hold(0, 400);
    assert_eq!(memos::usual_hold_ns(&view, Class(0)), 400);
    hold(0, 1_200);
    assert_eq!(memos::usual_hold_ns(&view, Class(0)), 500, "an eighth of the difference");
    memos::end_of_hold(&view);
    assert_eq!(memos::usual_hold_ns(&view, Class(0)), 500, "not measured");
}

#[test]
fn sections_of_one_lock_are_told_apart_by_where_they_begin() {
    run_on(0);
    let memory = Memory::new(HELD, 0);
    let tuning = tuning::<cal::Lock>();
    Threads::pause(1); // 0 means that nothing is measured
    let parts = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|site| Parts { site, ..memory.parts() });
    let at = |site: usize| View::<Threads>::new(&parts[site], &tuning);
    let hold = |site, ns| {
        memos::may_measure_hold(&at(site), Threads::now(), true);
        memory.word.set(HELD);
        Threads::pause(ns);
        memos::end_of_hold(&at(0)); // whose unlock does not know where it began
    };
    hold(7, 400);
    assert_eq!(memos::usual_hold_ns(&at(8), Class(0)), 400, "as the lock's others");
    hold(8, 9_000);
    assert_eq!(memos::usual_hold_ns(&at(7), Class(0)), 400);
    assert_eq!(memos::usual_hold_ns(&at(8), Class(0)), 9_000);
    assert_eq!(memos::usual_hold_ns(&at(0), Class(0)), 400 - 50 + 9_000 / 8, "all of them");
}

#[test]
fn a_lock_rests_from_choices_in_vain_for_a_bounded_time() {
    run_on(0);
    let memory = Memory::new(HELD, 0);
    let tuning = tuning::<programmed::Lock>();
    let parts = memory.parts();
    let view = View::<Threads>::new(&parts, &tuning);
    let usual = hooks::Node { numa: 1, ..hooks::Node::default() };
    let choose = |times: u32, ns| {
        for _ in 0..times {
            let begun = Threads::now();
            Threads::pause(ns);
            memos::chose_in_vain(&view, begun, memos::kind(&usual));
        }
    };
    let rest = || {
        let begun = Threads::now();
        while memos::backs_off(&view) {
            Threads::pause(100);
        }
        Threads::now() - begun
    };
    choose(15, 400);
    assert_eq!(rest(), 0);
    for power in [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8] {
        choose(1, 400);
        assert_eq!(rest(), 400 << power);
    }
    choose(1, 1_000_000);
    assert_eq!(rest(), 12_500 << 8, "the longest");
    // The clock's low half comes round, and then the end of the rest seems to lie ahead.
    for _ in 0..20 {
        Threads::pause(300_000_000);
        assert_eq!(rest(), 0, "at {} ns", Threads::now());
    }
    choose(1, 400);
    memos::chose(&view);
    assert_eq!(rest(), 0);
    choose(15, 400);
    assert_eq!(rest(), 0, "it begins anew");
    // What was in vain among its like may not be so for a thread of another kind.
    choose(1, 400);
    memos::meets(&view, &hooks::Node { tid: 7, wait_ns: 9, ..usual });
    assert_eq!(rest(), 400);
    for other in [
        hooks::Node { prio: 1, ..usual },
        hooks::Node { tag: 3, ..usual },
        hooks::Node { numa: 0, ..usual },
        hooks::Node { core_class: 1, ..usual },
        hooks::Node { held_locks: 1, ..usual },
        hooks::Node { slo_ns: 1_000, ..usual },
        hooks::Node { flags: hooks::IN_EPOCH, ..usual },
    ] {
        choose(16, 400);
        memos::meets(&view, &other);
        assert_eq!(rest(), 0, "{other:?}");
    }
}

#[test]
fn among_short_sections_hardly_anybody_chooses() {
    run_on(0);
    let memory = Memory::new(HELD, 0);
    let tuning = tuning::<cal::Lock>();
    let parts = memory.parts();
    let view = View::<Threads>::new(&parts, &tuning);
    let note = |asked: u64| Note { asked_ns: 64 * asked, ..Note::default() };
    let node =
        |asked| Waiter::take(memory.parts().word, core::ptr::null(), 0, note(asked), None, None);
    let nodes: Vec<_> = (0..3_200).map(node).collect();
    let choosers = || {
        nodes.iter().filter(|node| <cal::Lock as Choose<Threads>>::is_worth(&view, node)).count()
    };
    assert_eq!(choosers(), 3_200, "how long they are isn't known");
    for (ns, expected) in [(100, 100), (10_000, 3_200)] {
        Threads::pause(1); // 0 means that nothing is measured
        memos::may_measure_hold(&view, Threads::now(), true);
        Threads::pause(ns);
        memos::end_of_hold(&view);
        assert_eq!(choosers(), expected, "{ns}");
    }
}

/// Everybody joins the line, is granted the lock, and measures it.
struct Measures;

impl<P: Machine> Rule<P> for Measures {
    fn arrive(_: &View<'_, P>, _: &mut Note) -> Option<Taken> {
        None
    }
}

impl<P: Machine> Choose<P> for Measures {}

impl<P: Machine> Observe<P> for Measures {
    fn measures(_: &View<'_, P>) -> bool {
        true
    }
}

#[test]
fn a_lock_for_which_hardly_anybody_waits_learns_its_length() {
    run_on(0);
    let memory = Memory::new(FREE, 0);
    let tuning = Tuning { grants_above: 0, budget_ns: 0, ..tuning::<Measures>() };
    let thread = 0_u8;
    let parts = Parts { by: (&raw const thread).cast(), ..memory.parts() };
    let view = View::<Threads>::new(&parts, &tuning);
    let (mut stayed, mut learnt) = (0, 0);
    for _ in 0..200 {
        Threads::pause(64);
        let node = acquire::<Threads, Measures>(&parts, &tuning);
        if memory.word.now() == PROMISED {
            learnt += 1;
            assert!(node.is_null(), "its unlock would not end what it measures");
            Threads::pause(640);
            memos::end_of_hold(&view);
        }
        stayed += u32::from(!node.is_null());
        memory.word.set(FREE);
        memory.tail.store(core::ptr::null_mut(), Relaxed);
        memory.hints.fetch_and(!hints::LENGTH, Relaxed);
    }
    assert_eq!(memos::usual_hold_ns(&view, Class(0)), 640);
    assert!(learnt > 5 && stayed > 100, "{learnt} were measured, {stayed} stayed");
}

/// In a crowd, whoever makes another waiter head leaves the lock to others until that one is awake, for a while after a head was late.
#[test]
fn a_late_head_may_be_passed_until_it_is_awake_and_for_a_while_so_may_the_next_ones() {
    let memory = Memory::new(HELD, 0);
    let tuning = Tuning::for_cpus(2);
    let parts = memory.parts();
    let view = View::<Threads>::new(&parts, &tuning);
    let wait_ms = |ms: u32| Threads::pause(ms * 1_000_000);
    wait_ms(1);
    let comes_after = |us: u32, slept| {
        memos::stops_for_head(&view);
        Threads::pause(us * 500);
        memos::stops_for_head(&view); // not the first to stop
        Threads::pause(us * 500);
        memos::head_has_come(&view, slept);
        memos::is_late(&view)
    };
    assert!(!memos::is_late(&view));
    memos::head_has_come(&view, true);
    assert!(!memos::is_late(&view), "nobody stopped for it");
    assert!(!comes_after(200, true));
    assert!(!comes_after(700, false), "it was awake: the holder took so long");
    assert!(comes_after(700, true));
    wait_ms(90);
    assert!(memos::is_late(&view));
    wait_ms(20);
    assert!(!memos::is_late(&view), "no longer");
}
