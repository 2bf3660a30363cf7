//! Tables on lease, and the slots that go with them.

#![cfg(target_arch = "x86_64")]

use super::*;
use crate::programs::tests::{
    alone, ask_it, budget, image, load_it, mappings, post_all, request, says,
};
use core::mem::offset_of;
use lockwright_contract::post::remote::{Answer, OwnMemory, RemotePosts};
use lockwright_contract::programs::mailbox::{FREE, LOAD, LOADED, Request, TURN};
use lockwright_platform::hooks::Hook;
use std::string::String;
use std::time::Duration;

/// A table with this text.
fn table(words: &[u8]) -> &'static Table {
    let fresh = posts::map(size_of::<Table>()).unwrap().cast();
    // SAFETY: zeroes to which nobody else has a pointer; by `alone` no other thread makes a table.
    unsafe {
        config::write_words(fresh, words);
        config::fill(fresh, |_| panic!("it is legal"))
    }
}

/// Posts as the command does, until it is taken up. `Err`: why it was refused.
fn post(words: &[u8], terms: u32) -> Result<(), String> {
    // SAFETY: by `alone` nobody else posts.
    static OWN: OwnMemory = unsafe { OwnMemory::new() };
    let mailbox = &lockwright_mailbox;
    let remote = RemotePosts::new(&OWN, (&raw const mailbox.posts).expose_provenance() as u64);
    let Ok(mut said) = remote.post(Duration::ZERO, |writing| {
        writing.replace()?;
        // SAFETY: the process reads it only once it is posted.
        unsafe { (&mut (*mailbox.text.get()))[..words.len()].copy_from_slice(words) };
        mailbox.len.store(words.len() as u32, Relaxed);
        mailbox.terms.store(terms, Relaxed);
        Ok(true)
    });
    loop {
        match said {
            Answer::Done => return Ok(()),
            Answer::Refused(why) => {
                return Err(String::from_utf8(why.text().to_vec()).unwrap());
            }
            Answer::Nothing => take(),
            said => panic!("{said:?}"),
        }
        std::thread::yield_now();
        let Ok(now) = remote.answer(mailbox.posts.seen());
        said = now;
    }
}

#[test]
fn a_table_on_lease_goes_and_one_for_good_stays() {
    let _alone = alone();
    let first = table(b"auto\n");
    policy::publish(first);
    tell(first);
    let until = |ns: u64| lockwright_mailbox.lease_ns.store(ns, Relaxed);
    let now = || policy::current().map(|table| String::from_utf8_lossy(table.words()));
    let is_leased = || lockwright_mailbox.leased.load(Relaxed) & TABLE != 0;
    until(u64::MAX);
    for words in [&b"fifo\n"[..], b"auto\n", b"barging\n"] {
        post(words, ON_LEASE).unwrap();
        assert_eq!((now().unwrap().as_bytes(), is_leased()), (words, true));
        assert!(ptr::eq(lockwright_mailbox.back.load(Relaxed), first.words().as_ptr()));
    }
    take();
    assert_eq!(now().unwrap(), "barging\n", "the lease goes on");
    until(1);
    take();
    assert!(policy::current().is_some_and(|table| ptr::eq(table, first)));
    assert!(
        !is_leased() && lockwright_mailbox.now.load(Relaxed).cast_const() == first.words().as_ptr()
    );
    assert_eq!(post(b"fifo\n", ON_LEASE).unwrap_err().as_bytes(), LATE);
    until(u64::MAX);
    post(b"fifo\n", ON_LEASE).unwrap();
    post(b"cal\n", 0).unwrap();
    until(1);
    take();
    assert_eq!((now().unwrap().as_ref(), is_leased()), ("cal\n", false));
    policy::forget();
}

#[test]
fn what_is_on_lease_goes_when_nobody_renews_it() {
    let _alone = alone();
    budget(1_000_000_000);
    let state = |slot: usize| programs::lockwright_programs.slots[slot].state.load(Relaxed) % TURN;
    let load = || {
        let mut bytes = request(LOAD, 4, &image(&[(Hook::CmpNode, says(1))], 0, 0), &[]);
        bytes[offset_of!(Request, leased)] = 1;
        post_all(&bytes)
    };
    let until = |ns: u64| lockwright_mailbox.lease_ns.store(ns, Relaxed);
    until(u64::MAX);
    load().unwrap();
    programs::take();
    assert_eq!((state(4), ask_it(4, Hook::CmpNode)), (LOADED, 1));
    // Another one stays.
    load_it(2, &[(Hook::CmpNode, says(2))]).unwrap();
    policy::publish(table(b"auto\n"));
    until(1);
    programs::take();
    assert_eq!((state(4), ask_it(4, Hook::CmpNode)), (FREE, 0));
    assert_eq!((state(2), lockwright_mailbox.leased.load(Relaxed)), (LOADED, 0));
    assert_eq!(load().unwrap_err().as_bytes(), LATE);
    // As a table that doesn't ask it does.
    programs::lease(1 << 2);
    programs::take();
    assert_eq!((state(2), mappings()), (FREE, 0));
    policy::forget();
}
