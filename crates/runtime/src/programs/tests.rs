//! Policies come, answer, and go, in this process.

#![cfg(target_arch = "x86_64")]

use super::*;
use crate::thread;
use core::sync::atomic::AtomicBool;
use lockwright_contract::post::Posts;
use lockwright_contract::post::remote::{Answer, Memory, OwnMemory, RemotePosts};
use lockwright_contract::programs::image::NAME;
use lockwright_contract::programs::mailbox::{SAMPLE, TOO_SLOW};
use lockwright_contract::programs::maps::{Layout, MapKind, MapSpec};
use lockwright_locks::posix;
use lockwright_native::Native;
use lockwright_platform::Programmable;
use lockwright_platform::hooks::{Context, LENGTHS, Node};
use std::string::String;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use std::vec::Vec;
use std::{format, fs, vec};

/// One test at a time: they share the process's slots, and its table, of which there is none yet.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    thread::learn();
    let alone = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    crate::policy::forget();
    alone
}

/// `mov eax, answer; ret`.
pub(crate) fn says(answer: u8) -> Vec<u8> {
    vec![0xb8, answer, 0, 0, 0, 0xc3]
}

/// `mov ecx, times; again: dec ecx; jnz again; mov eax, 1; ret`.
fn takes(times: u32) -> Vec<u8> {
    let mut code = vec![0xb9];
    code.extend(times.to_le_bytes());
    code.extend([0xff, 0xc9, 0x75, 0xfc]);
    code.extend(says(1));
    code
}

/// `mov rax, [rsi]; mov rax, [rax + offset]; ret`: a word of the maps' memory.
fn reads(offset: u32) -> Vec<u8> {
    let mut code = vec![0x48, 0x8b, 0x06, 0x48, 0x8b, 0x80];
    code.extend(offset.to_le_bytes());
    code.push(0xc3);
    code
}

pub(crate) fn image(hooks: &[(Hook, Vec<u8>)], data_len: usize, maps: u32) -> Vec<u8> {
    let mut header = ImageHeader {
        magic: MAGIC,
        machine: machine() as u32,
        len: 0,
        data_len: data_len as u64,
        hooks: [0; 8],
        maps,
        version: 7,
        reads: LENGTHS,
        unused: 0,
        name: [0; NAME],
    };
    header.name[..4].copy_from_slice(b"test");
    let mut code = Vec::new();
    for (hook, bytes) in hooks {
        header.hooks[*hook as usize] = (size_of::<ImageHeader>() + code.len()) as u32;
        code.extend(bytes);
        code.resize(code.len().next_multiple_of(16), 0xcc);
    }
    header.len = (size_of::<ImageHeader>() + code.len()) as u32;
    // SAFETY: a struct of numbers.
    let bytes = unsafe {
        core::slice::from_raw_parts((&raw const header).cast::<u8>(), size_of::<ImageHeader>())
    };
    [bytes, &code].concat()
}

/// A request's bytes.
pub(crate) fn request(what: u32, slot: u32, code: &[u8], pieces: &[u8]) -> Vec<u8> {
    let (code_len, pieces_len) = (code.len() as u32, pieces.len() as u32);
    let budget_ns = lockwright_programs.slots[0].budget_ns.load(Relaxed);
    let request = Request { what, slot, code_len, pieces_len, budget_ns, leased: 0 };
    let mut bytes = [&request.bytes()[..], code].concat();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.extend(pieces);
    bytes
}

// SAFETY: by `alone` nobody else posts; and the room is written only here.
static OWN: OwnMemory = unsafe { OwnMemory::new() };

fn remote(posts: &Posts) -> RemotePosts<'static, OwnMemory> {
    RemotePosts::new(&OWN, core::ptr::from_ref(posts).expose_provenance() as u64)
}

/// Posts what `write` writes, as the command does.
pub(crate) fn posted(posts: &Posts, write: impl FnOnce()) -> Answer {
    let Ok(said) = remote(posts).post(Duration::ZERO, |writing| {
        writing.replace()?;
        write();
        Ok(true)
    });
    said
}

fn posted_all(requests: &[u8]) -> Answer {
    let mailbox = &lockwright_programs;
    posted(&mailbox.posts, || {
        let Ok(()) = OWN.write(mailbox.room.0.get().expose_provenance() as u64, requests);
        mailbox.len.store(requests.len() as u32, Relaxed);
    })
}

/// In a child: posts a policy that nobody takes up yet.
pub(crate) fn post_one() {
    budget(1_000_000_000);
    posted_all(&request(LOAD, 12, &image(&[(Hook::CmpNode, says(1))], 0, 0), &[]));
}

