//! How a command posts something to a running process, and a thread of the process takes it up: a word of memory that both change, and
//! the reason if the process refuses. What is posted lies beside it, and is the mailbox's own (`mailbox.rs`, `programs/mailbox.rs`).
//!
//! ```text
//!   Empty, Done, Refused ──command: what is posted, then──► Posted ──a thread that waits──► Taken ──► Done │ Refused: says why
//!         ▲─────────command, to post another──────────────────┘
//! ```
//!
//! The process's methods are here; [`remote`] has the command's, which reads and writes the memory as a debugger would.
//!
//! Invariants:
//! 1. The state has a number, which counts the posts. Who has read what is posted, and then finds the word as it was before, has read one
//!    post and no mixture ([`Posts::is_still`]).
//! 2. The command changes the word before it changes what is posted, and sets Posted after that. (What it only adds behind the rest
//!    needs no change before.)
//! 3. While the state is Taken, the command keeps out: only the thread that has taken the post writes, here and beside it.
//! 4. One thread at a time takes posts up, and one command at a time posts. The word doesn't see to that: the process has a lock of its
//!    own, and commands lock its memory.
//! 5. A thread that never returns leaves the post Taken. Then the process gives it back or forgets it ([`Posts::put_back`],
//!    [`Posts::forget`]).

pub mod remote;

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicU32, fence};

/// The most bytes of a reason.
pub const WHY: usize = 256;

/// The word's lower bits: the state. The number is above.
const STATE: u32 = 7;

/// What has become of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PostState {
    /// Nothing is posted, or the command is writing.
    Empty = 0,
    /// It is ready to be taken up.
    Posted = 1,
    /// A thread is at it.
    Taken = 2,
    /// It is done.
    Done = 3,
    /// It was refused.
    Refused = 4,
}

/// The word's value: a post's number and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Post(u32);

impl Post {
    /// The post that the word tells of.
    pub const fn of(word: u32) -> Self {
        Self(word)
    }

    /// The word that tells of it.
    pub const fn word(self) -> u32 {
        self.0
    }

    /// Is it in this state?
    #[inline(always)]
    pub const fn is(self, state: PostState) -> bool {
        self.0 & STATE == state as u32
    }

    /// The same post in another state.
    pub const fn with(self, state: PostState) -> Self {
        Self(self.0 & !STATE | state as u32)
    }

    /// The post after it, which is Empty. Numbers wrap after half a billion.
    pub const fn next(self) -> Self {
        Self(self.with(PostState::Empty).0.wrapping_add(STATE + 1))
    }
}

/// The part of a mailbox that says what has become of the last post.
#[derive(Debug)]
#[repr(C)]
pub struct Posts {
    word: AtomicU32,
    why_len: AtomicU32,
    why: [AtomicU8; WHY],
}

impl Default for Posts {
    fn default() -> Self {
        Self::new()
    }
}

impl Posts {
    /// Nothing was posted.
    pub const fn new() -> Self {
        Self {
            word: AtomicU32::new(PostState::Empty as u32),
            why_len: AtomicU32::new(0),
            why: [const { AtomicU8::new(0) }; WHY],
        }
    }

    /// Is there something to take up? A hint.
    #[inline(always)]
    pub fn is_posted(&self) -> bool {
        self.seen().is(PostState::Posted)
    }

    /// What the word says. A hint.
    #[inline(always)]
    pub fn seen(&self) -> Post {
        Post(self.word.load(Relaxed)) // whoever acts on it checks again
    }

    /// What there is to take up. What is posted may be read from now on, but counts only if the post is [taken](Self::take) afterwards, or
    /// [still](Self::is_still) there.
    pub fn posted(&self) -> Option<Post> {
        // ORDERING: Acquire, pairs with the command's write, which the kernel does: what is posted was written before.
        let post = Post(self.word.load(Acquire));
        post.is(PostState::Posted).then_some(post)
    }

    /// Takes up what was [posted](Self::posted). `None`: the command has replaced it. From now on, until it is done or refused, the command
    /// keeps out.
    pub fn take(&self, posted: Post) -> Option<Post> {
        let taken = posted.with(PostState::Taken);
        // ORDERING: AcqRel: what was read of the post before was read before this. A command that sees Taken keeps out.
        self.word.compare_exchange(posted.0, taken.0, AcqRel, Relaxed).is_ok().then_some(taken)
    }

    /// Is the word still the same? Then what has been read since is whole. (A command that has lost its patience posts something else,
    /// even if it must keep out.)
    pub fn is_still(&self, post: Post) -> bool {
        // ORDERING: Acquire, before the word is read again: what was read here was read before. The command changes the word first.
        fence(Acquire);
        self.word.load(Relaxed) == post.0
    }

