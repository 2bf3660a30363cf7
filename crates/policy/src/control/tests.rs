//! The command's side, against memory of this process.

use super::*;
use lockwright_programs::mailbox::{FREE, PostRoom, Tags};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::thread;

/// This process's own memory.
struct Own;

impl Memory for Own {
    type Error = std::convert::Infallible;

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Self::Error> {
        for (byte, at) in bytes.iter_mut().zip(at..) {
            // SAFETY: the tests' own statics; byte by byte, as others may write them.
            *byte = unsafe { (at as *const u8).read_volatile() };
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Self::Error> {
        // SAFETY: as above. A word is written at once, as the kernel does.
        unsafe {
            match *bytes {
                [a, b, c, d] => (at as *mut [u8; 4]).write_volatile([a, b, c, d]),
                _ => (at as *mut u8).copy_from(bytes.as_ptr(), bytes.len()),
            }
        }
        Ok(())
    }
}

/// A mailbox of its own, forever.
fn mailbox() -> (&'static Programs, Control<'static, Own>) {
    let tags = Box::leak(Box::new(Tags::new()));
    let room = Box::leak(Box::new(PostRoom::new()));
    let programs = Box::leak(Box::new(Programs::new(tags, room)));
    let at = (&raw const *programs).expose_provenance() as u64;
    (programs, Control::open(&Own, at).unwrap().unwrap())
}

#[test]
fn another_version_is_noticed() {
    let (programs, control) = mailbox();
    let at = control.at;
    // SAFETY: nobody else uses it.
    unsafe { (&raw const programs.magic).cast_mut().write(MAGIC + 1) };
    assert!(Control::open(&Own, at).unwrap().is_none());
}

#[test]
fn a_process_takes_up_what_is_posted_and_answers() {
    let (programs, control) = mailbox();
    let patience = Duration::from_millis(20);
    assert_eq!(control.load(3, &[1; 300], &[0; 100], 5, patience), Ok(Answered::Nothing));
    assert!(matches!(control.pending(), Ok(Some(Pending::Load(3, _)))));
    control.cancel().unwrap();
    assert_eq!(control.pending(), Ok(None));
    for (end, said) in [(DONE, Answered::Done), (REFUSED, Answered::Refused("no".to_owned()))] {
        let taker = thread::spawn(move || {
            while programs.state.load(SeqCst) & STATE != POSTED {
                thread::yield_now();
            }
            let state = programs.state.load(SeqCst);
            programs.state.store(state - POSTED + TAKEN, SeqCst);
            // SAFETY: the state is TAKEN.
            unsafe { programs.text.get().cast::<[u8; 2]>().write(*b"no") };
            programs.text_len.store(2, SeqCst);
            programs.state.store(state - POSTED + end, SeqCst);
        });
        assert_eq!(control.unload(9, Duration::from_secs(60)), Ok(said));
        assert_eq!((programs.what.load(SeqCst), programs.slot.load(SeqCst)), (UNLOAD, 9));
        taker.join().unwrap();
    }
    programs.state.store(TAKEN, SeqCst);
    assert!(
        matches!(control.unload(9, patience), Ok(Answered::Refused(why)) if why.contains("stopped"))
    );
}

#[test]
fn what_does_not_fit_is_refused_before_it_is_posted() {
    let (programs, control) = mailbox();
    let large = |code: usize, data: usize| {
        let said = control.load(1, &vec![0; code], &vec![1; data], 1, Duration::ZERO).unwrap();
        matches!(said, Answered::Refused(_))
    };
    assert!(large(LARGEST + 1, 0) && large(LARGEST, ROOM - LARGEST) && large(8, ROOM - 8));
    assert_eq!(programs.state.load(Relaxed), EMPTY);
    assert!(!large(LARGEST, ROOM - LARGEST - 8));
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
        slot.state.store(POST + state, Relaxed);
        let policy = control.in_slot(1).unwrap().unwrap();
        assert_eq!((policy.name.as_str(), policy.too_slow), ("fair", slow));
        let hook = AskedHook { hook: Hook::SkipShuffle, asked: 610, mean_ns: Some(5.5) };
        assert_eq!(policy.hooks, [hook]);
    }
    assert_eq!(control.free_slot(), Ok(Some(2)));
    slot.state.store(2 * POST + FREE, Relaxed);
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