/// In a child: likewise, where there is one, and one that has gone.
pub(crate) fn post_another() {
    load_it(12, &[(Hook::CmpNode, says(1))]).unwrap();
    post_one();
}

/// In a child.
pub(crate) fn asks_about_scheduling() {
    let own = scheduling::Scheduling::of(0);
    let is_set = own.is_some_and(|own| own.set(0));
    let is_gone = cells::is_gone(thread::id());
    assert!(!is_gone || is_set);
}

/// Posts as the command does, until it is taken up. `Err`: why the last request was refused.
pub(crate) fn post_all(requests: &[u8]) -> Result<(), String> {
    let mailbox = &lockwright_programs;
    let mut said = posted_all(requests);
    // This thread takes it up; or a thread of another test that waits for a mutex has begun to.
    loop {
        match said {
            Answer::Done => return Ok(()),
            Answer::Refused(why) => return Err(String::from_utf8(why.text().to_vec()).unwrap()),
            Answer::Nothing => take(),
            said => panic!("{said:?}"),
        }
        std::thread::yield_now();
        let Ok(now) = remote(&mailbox.posts).answer(mailbox.posts.seen());
        said = now;
    }
}

fn post(what: u32, slot: u32, code: &[u8], pieces: &[u8]) -> Result<(), String> {
    post_all(&request(what, slot, code, pieces))
}

/// Policies that these tests load may take so long.
pub(crate) fn budget(ns: u32) {
    lockwright_programs.slots[0].budget_ns.store(ns, Relaxed); // that slot is never used
}

pub(crate) fn load_it(slot: u32, hooks: &[(Hook, Vec<u8>)]) -> Result<(), String> {
    budget(1_000_000_000);
    post(LOAD, slot, &image(hooks, 0, 0), &[])
}

pub(crate) fn unload_it(slot: u32) {
    post(UNLOAD, slot, &[], &[]).unwrap();
}

pub(crate) fn ask_it(slot: u32, hook: Hook) -> u64 {
    Native::ask(slot, hook, &Context::default())
}

#[test]
fn a_policy_comes_answers_changes_and_goes() {
    let _alone = alone();
    assert_eq!((Native::hooks(3), ask_it(3, Hook::CmpNode)), (0, 0));
    load_it(3, &[(Hook::CmpNode, says(1)), (Hook::SkipShuffle, says(5))]).unwrap();
    assert_eq!(Native::hooks(3), Hook::CmpNode.bit() | Hook::SkipShuffle.bit() | LENGTHS);
    let answers =
        |slot| [Hook::CmpNode, Hook::SkipShuffle, Hook::RwBias].map(|hook| ask_it(slot, hook));
    assert_eq!((answers(3), answers(2)), ([1, 5, 0], [0; 3]));
    let info = &lockwright_programs.slots[3];
    assert_eq!(info.state.load(Relaxed) % TURN, LOADED);
    assert_eq!(
        (info.version.load(Relaxed), info.name[0].load(Relaxed)),
        (7, u64::from(u32::from_le_bytes(*b"test")))
    );
    load_it(3, &[(Hook::RwBias, says(2))]).unwrap();
    assert_eq!((answers(3), Native::hooks(3)), ([0, 0, 2], Hook::RwBias.bit() | LENGTHS));
    unload_it(3);
    assert_eq!((answers(3), Native::hooks(3)), ([0; 3], 0));
    assert_eq!(info.state.load(Relaxed) % TURN, FREE);
    assert_eq!(lockwright_programs.retired.load(Relaxed), 0);
}

#[test]
fn the_last_policy_that_decides_about_readers_does() {
    let _alone = alone();
    let load = |slot, hook| load_it(slot, &[(hook, says(1))]).unwrap();
    assert_eq!(for_readers(), 0);
    for (slot, hook, decides) in
        [(4, Hook::RwBias, 4), (2, Hook::RwBias, 2), (3, Hook::CmpNode, 2), (2, Hook::CmpNode, 4)]
    {
        load(slot, hook);
        assert_eq!(for_readers(), decides);
    }
    load(2, Hook::RwBias);
    unload_it(2);
    assert_eq!(for_readers(), 4);
    // A policy that is taken off decides no more.
    budget(1);
    let slow = [(Hook::RwBias, says(1)), (Hook::SkipShuffle, takes(10_000))];
    post(LOAD, 2, &image(&slow, 0, 0), &[]).unwrap();
    assert_eq!(for_readers(), 2);
    while lockwright_programs.slots[2].state.load(Relaxed) % TURN == LOADED {
        ask_it(2, Hook::SkipShuffle);
    }
    assert_eq!(for_readers(), 4);
    unload_it(2);
    [3, 4].into_iter().for_each(unload_it);
    assert_eq!(for_readers(), 0);
}

