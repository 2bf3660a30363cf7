//! `Delegated`: results, panics, nesting, many threads.

use lockwright_sync::{Condvar, Delegate, Delegated, Server};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// More threads than CPUs, some of which yield or sleep in their sections.
#[test]
fn sections_of_64_threads_run_once_each() {
    const THREADS: u64 = 64;
    const EACH: u64 = 500;
    let all = Delegated::new((0_u64, BTreeMap::new()));
    all.delegate(Delegate::Always);
    let elsewhere = AtomicU32::new(0);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (all, elsewhere) = (&all, &elsewhere);
            scope.spawn(move || {
                for round in 0..EACH {
                    let asker = thread::current().id();
                    let before = all.with(|(count, by)| {
                        elsewhere.fetch_add(u32::from(thread::current().id() != asker), Relaxed);
                        *by.entry(number).or_insert(0_u64) += 1;
                        match (number + round) % 97 {
                            0 => thread::sleep(Duration::from_micros(50)),
                            1 => thread::yield_now(),
                            _ => {}
                        }
                        *count += 1;
                        *count - 1
                    });
                    assert!(before < THREADS * EACH);
                }
            });
        }
    });
    let (count, by) = all.into_inner();
    assert_eq!(count, THREADS * EACH);
    assert!(by.len() as u64 == THREADS && by.values().all(|each| *each == EACH), "{by:?}");
    assert_ne!(elsewhere.into_inner(), 0, "no section ran on another thread");
}

#[test]
fn a_panic_goes_to_its_caller_and_the_others_go_on() {
    let data = Delegated::new(Vec::new());
    let start = Barrier::new(8);
    thread::scope(|scope| {
        for number in 0..8 {
            let (data, start) = (&data, &start);
            scope.spawn(move || {
                start.wait();
                for round in 0..200 {
                    let run = || {
                        data.with(|all: &mut Vec<u32>| {
                            all.push(number);
                            assert!(round % 10 != number, "{number}");
                        });
                    };
                    let panicked = catch_unwind(AssertUnwindSafe(run)).err();
                    let says = panicked.map(|cause| *cause.downcast::<String>().unwrap());
                    assert_eq!(says, (round % 10 == number).then(|| number.to_string()));
                }
            });
        }
    });
    assert_eq!(data.into_inner().len(), 1600);
}

#[test]
fn a_section_may_ask_for_other_data_but_not_for_its_own() {
    let (one, other) = (Delegated::new(1), Delegated::new(2));
    assert_eq!(one.with(|one| *one + other.with(|other| *other)), 3);
    let nested =
        catch_unwind(AssertUnwindSafe(|| one.with(|_| other.with(|_| one.with(|one| *one)))));
    let says = nested.unwrap_err().downcast::<&str>().unwrap();
    assert!(says.contains("would wait for itself"), "{says}");
    assert_eq!(one.with(|one| *one), 1, "it goes on");
}

/// Whichever thread runs the section in the middle.
#[test]
fn it_is_refused_through_other_data_that_others_use_too() {
    let (one, other) = (Delegated::new(1), Delegated::new(2));
    let over = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while over.load(Relaxed) == 0 {
                other.with(|other| *other += 1);
            }
        });
        for _ in 0..2_000 {
            let nested = catch_unwind(AssertUnwindSafe(|| {
                one.with(|_| other.with(|_| one.with(|one| *one)))
            }));
            assert!(nested.is_err());
        }
        over.store(1, Relaxed);
    });
}

#[test]
fn results_are_moved_and_borrowed_data_are_seen() {
    let words = Delegated::new(String::new());
    let part = "abc".to_owned();
    let whole: Box<String> = words.with(|all| {
        all.push_str(&part);
        Box::new(all.clone())
    });
    assert_eq!(*whole, part);
    let mut words = words;
    words.get_mut().clear();
    assert!(words.into_inner().is_empty());
}

/// Whoever runs them, and while that changes.
#[test]
fn sections_run_once_each_while_their_runner_changes() {
    const THREADS: u32 = 8;
    const EACH: u32 = 20_000;
    let servers = [Server::start(2, None).unwrap(), Server::start(1, None).unwrap()];
    let data = Delegated::new(0_u32);
    let is_over = AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let ways = [
                Delegate::To(&servers[0]),
                Delegate::Always,
                Delegate::To(&servers[1]),
                Delegate::Never,
                Delegate::IfFaster,
            ];
            for way in ways.iter().cycle() {
                data.delegate(*way);
                thread::sleep(Duration::from_micros(300));
                if is_over.load(Relaxed) == THREADS {
                    break;
                }
            }
        });
        for _ in 0..THREADS {
            scope.spawn(|| {
                for round in 0..EACH {
                    if round % 50 == 0 {
                        *data.lock() += 1;
                    } else {
                        data.with(|count| *count += 1);
                    }
                }
                is_over.fetch_add(1, Relaxed);
            });
        }
    });
    for server in servers {
        server.stop();
    }
    assert_eq!(data.into_inner(), THREADS * EACH);
}

