//! The command's side, against memory of this process.

use super::posting::pieces;
use super::*;
use crate::image::Image;
use lockwright_contract::post::PostState;
use lockwright_contract::post::remote::OwnMemory;
use lockwright_contract::programs::image::{ImageHeader, LARGEST};
use lockwright_contract::programs::mailbox::{
    FREE, LOAD, PostRoom, ROOM, Request, Tags, UNLOAD, VOID,
};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

// SAFETY: only mailboxes that live forever are read and written.
static OWN: OwnMemory = unsafe { OwnMemory::new() };

/// A mailbox of its own, forever.
fn mailbox() -> (&'static Programs, Control<'static, OwnMemory>) {
    let tags = Box::leak(Box::new(Tags::new()));
    let room = Box::leak(Box::new(PostRoom::new()));
    let programs = Box::leak(Box::new(Programs::new(tags, room)));
    let at = (&raw const *programs).expose_provenance() as u64;
    (programs, Control::open(&OWN, at).unwrap().unwrap())
}

#[test]
fn another_version_is_noticed() {
    let (programs, control) = mailbox();
    let at = control.at;
    // SAFETY: nobody else uses it.
    unsafe { (&raw const programs.magic).cast_mut().write(MAGIC + 1) };
    assert!(Control::open(&OWN, at).unwrap().is_none());
}

/// A policy of this name, with so much code behind its header.
fn policy(name: &str, code: usize) -> Prepared {
    let mut code = vec![1; size_of::<ImageHeader>() + code];
    code[offset_of!(ImageHeader, name)..][..NAME].fill(0);
    code[offset_of!(ImageHeader, name)..][..name.len()].copy_from_slice(name.as_bytes());
    code[offset_of!(ImageHeader, version)..][..4].copy_from_slice(&7_u32.to_ne_bytes());
    Prepared::new(&Image { code, data: vec![0; 100] }, 5).unwrap()
}

fn of(slot: u32, name: &str) -> Pending {
    Pending::Load { slot, name: name.to_owned(), version: 7, is_leased: false }
}

/// As the process reads them: what, and for which slot.
fn posted(programs: &Programs) -> Vec<(u32, u32)> {
    // SAFETY: nobody writes now.
    let room = unsafe { &*programs.room.0.get() };
    let (mut rest, mut all) = (&room[..programs.len.load(Relaxed) as usize], Vec::new());
    while let Some((request, code, _, behind)) = Request::first(rest) {
        assert_eq!(code.is_empty(), request.what != LOAD && request.code_len == 0);
        all.push((request.what, request.slot));
        rest = behind;
    }
    assert!(rest.is_empty());
    all
}

#[test]
fn a_process_takes_up_what_is_posted_and_answers() {
    let (programs, control) = mailbox();
    for (is_done, said) in [(true, Answered::Done), (false, Answered::Refused("no".to_owned()))] {
        let taker = thread::spawn(move || {
            let taken = loop {
                if let Some(posted) = programs.posts.posted() {
                    break programs.posts.take(posted).unwrap();
                }
                thread::yield_now();
            };
            if is_done {
                programs.posts.done(taken);
            } else {
                programs.posts.refused(taken, b"no");
            }
        });
        assert_eq!(control.unload(9, Duration::from_secs(60)), Ok(said));
        assert_eq!(posted(programs), [(UNLOAD, 9)]);
        taker.join().unwrap();
    }
    control.unload(9, Duration::ZERO).unwrap();
    programs.posts.take(programs.posts.posted().unwrap()).unwrap();
    let said = control.unload(9, Duration::ZERO);
    assert!(matches!(said, Ok(Answered::Refused(why)) if why.contains("stopped")));
}

#[test]
fn requests_wait_in_a_queue_and_replace_earlier_ones_for_their_slot() {
    let (programs, control) = mailbox();
    let load = |slot, name| control.load(slot, &policy(name, 300), Duration::ZERO).unwrap();
    let unload = |slot| control.unload(slot, Duration::ZERO).unwrap();
    assert_eq!(load(3, "a"), Answered::Nothing);
    assert_eq!(load(3, "b"), Answered::Nothing);
    assert_eq!(control.pending(), Ok(vec![of(3, "b")]));
    assert_eq!((load(4, "c"), unload(5)), (Answered::Nothing, Answered::Nothing));
    assert_eq!(control.pending(), Ok(vec![of(3, "b"), of(4, "c"), Pending::Unload(5)]));
    assert_eq!((unload(3), load(4, "d")), (Answered::Nothing, Answered::Nothing));
    let queue = vec![Pending::Unload(5), Pending::Unload(3), of(4, "d")];
    assert_eq!(control.pending(), Ok(queue));
    let all = [(VOID, 3), (VOID, 4), (UNLOAD, 5), (UNLOAD, 3), (LOAD, 4)];
    assert_eq!(posted(programs), all);
    // What has been done isn't posted again.
    let post = programs.posts.posted().unwrap();
    programs.posts.done(programs.posts.take(post).unwrap());
    assert_eq!((control.pending(), unload(7)), (Ok(Vec::new()), Answered::Nothing));
    assert_eq!(posted(programs), [(UNLOAD, 7)]);
    assert_eq!(programs.posts.posted(), Some(post.next().with(PostState::Posted)));
}