#[test]
fn what_is_posted_is_done_in_turn_and_the_last_is_answered() {
    let _alone = alone();
    budget(1_000_000_000);
    let says = |answer| image(&[(Hook::CmpNode, says(answer))], 0, 0);
    let load = |slot, answer| request(LOAD, slot, &says(answer), &[]);
    let damaged = request(LOAD, 3, &says(3)[..40], &[]);
    let void = request(VOID, 1, &says(4), &[]);
    let all = [load(1, 5), load(2, 6), damaged.clone(), void, load(1, 7)].concat();
    assert_eq!(post_all(&all), Ok(()));
    assert_eq!([1, 2, 3].map(|slot| ask_it(slot, Hook::CmpNode)), [7, 6, 0]);
    // Once more: nothing changes.
    assert_eq!(post_all(&all), Ok(()));
    assert_eq!([1, 2, 3].map(|slot| ask_it(slot, Hook::CmpNode)), [7, 6, 0]);
    let end = [request(UNLOAD, 1, &[], &[]), request(UNLOAD, 2, &[], &[]), damaged].concat();
    assert_eq!(post_all(&end).unwrap_err(), "the policy is too large");
    let half = &load(1, 5)[..100];
    assert_eq!(post_all(half).unwrap_err().as_bytes(), UNKNOWN);
    assert_eq!(post_all(&[]).unwrap_err().as_bytes(), UNKNOWN);
    assert_eq!([1, 2, 3].map(|slot| ask_it(slot, Hook::CmpNode)), [0; 3]);
    assert_eq!((mappings(), lockwright_programs.retired.load(Relaxed)), (0, 0));
}

#[test]
fn what_is_replaced_while_it_is_read_is_dropped() {
    let _alone = alone();
    let good = image(&[(Hook::CmpNode, says(1))], 0, 0);
    let bytes = request(LOAD, 1, &good, &[]);
    let (request, code, pieces, _) = Request::first(&bytes).unwrap();
    let post = lockwright_programs.posts.seen();
    let obey = |taken| obey(&request, code, pieces, taken, &mut Refusal::new());
    assert_eq!((obey(post.next()), ask_it(1, Hook::CmpNode)), (None, 0));
    assert_eq!((obey(post), ask_it(1, Hook::CmpNode)), (Some(()), 1));
    let unload = Request { what: UNLOAD, ..request };
    let obey = |taken| super::obey(&unload, &[], &[], taken, &mut Refusal::new());
    assert_eq!((obey(post.next()), ask_it(1, Hook::CmpNode)), (None, 1));
    assert_eq!((obey(post), ask_it(1, Hook::CmpNode)), (Some(()), 0));
    unload_it(1);
    assert_eq!(mappings(), 0);
}

#[test]
fn what_is_not_a_policy_is_refused_and_leaves_nothing() {
    let _alone = alone();
    let good = image(&[(Hook::CmpNode, says(1))], 0, 0);
    let with = |at: usize, byte: u8| {
        let mut bad = good.clone();
        bad[at] = byte;
        bad
    };
    let before = mappings();
    for (slot, code, pieces, why) in [
        (0, good.clone(), vec![], "it knows no such request"),
        (16, good.clone(), vec![], "it knows no such request"),
        (1, good[..40].to_vec(), vec![], "the policy is too large"),
        (1, with(0, b'x'), vec![], "it runs with another version of lockwright than the command"),
        (1, with(8, 183), vec![], "the policy was compiled for another kind of processor"),
        (1, with(25, 0xff), vec![], "the policy is damaged"),
        (1, good.clone(), vec![0; 8], ""),
        (
            1,
            good.clone(),
            vec![1, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0],
            "the policy is damaged",
        ),
        (1, image(&[(Hook::CmpNode, says(1))], 256, 1), vec![], "the policy is damaged"),
        (
            1,
            image(&[(Hook::CmpNode, says(1))], LARGEST_DATA + 1, 1),
            vec![],
            "the policy's maps are too large",
        ),
    ] {
        let answer = post(LOAD, slot, &code, &pieces);
        assert_eq!(answer.err().unwrap_or_default(), why);
    }
    unload_it(1);
    assert_eq!(mappings(), before);
}