    /// What was taken is done.
    pub fn done(&self, taken: Post) {
        self.end(taken, PostState::Done);
    }

    /// What was taken is refused, for this reason, of which the first [`WHY`] bytes are kept.
    pub fn refused(&self, taken: Post, why: &[u8]) {
        for (to, from) in self.why.iter().zip(why) {
            to.store(*from, Relaxed); // before the word
        }
        self.why_len.store(why.len().min(WHY) as u32, Relaxed); // before the word
        self.end(taken, PostState::Refused);
    }

    fn end(&self, taken: Post, state: PostState) {
        // ORDERING: Release, for the command: what it reads after this has been written. It may have timed out, and posted something else.
        let _ = self.word.compare_exchange(taken.0, taken.with(state).0, Release, Relaxed);
    }

    /// The thread that has taken a post doesn't go on: another may take it up. Called by that thread, or by a process that doesn't have it.
    pub fn put_back(&self) {
        self.leave(PostState::Posted);
    }

    /// The thread that has taken a post doesn't go on, and nobody takes it up again. Called as [`put_back`](Self::put_back).
    pub fn forget(&self) {
        self.leave(PostState::Empty);
    }

    fn leave(&self, state: PostState) {
        let post = self.seen();
        if post.is(PostState::Taken) {
            // Relaxed: by invariant 3 only the command reads this, and it was the post's before.
            let _ = self.word.compare_exchange(post.0, post.with(state).0, Relaxed, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PostState::{Done, Empty, Posted, Refused, Taken};

    /// As a command does.
    fn post(posts: &Posts) -> Post {
        let post = posts.seen().next();
        posts.word.store(post.with(Posted).word(), Relaxed);
        post
    }

    #[test]
    fn a_post_is_taken_once_and_ends_once() {
        let posts = Posts::new();
        assert!(!posts.is_posted() && posts.posted().is_none());
        let first = post(&posts);
        let posted = posts.posted().unwrap();
        assert!(posts.is_posted() && posted == first.with(Posted));
        let taken = posts.take(posted).unwrap();
        assert!(posts.is_still(taken) && !posts.is_posted());
        assert!(posts.take(posted).is_none() && posts.posted().is_none());
        posts.done(taken);
        assert_eq!(posts.seen(), first.with(Done));
        posts.refused(taken, b"too late");
        assert_eq!(posts.seen(), first.with(Done));
    }

    #[test]
    fn a_reason_is_cut() {
        let posts = Posts::new();
        post(&posts);
        let taken = posts.take(posts.posted().unwrap()).unwrap();
        posts.refused(taken, &[b'x'; WHY + 1]);
        assert!(posts.seen().is(Refused));
        assert_eq!(posts.why_len.load(Relaxed) as usize, WHY);
        assert!(posts.why.iter().all(|byte| byte.load(Relaxed) == b'x'));
    }

    #[test]
    fn what_the_command_replaces_is_neither_taken_nor_ended() {
        let posts = Posts::new();
        post(&posts);
        let old = posts.posted().unwrap();
        let new = post(&posts);
        assert!(posts.take(old).is_none() && !posts.is_still(old));
        let taken = posts.take(posts.posted().unwrap()).unwrap();
        let newer = post(&posts); // a command that didn't keep out
        assert!(!posts.is_still(taken) && new != newer);
        posts.done(taken);
        posts.refused(taken, b"");
        assert_eq!(posts.seen(), newer.with(Posted));
    }

    #[test]
    fn what_a_thread_leaves_behind_is_taken_again_or_never() {
        let posts = Posts::new();
        posts.put_back();
        posts.forget();
        assert_eq!(posts.seen(), Post::of(0));
        let number = post(&posts);
        let taken = posts.take(posts.posted().unwrap()).unwrap();
        posts.put_back();
        assert_eq!(posts.posted(), Some(number.with(Posted)));
        posts.done(taken); // it goes on after all
        assert!(posts.is_posted());
        posts.take(posts.posted().unwrap()).unwrap();
        posts.forget();
        assert_eq!(posts.seen(), number.with(Empty));
    }

    #[test]
    fn numbers_wrap_and_leave_the_state_alone() {
        let last = Post::of(u32::MAX).with(Taken);
        assert!(last.is(Taken) && !last.is(Posted));
        assert_eq!(last.next(), Post::of(0));
        assert_eq!(Post::of(0).with(Refused).next(), Post::of(8));
    }
}