#[test]
fn a_full_queue_is_tidied_and_then_takes_nothing_more() {
    let (programs, control) = mailbox();
    let load = |slot, bytes| control.load(slot, &policy("p", bytes), Duration::ZERO).unwrap();
    assert_eq!(load(1, ROOM / 2), Answered::Nothing);
    assert_eq!((load(2, ROOM / 4), load(2, ROOM / 4)), (Answered::Nothing, Answered::Nothing));
    assert_eq!(posted(programs), [(LOAD, 1), (LOAD, 2)]);
    let post = programs.posts.seen();
    assert_eq!((load(3, ROOM / 4), programs.posts.seen()), (Answered::Full, post));
    assert_eq!(posted(programs), [(LOAD, 1), (LOAD, 2)]);
}

#[test]
fn what_does_not_fit_is_refused_before_it_is_posted() {
    let large = |code: usize, data: usize| {
        Prepared::new(&Image { code: vec![0; code], data: vec![1; data] }, 1).is_err()
    };
    let head = size_of::<Request>();
    assert!(large(LARGEST + 1, 0) && large(LARGEST, ROOM - LARGEST - head));
    assert!(!large(LARGEST, ROOM - LARGEST - head - 8));
}

#[test]
fn pieces_make_the_data_again() {
    let mut random = 1_u32;
    for len in [0, 1, 7, 8, 100, 5000] {
        for denseness in [0, 1, 10, 200] {
            let data: Vec<u8> = (0..len)
                .map(|_| {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let is_set = random >> 24 < denseness;
                    if is_set { (random >> 16) as u8 } else { 0 }
                })
                .collect();
            let (mut made, pieces) = (vec![0; len], pieces(&data));
            let mut rest = &pieces[..];
            while !rest.is_empty() {
                let (at, size) =
                    (u32::from_ne_bytes(part(rest, 0)), u32::from_ne_bytes(part(rest, 4)));
                let size = size as usize;
                made[at as usize..][..size].copy_from_slice(&rest[8..8 + size]);
                rest = &rest[8 + size.next_multiple_of(8)..];
            }
            assert_eq!(made, data);
        }
    }
}

#[test]
fn slots_are_read_as_the_process_shows_them() {
    let (programs, control) = mailbox();
    assert_eq!((control.slots(), control.free_slot()), (Ok(Vec::new()), Ok(Some(1))));
    let slot = &programs.slots[1];
    slot.hooks.store(Hook::SkipShuffle.bit(), Relaxed);
    slot.asked[1].store(610, Relaxed);
    slot.samples[1].store(10, Relaxed);
    slot.sampled_ns[1].store(55, Relaxed);
    slot.name[0].store(u64::from_ne_bytes(*b"fair\0\0\0\0"), Relaxed);
    slot.slow_hook.store(1, Relaxed);
    slot.slow_ns.store(99, Relaxed);
    for (state, slow) in [(LOADED, None), (TOO_SLOW, Some((Hook::SkipShuffle, 99)))] {
        slot.state.store(TURN + state, Relaxed);
        let policy = control.in_slot(1).unwrap().unwrap();
        assert_eq!((policy.name.as_str(), policy.too_slow), ("fair", slow));
        let hook = AskedHook { hook: Hook::SkipShuffle, asked: 610, mean_ns: Some(5.5) };
        assert_eq!(policy.hooks, [hook]);
    }
    assert_eq!(control.free_slot(), Ok(Some(2)));
    slot.state.store(2 * TURN + FREE, Relaxed);
    assert_eq!((control.in_slot(1), control.in_slot(16)), (Ok(None), Ok(None)));
}

#[test]
fn tags_are_found_where_the_process_looks() {
    let (programs, control) = mailbox();
    let everybody = |_| true;
    for tid in 1..500 {
        assert_eq!(control.tag(tid, u64::from(tid) + 7, everybody), Ok(true));
    }
    assert_eq!(control.tag(3, 5, everybody), Ok(true));
    assert_eq!(control.tag(4, 0, everybody), Ok(true));
    let at = |tid| tag_places(tid).find(|at| programs.tags.0[*at].tid.load(Relaxed) == tid);
    let tag = |tid| programs.tags.0[at(tid).unwrap()].tag.load(Relaxed);
    assert_eq!((tag(3), tag(4), tag(499)), (5, 0, 506));
    assert_eq!(control.tags().unwrap().len(), 498);
    // Threads that have ended make room.
    let refused = (500..4000).filter(|tid| control.tag(*tid, 1, everybody) == Ok(false)).count();
    assert!(refused > 0);
    assert_eq!(control.tag(5000, 1, |_| false), Ok(true));
    assert_eq!(programs.tagged.load(Relaxed), 1);
}