/// How many pieces of memory without a file are executable.
pub(crate) fn mappings() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.contains(" r-xp 00000000 00:00 0") && !line.contains("["))
        .count()
}

#[test]
fn maps_are_filled_and_hooks_reach_them() {
    let _alone = alone();
    let spec = MapSpec { kind: MapKind::Array, key_size: 4, value_size: 8, max_entries: 1 };
    let specs = [spec];
    let layout = Layout::new(&specs, 1).unwrap();
    let mut data = vec![0; layout.size()];
    layout.write(&mut data);
    data[128..136].copy_from_slice(&42_u64.to_le_bytes());
    let mut pieces = Vec::new();
    for (at, len) in [(0_u32, 128_u32), (128, 5)] {
        pieces.extend([at.to_le_bytes(), len.to_le_bytes()].concat());
        pieces.extend(&data[at as usize..(at + len) as usize]);
        pieces.resize(pieces.len().next_multiple_of(8), 0);
    }
    budget(1_000_000_000);
    post(LOAD, 4, &image(&[(Hook::CmpNode, reads(128))], data.len(), 1), &pieces).unwrap();
    assert_eq!(ask_it(4, Hook::CmpNode), 42);
    assert_eq!(mappings(), 1, "the code, and not the maps");
    unload_it(4);
    assert_eq!(mappings(), 0);
}

#[test]
fn a_hook_under_a_hook_is_not_asked() {
    let _alone = alone();
    load_it(2, &[(Hook::CmpNode, says(1))]).unwrap();
    assert_eq!(ask_it(2, Hook::CmpNode), 1);
    let cell = cells::own().unwrap();
    cell.inside.store(cells::INSIDE | 30, Relaxed);
    assert_eq!(ask_it(2, Hook::CmpNode), 0);
    cell.inside.store(0, Relaxed);
    assert_eq!(ask_it(2, Hook::CmpNode), 1);
    assert_eq!(lockwright_programs.slots[2].unasked.load(Relaxed), 1);
    unload_it(2);
}

#[test]
fn a_policy_stays_mapped_while_a_thread_is_in_it() {
    let _alone = alone();
    load_it(5, &[(Hook::CmpNode, says(1))]).unwrap();
    // SAFETY: loaded above.
    let mark = unsafe { (*entries::current(5)).mark() };
    let (send, receive) = std::sync::mpsc::channel::<()>();
    let (said, heard) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        cells::own().unwrap().inside.store(mark, Relaxed);
        said.send(()).unwrap();
        let _ = receive.recv();
        cells::own().unwrap().inside.store(0, Relaxed); // joined
    });
    heard.recv().unwrap();
    unload_it(5);
    assert_eq!((mappings(), lockwright_programs.retired.load(Relaxed)), (1, 1));
    assert_eq!(ask_it(5, Hook::CmpNode), 0);
    drop(send);
    thread.join().unwrap();
    unload_it(5);
    assert_eq!((mappings(), lockwright_programs.retired.load(Relaxed)), (0, 0));
}

#[test]
fn a_slow_policy_is_taken_off_and_may_come_again() {
    let _alone = alone();
    budget(1000);
    let slow = image(&[(Hook::SkipShuffle, takes(300_000)), (Hook::CmpNode, says(1))], 0, 0);
    post(LOAD, 6, &slow, &[]).unwrap();
    let info = &lockwright_programs.slots[6];
    let end = Instant::now() + Duration::from_secs(60);
    while info.state.load(Relaxed) % TURN == LOADED {
        assert!(Instant::now() < end);
        ask_it(6, Hook::SkipShuffle);
        ask_it(6, Hook::CmpNode);
    }
    assert_eq!(info.state.load(Relaxed) % TURN, TOO_SLOW);
    assert_eq!(info.slow_hook.load(Relaxed), Hook::SkipShuffle as u32);
    assert!(info.slow_ns.load(Relaxed) > 1000);
    assert_eq!((Native::hooks(6), ask_it(6, Hook::CmpNode)), (0, 0));
    load_it(6, &[(Hook::CmpNode, says(1))]).unwrap();
    assert_eq!(ask_it(6, Hook::CmpNode), 1);
    unload_it(6);
    assert_eq!(mappings(), 0);
}