/// A server has two locks. A section of one of them sleeps; those of the other run meanwhile, and on the server.
#[test]
fn a_section_that_blocks_does_not_stop_the_server() {
    let server = Server::start(2, None).unwrap();
    let (slow, fast) = (Delegated::new(Vec::new()), Delegated::new(0_u32));
    slow.delegate(Delegate::To(&server));
    fast.delegate(Delegate::To(&server));
    let (begun, ran) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let here = thread::current().id();
            // Until the server runs it: the server may be about to sleep, and then the thread runs its own.
            while !slow.with(|all| {
                let elsewhere = thread::current().id() != here;
                if elsewhere {
                    begun.store(1, Relaxed);
                    while ran.load(Relaxed) < 1_000 {
                        thread::sleep(Duration::from_millis(1));
                    }
                    all.push(1);
                }
                elsewhere
            }) {}
        });
        while begun.load(Relaxed) == 0 {
            thread::yield_now();
        }
        // The slow section ends only after these.
        let here = thread::current().id();
        let mut elsewhere = 0;
        while ran.load(Relaxed) < 1_000 || elsewhere == 0 {
            elsewhere += fast.with(|count| {
                *count += 1;
                u32::from(thread::current().id() != here)
            });
            ran.fetch_add(1, Relaxed);
        }
    });
    server.stop();
    assert_eq!(slow.into_inner(), [1]);
}

#[test]
fn a_thread_that_holds_the_data_waits_for_a_condition() {
    let (queue, filled) = (Delegated::new(Vec::new()), Condvar::new());
    queue.delegate(Delegate::Always);
    thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            let mut sum = 0;
            for _ in 0..1_000 {
                let mut queue = queue.lock();
                filled.wait_while(&mut queue, |queue| queue.is_empty());
                sum += queue.pop().unwrap();
            }
            sum
        });
        for number in 0..1_000_u64 {
            queue.with(|queue| queue.push(number));
            filled.notify_one();
        }
        assert_eq!(consumer.join().unwrap(), 499_500);
    });
}

#[test]
fn a_thread_may_give_up() {
    let data = Delegated::new(0);
    thread::scope(|scope| {
        let held = data.lock();
        let late = scope.spawn(|| data.try_lock_for(Duration::from_millis(1)).is_none());
        assert!(late.join().unwrap());
        drop(held);
        assert!(data.try_lock_for(Duration::from_secs(60)).is_some());
    });
}

/// It would wait for itself.
#[test]
fn a_thread_that_holds_the_data_is_refused() {
    let data = Delegated::new(0);
    let held = data.lock();
    let refused = catch_unwind(AssertUnwindSafe(|| data.with(|count| *count += 1)));
    assert!(refused.is_err());
    drop(held);
    assert_eq!(data.into_inner(), 0);
}

/// Sections of two locks block at once, in two of a server's three threads. A third lock's sections run there, too.
#[test]
fn two_sections_that_block_do_not_stop_the_server() {
    let server = Server::start(3, None).unwrap();
    let (slow, fast) = ([Delegated::new(()), Delegated::new(())], Delegated::new(()));
    slow.iter().for_each(|data| data.delegate(Delegate::To(&server)));
    fast.delegate(Delegate::To(&server));
    let (blocked, is_over) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for data in &slow {
            let (blocked, is_over) = (&blocked, &is_over);
            scope.spawn(move || {
                let here = thread::current().id();
                // Until the server runs it: the server may be about to sleep, and then the thread runs its own.
                while !data.with(|()| {
                    let elsewhere = thread::current().id() != here;
                    if elsewhere {
                        blocked.fetch_add(1, Relaxed);
                        while is_over.load(Relaxed) == 0 {
                            thread::sleep(Duration::from_millis(1));
                        }
                    }
                    elsewhere
                }) {}
            });
        }
        while blocked.load(Relaxed) < 2 {
            thread::yield_now();
        }
        let here = thread::current().id();
        let begun = Instant::now();
        while !fast.with(|()| thread::current().id() != here) {
            if begun.elapsed() > Duration::from_secs(60) {
                is_over.store(1, Relaxed);
                panic!("no thread of the server took over");
            }
        }
        is_over.store(1, Relaxed);
    });
    server.stop();
}

/// A section that a server runs asks for other data of the same server.
#[test]
fn sections_of_one_server_may_be_nested() {
    let server = Server::start(1, None).unwrap();
    let (outer, inner) = (Delegated::new(0), Delegated::new(0));
    outer.delegate(Delegate::To(&server));
    inner.delegate(Delegate::To(&server));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    outer.with(|count| {
                        *count += inner.with(|all| {
                            *all += 1;
                            1
                        })
                    });
                }
            });
        }
    });
    server.stop();
    assert_eq!((outer.into_inner(), inner.into_inner()), (4_000, 4_000));
}

/// The last section has been answered, but the server may still be about to leave.
#[test]
fn data_may_move_when_their_calls_have_returned() {
    let server = Server::start(1, None).unwrap();
    for round in 0..2_000 {
        let data = Delegated::new(round);
        data.delegate(Delegate::To(&server));
        data.with(|count| *count += 1);
        let moved = Box::new(data);
        moved.with(|count| *count += 1);
        assert_eq!(moved.into_inner(), round + 2);
    }
    server.stop();
}