#[test]
fn threads_ask_while_policies_come_and_go() {
    let _alone = alone();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let mut sum = 0;
                    while !is_over.load(Relaxed) {
                        let answer = ask_it(7, Hook::CmpNode);
                        assert!(answer <= 2);
                        sum += answer;
                        ask_it(7, Hook::LockAcquired);
                        ask_it(7, Hook::LockRelease);
                    }
                    sum
                })
            })
            .collect();
        for turn in 0..1000 {
            let hooks = [Hook::CmpNode, Hook::LockAcquired, Hook::LockRelease];
            let answer = if turn % 3 == 0 { takes(1000) } else { says(2) };
            let loaded = load_it(7, &hooks.map(|hook| (hook, answer.clone())));
            // Threads that lost their CPU in a hook may keep some.
            assert!(loaded.is_ok() || loaded.unwrap_err().starts_with("threads may still be in"));
            if turn % 2 == 0 {
                unload_it(7);
            }
        }
        // Whoever is slow gets an answer, too.
        load_it(7, &[(Hook::CmpNode, says(1))]).unwrap();
        while lockwright_programs.slots[7].asked[0].load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        is_over.store(true, Relaxed);
        assert!(threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>() > 0);
    });
    unload_it(7);
    assert_eq!((mappings(), lockwright_programs.retired.load(Relaxed)), (0, 0));
}

#[test]
fn what_a_thread_measured_in_an_earlier_policy_does_not_count() {
    let _alone = alone();
    let ask = |hook| ask_it(5, hook);
    load_it(5, &[(Hook::CmpNode, says(1))]).unwrap();
    let entry = entries::current(5);
    let cell = cells::own().unwrap();
    // As if this thread were in it, and another one loaded the next one.
    // SAFETY: loaded above; it stays mapped while a thread is in it.
    let entry = unsafe { &*entry };
    cell.inside.store(entry.mark(), Relaxed);
    load_it(5, &[(Hook::CmpNode, says(2))]).unwrap();
    cell.until_sample.store(0, Relaxed);
    assert_eq!(ask::run(cell, entry, Hook::CmpNode, &Context::default()), 1);
    cell.inside.store(0, Relaxed);
    let counts = || lockwright_programs.slots[5].samples[Hook::CmpNode as usize].load(Relaxed);
    assert_eq!(counts(), 0);
    cell.until_sample.store(0, Relaxed);
    assert_eq!((ask(Hook::CmpNode), counts()), (2, 1));
    unload_it(5);
    assert_eq!(lockwright_programs.retired.load(Relaxed), 0);
}

#[test]
fn a_child_keeps_the_policy_and_waits_for_nobody() {
    let _alone = alone();
    load_it(8, &[(Hook::CmpNode, says(1))]).unwrap();
    // SAFETY: loaded above.
    let mark = unsafe { (*entries::current(8)).mark() };
    let (send, receive) = std::sync::mpsc::channel::<()>();
    let (said, heard) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        cells::own().unwrap().inside.store(mark, Relaxed);
        // As if it were loading something.
        BUSY.take(
            || (),
            || {
                said.send(()).unwrap();
                let _ = receive.recv();
            },
        );
    });
    heard.recv().unwrap();
    // SAFETY: the child makes system calls, asks and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        in_child();
        let answer = ask_it(8, Hook::CmpNode);
        let mine = cells::of(thread::id()).is_some();
        unload_it(8);
        let left = lockwright_programs.retired.load(Relaxed);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if (answer, mine, left) == (1, true, 0) { 7 } else { 1 }) }
    }
    let mut status = 0;
    // SAFETY: our child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
    drop(send);
    thread.join().unwrap();
    unload_it(8);
}

#[test]
fn no_hook_can_tell_which_question_is_measured() {
    let _alone = alone();
    load_it(14, &[(Hook::CmpNode, says(0))]).unwrap();
    ask_it(14, Hook::CmpNode);
    let until = || cells::own().unwrap().until_sample.load(Relaxed);
    let mut gaps = Vec::new();
    while gaps.len() < 256 {
        // As many questions as another one is measured after.
        let gap = until();
        for _ in 0..=gap {
            ask_it(14, Hook::CmpNode);
        }
        gaps.push(u64::from(gap) + 1);
    }
    unload_it(14);
    let mean = gaps.iter().sum::<u64>() / gaps.len() as u64;
    // Ten times the standard error of as many draws: 72 / 16.
    assert!(mean.abs_diff(SAMPLE) < 45, "{mean}: {gaps:?}");
    gaps.sort_unstable();
    gaps.dedup();
    assert!(gaps.len() > 64, "{gaps:?}");
}

#[test]
fn a_thread_is_described_with_its_tag_and_the_locks_that_it_holds() {
    let _alone = alone();
    load_it(9, &[(Hook::LockAcquired, says(0)), (Hook::LockRelease, says(0))]).unwrap();
    let about = |node: &Node| (node.tag, node.held_locks);
    let node = Native::describe();
    assert_eq!((node.tid, about(&node)), (thread::id(), (0, 0)));
    assert!(tag(5));
    for (hook, held) in [(Hook::LockAcquired, 1), (Hook::LockAcquired, 2), (Hook::LockRelease, 1)] {
        ask_it(9, hook);
        assert_eq!(about(&Native::describe()), (5, held));
    }
    // Nobody knows what it holds once policies have changed.
    load_it(10, &[]).unwrap();
    ask_it(9, Hook::LockAcquired);
    assert_eq!(about(&Native::describe()), (5, 1));
    ask_it(9, Hook::LockRelease);
    assert!(tag(0));
    assert_eq!(about(&Native::describe()), (0, 0));
    for _ in 0..32 {
        ask_it(9, Hook::LockAcquired);
        std::thread::sleep(Duration::from_micros(100));
        ask_it(9, Hook::LockRelease);
    }
    // Some of the 32 sections are measured.
    assert!(Native::describe().cs_total_ns >= 100_000, "{}", format!("{:?}", Native::describe()));
    unload_it(9);
    unload_it(10);
}

/// A thread's priority, as it has just been read.
fn seems(cell: &cells::ThreadCell, prio: i32) {
    cell.prio.store(prio, Relaxed);
    cell.prio_read.store(cells::seconds() + 1, Relaxed);
    cell.until_prio.store(100, Relaxed); // it isn't read again
}

/// A thread gives the calling thread a priority, and then runs `then`. Whether the kernel allows that depends on who runs this test.
fn boosted(then: impl FnOnce() + Send + 'static) {
    let (holder, own) = (thread::id(), scheduling::Scheduling::of(0).unwrap());
    std::thread::spawn(move || {
        let cell = cells::own().unwrap();
        seems(cell, own.prio() + 1); // as if it were more urgent
        let refused = lockwright_programs.unboosted.load(Relaxed);
        boost::boost(holder);
        let was_refused = lockwright_programs.unboosted.load(Relaxed) != refused;
        let is_boosted = cells::of(holder).unwrap().boost.load(Relaxed) != 0;
        assert_eq!(lockwright_programs.boosted.load(Relaxed), u32::from(is_boosted));
        assert_eq!(is_boosted, !was_refused);
        assert_eq!(scheduling::Scheduling::of(holder) == Some(own), was_refused);
        then();
    })
    .join()
    .unwrap();
}

#[test]
fn a_boost_ends_with_the_holders_release_or_with_the_wait() {
    let _alone = alone();
    let own = scheduling::Scheduling::of(0);
    let is_as_before = || {
        assert_eq!(scheduling::Scheduling::of(0), own);
        assert_eq!(lockwright_programs.boosted.load(Relaxed), 0);
        cells::own().unwrap().boost.load(Relaxed) == 0
    };
    boosted(|| ());
    boost::unboost();
    assert!(is_as_before());
    // The policy goes first.
    load_it(11, &[]).unwrap();
    boosted(|| ());
    unload_it(11);
    let mutex = crate::layout::Mutex::new();
    posix::lock(&mutex, 0).unwrap();
    posix::ask(&mutex); // as a boost does: its unlock comes by the slow path
    posix::unlock(&mutex).unwrap();
    assert!(is_as_before());
    boosted(has_waited);
    assert!(is_as_before());
    // A waiter that ends without taking it back leaves that to the holder, and doesn't take back what another has given.
    boosted(|| {
        let own = cells::own().unwrap();
        let holder = own.boosting.swap(0, Relaxed);
        std::thread::spawn(has_waited).join().unwrap();
        let cell = cells::of(holder).unwrap();
        assert_eq!(cell.boost.load(Relaxed) != 0, lockwright_programs.boosted.load(Relaxed) != 0);
    });
    boost::unboost();
    assert!(is_as_before());
}

/// What the kernel copies of a thread that forks, and what its memory says, are of the same moment then.
#[test]
fn a_thread_that_forks_keeps_its_priority_until_it_has_forked() {
    let _alone = alone();
    let (own, holder) = (scheduling::Scheduling::of(0), thread::id());
    let is_counted = || lockwright_programs.boosted.load(Relaxed) != 0;
    // It has another's: the waiter that goes leaves the taking back to it.
    let mut is_boosted = false;
    std::thread::scope(|scope| {
        let gives = || {
            seems(cells::own().unwrap(), own.unwrap().prio() + 1);
            boost::boost(holder);
            let given = scheduling::Scheduling::of(holder);
            boost::forks(holder);
            has_waited();
            assert_eq!(scheduling::Scheduling::of(holder), given);
            given != own
        };
        is_boosted = scope.spawn(gives).join().unwrap();
    });
    // As in a child.
    let word = cells::of(holder).unwrap().boost.load(Relaxed);
    assert!(!is_boosted || word & cells::KNOWN != 0, "{word:#x}");
    boost::has_forked(holder);
    assert!(scheduling::Scheduling::of(0) == own && !is_counted());
    assert_eq!(cells::of(holder).unwrap().boost.load(Relaxed), 0);
    // It has its own: nobody gives it another's.
    boost::forks(holder);
    std::thread::spawn(move || {
        seems(cells::own().unwrap(), own.unwrap().prio() + 1);
        boost::boost(holder);
        assert_eq!(scheduling::Scheduling::of(holder), own);
        has_waited();
    })
    .join()
    .unwrap();
    boost::unboost();
    assert!(scheduling::Scheduling::of(0) == own && !is_counted());
    boost::has_forked(holder);
    boosted(has_waited);
    assert!(scheduling::Scheduling::of(0) == own && !is_counted());
}

#[test]
fn a_thread_with_two_cells_gets_its_priority_back() {
    let _alone = alone();
    let own = scheduling::Scheduling::of(0);
    // As if another thread had made one at the same moment: the one that others find isn't the thread's own.
    std::thread::spawn(move || {
        assert!(cells::own().is_some());
        let [first, second] = cells::two();
        let (tid, nothing): (_, fn()) = (thread::id(), || ());
        for (own_one, is_late, ends) in [
            (first, false, nothing),
            (second, false, nothing),
            (first, true, nothing),
            (second, false, has_waited),
            (second, true, has_waited),
        ] {
            cells::set_own(own_one);
            // Perhaps the one that others find comes only when the thread has another's priority already.
            cells::lend(first, if is_late { 0 } else { tid });
            boosted(move || {
                cells::lend(first, tid);
                ends();
            });
            boost::unboost();
            assert_eq!(scheduling::Scheduling::of(0), own);
            assert_eq!(lockwright_programs.boosted.load(Relaxed), 0);
            assert!([first, second].iter().all(|cell| cell.boost.load(Relaxed) == 0));
        }
    })
    .join()
    .unwrap();
}

#[test]
fn a_holder_that_is_known_to_be_as_urgent_is_left_alone() {
    let _alone = alone();
    let (holder, own) = (thread::id(), scheduling::Scheduling::of(0).unwrap());
    let cell = cells::own().unwrap();
    std::thread::spawn(move || {
        let waiter = cells::own().unwrap();
        // It may be known by what a waiter has read.
        seems(waiter, own.prio());
        boost::boost(holder);
        assert_eq!(cell.prio.load(Relaxed), own.prio());
        // The kernel, if it were asked, would say that the holder is less urgent.
        let tries = || {
            let [boosts, refused] = [&lockwright_programs.boosts, &lockwright_programs.unboosted];
            boosts.load(Relaxed) + refused.load(Relaxed)
        };
        let mut before;
        loop {
            before = tries();
            seems(waiter, own.prio() + 1);
            seems(cell, own.prio() + 1);
            boost::boost(holder);
            has_waited();
            if cell.prio_read.load(Relaxed) == cells::seconds() + 1 {
                break;
            }
            // Another second has begun meanwhile.
        }
        assert_eq!(tries() - before, 0);
        // What is older doesn't count.
        cell.prio_read.store(cells::seconds(), Relaxed);
        boost::boost(holder);
        has_waited();
        assert_eq!(tries() - before, 1);
    })
    .join()
    .unwrap();
    cell.until_prio.store(0, Relaxed);
}

#[test]
fn a_child_has_its_parents_own_priority() {
    let _alone = alone();
    fn forks() {
        let own = scheduling::Scheduling::of(0);
        boosted(|| ());
        let in_child = || i32::from(scheduling::Scheduling::of(0) == own);
        thread::forks(); // as the handler does
        // SAFETY: the child makes system calls, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            super::in_child();
            let is_idle = lockwright_programs.boosted.load(Relaxed) == 0;
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(if is_idle { 6 + in_child() } else { 1 }) }
        }
        boost::unboost();
        let mut status = 0;
        // SAFETY: our child.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
    }
    assert!(cells::own().is_some());
    forks();
    // A thread for which only the waiter has made a cell. A nice value isn't reset by the kernel.
    std::thread::spawn(|| {
        // SAFETY: no preconditions.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, thread::id(), 5) };
        forks();
    })
    .join()
    .unwrap();
}

#[test]
fn a_thread_that_leaves_a_wait_leaves_the_hook() {
    use crate::layout::Here;
    use crate::leave::tests::{exit, on_a_thread};
    use crate::leave::{self, Wait};
    use lockwright_locks::front::{Parts, Tuning};
    use lockwright_locks::posix::Static;

    static INSIDE: [AtomicBool; 2] = [const { AtomicBool::new(true) }; 2];
    struct Outside(usize);
    impl Wait for Outside {
        fn leave(&self) {
            INSIDE[self.0].store(is_inside(), Relaxed); // joined
        }
    }
    fn leaves(which: usize) {
        thread::learn();
        let enter = || cells::own().unwrap().inside.store(cells::ASKING | 1, Relaxed);
        let (mutex, tuning) = (Here::UNLOCKED, Tuning::for_any());
        let outside = Outside(which);
        // The second one's wait begins in a hook: in a signal handler.
        if outside.0 == 1 {
            enter();
        }
        leave::guarded(&outside, || {
            let was_inside = is_inside();
            let wait = |_: &Parts<'_, Native>| {
                enter();
                exit();
            };
            leave::in_line(&mutex, mutex.parts(), &tuning, || has_left(was_inside), wait);
        });
    }
    let _alone = alone();
    on_a_thread(|| leaves(0));
    on_a_thread(|| leaves(1));
    assert_eq!([&INSIDE[0], &INSIDE[1]].map(|inside| inside.load(Relaxed)), [false, true]);
}

#[test]
fn a_mutex_is_as_fast_as_before_when_its_policy_is_gone() {
    use lockwright_locks::front::{Tuning, programmed};
    use lockwright_locks::posix::{self, Environment, Front, Held, How, MARKED, Me, Mutex, Policy};
    use lockwright_platform::Word;

    /// All mutexes have the policy in slot 13.
    enum Asks {}
    impl Environment for Asks {
        type Platform = Native;
        type Room = u64;
        fn thread() -> u32 {
            thread::id()
        }
        fn with_held<R>(run: impl FnOnce(&Held<Native>) -> R) -> R {
            // SAFETY: the calling thread's own memory.
            run(unsafe { (*thread::this()).held.account() })
        }
        fn choose(_: &Mutex<Self>, _: usize) -> u32 {
            1
        }
        fn policy(_: u32) -> (Me, Policy<Self>) {
            let tuning = Tuning { policy: 13, ..Tuning::for_cpus(2) };
            let how = How::Front(Front::of::<programmed::Lock>(|tuning| tuning));
            (Me::of::<Self>(), Policy { how, tuning })
        }
    }
    let _alone = alone();
    let mutex = Mutex::<Asks>::of_kind(0, 0);
    let is_marked = || mutex.kind.load(Relaxed) & MARKED != 0;
    // As a thread that finds it contended.
    let lock_slowly = || {
        posix::acquire(&mutex, 0, 0);
        posix::unlock(&mutex).unwrap();
    };
    let lock = || {
        posix::lock(&mutex, 0).unwrap();
        posix::unlock(&mutex).unwrap();
    };
    lock_slowly();
    assert!(!is_marked());
    for _ in 0..2 {
        load_it(13, &[(Hook::LockAcquired, says(0)), (Hook::CmpNode, says(0))]).unwrap();
        lock_slowly();
        lock();
        assert!(is_marked());
        // Another one, which doesn't want to know of each operation.
        load_it(13, &[(Hook::CmpNode, says(0))]).unwrap();
        lock();
        assert!(!is_marked());
        lock_slowly();
        assert!(!is_marked());
    }
    unload_it(13);
}

#[test]
fn a_confined_process_is_asked_for_nothing() {
    let _alone = alone();
    // SAFETY: the child makes system calls, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        crate::access::confine();
        let refused = load_it(12, &[(Hook::CmpNode, says(1))]);
        let is_said = refused.is_err_and(|why| why.as_bytes() == NO_MEMORY);
        unload_it(12);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if is_said && ask_it(12, Hook::CmpNode) == 0 { 7 } else { 1 }) }
    }
    let mut status = 0;
    // SAFETY: our child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
}
