//! The command's side: posts something to another process, and waits until it is taken up.

use super::{Post, PostState, Posts, WHY};
use core::convert::Infallible;
use core::mem::offset_of;
use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::SeqCst;
use core::time::Duration;
use lockwright_native::futex::{self, Clock};

/// The memory of a process. What writes there keeps other commands out meanwhile.
pub trait Memory {
    /// Why it can't be read or written.
    type Error;

    /// Reads.
    ///
    /// # Errors
    /// The process is gone, for one.
    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Self::Error>;

    /// Writes. A word is written at once.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Reads 32 bits.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn word(&self, at: u64) -> Result<u32, Self::Error> {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    /// Reads 64 bits.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn word64(&self, at: u64) -> Result<u64, Self::Error> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Does something of ours begin here: this magic number, and then its own size? So does all that a command finds by a symbol and
    /// writes.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn has<T>(&self, at: u64, magic: u64) -> Result<bool, Self::Error> {
        Ok(self.word64(at)? == magic && self.word(at + 8)? as usize == size_of::<T>())
    }

    /// Writes 32 bits.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn set_word(&self, at: u64, word: u32) -> Result<(), Self::Error> {
        self.write(at, &word.to_ne_bytes())
    }
}

/// This process's own memory, as a command sees another's: for tests, in which both sides are one process.
#[derive(Debug)]
#[doc(hidden)]
pub struct OwnMemory(());

impl OwnMemory {
    /// # Safety
    /// What is read by it is readable; what is written by it is what commands may write.
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

impl Memory for OwnMemory {
    type Error = Infallible;

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Infallible> {
        let from: *const u8 = with_exposed_provenance(at as usize);
        for (at, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: `new`'s promise. Byte by byte, as others may write it.
            *byte = unsafe { from.add(at).read_volatile() };
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Infallible> {
        let to: *mut u8 = with_exposed_provenance_mut(at as usize);
        if let Ok(word) = <[u8; 4]>::try_from(bytes) {
            // SAFETY: `new`'s promise; commands write only words that are aligned.
            let to = unsafe { AtomicU32::from_ptr(to.cast()) };
            // ORDERING: SeqCst, as the kernel's write is: after all that was written before.
            to.store(u32::from_ne_bytes(word), SeqCst);
        } else {
            // SAFETY: `new`'s promise.
            unsafe { to.copy_from(bytes.as_ptr(), bytes.len()) };
        }
        Ok(())
    }
}

/// What the process says to a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and no heap here")]
pub enum Answer {
    /// It is done.
    Done,
    /// It is refused.
    Refused(Why),
    /// No thread has taken it up so far. The next one that waits does, unless another post replaces it.
    Nothing,
    /// A thread took up the post before, and has been stopped since. Nothing was posted.
    Stopped,
    /// Who was to write it has posted nothing.
    NotPosted,
}

/// Why a process refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Why {
    len: usize,
    bytes: [u8; WHY],
}

impl Why {
    /// In words.
    pub fn text(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A thread that is taking something up is done within this, or has been stopped.
const TAKES: Duration = Duration::from_secs(2);
/// How long a command polls without sleeping: a process with contended locks and a free CPU answers within this.
const AWAKE: Duration = Duration::from_micros(200);

/// A moment from which a command waits.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    ns: u64,
}

impl Begun {
    /// This one.
    #[allow(clippy::new_without_default, reason = "two of them differ")]
    pub fn new() -> Self {
        Self { ns: futex::now(Clock::Monotonic) }
    }

    /// The time since then.
    pub fn elapsed(self) -> Duration {
        Duration::from_nanos(futex::now(Clock::Monotonic).saturating_sub(self.ns))
    }

    /// Lets some time pass before the command looks again: first none, then an eighth of the wait so far, at most a millisecond.
    pub fn pause(self) {
        let waited = self.elapsed();
        if waited > AWAKE {
            let pause = (waited / 8).min(Duration::from_millis(1));
            let time = libc::timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos() as libc::c_long };
            // SAFETY: a readable time. A signal ends it early, and nothing is lost.
            unsafe { libc::nanosleep(&raw const time, core::ptr::null_mut()) };
        }
    }
}

/// [`Posts`] of another process.
#[derive(Clone, Copy, Debug)]
pub struct RemotePosts<'a, M> {
    memory: &'a M,
    at: u64,
}

/// Lets a command write what it posts.
#[derive(Debug)]
pub struct Writing<'a, M> {
    posts: RemotePosts<'a, M>,
    /// The last post before this one, as it is now.
    pub before: Post,
}

impl<M: Memory> Writing<'_, M> {
    /// From now on the process doesn't take up the post before, which may be overwritten.
    ///
    /// # Errors
    /// The memory's.
    pub fn replace(&self) -> Result<(), M::Error> {
        self.posts.set(self.before.next())
    }
}

impl<'a, M: Memory> RemotePosts<'a, M> {
    /// Those at this address.
    pub const fn new(memory: &'a M, at: u64) -> Self {
        Self { memory, at }
    }

    /// The last post.
    ///
    /// # Errors
    /// The memory's.
    pub fn seen(&self) -> Result<Post, M::Error> {
        self.memory.word(self.at + offset_of!(Posts, word) as u64).map(Post::of)
    }

    fn set(&self, post: Post) -> Result<(), M::Error> {
        self.memory.set_word(self.at + offset_of!(Posts, word) as u64, post.word())
    }

    fn why(&self) -> Result<Why, M::Error> {
        let len = self.memory.word(self.at + offset_of!(Posts, why_len) as u64)?;
        let mut why = Why { len: (len as usize).min(WHY), bytes: [0; WHY] };
        self.memory.read(self.at + offset_of!(Posts, why) as u64, &mut why.bytes[..why.len])?;
        Ok(why)
    }

    /// Posts what `write` writes beside the word, unless it says `false`. Waits this long, in all, for a thread to take it up.
    ///
    /// # Errors
    /// The memory's.
    pub fn post(
        &self,
        patience: Duration,
        write: impl FnOnce(&Writing<'a, M>) -> Result<bool, M::Error>,
    ) -> Result<Answer, M::Error>
    where
        M: 'a,
    {
        let begun = Begun::new();
        let mut before = self.seen()?;
        while before.is(PostState::Taken) {
            if begun.elapsed() > TAKES {
                return Ok(Answer::Stopped);
            }
            begun.pause();
            before = self.seen()?;
        }
        if !write(&Writing { posts: Self { ..*self }, before })? {
            return Ok(Answer::NotPosted);
        }
        let post = before.next();
        self.set(post.with(PostState::Posted))?;
        loop {
            let answer = self.answer(post)?;
            if answer != Answer::Nothing || begun.elapsed() >= patience {
                return Ok(answer);
            }
            begun.pause();
        }
    }

    /// What the process has said to this post so far.
    ///
    /// # Errors
    /// The memory's.
    pub fn answer(&self, post: Post) -> Result<Answer, M::Error> {
        let seen = self.seen()?;
        if seen == post.with(PostState::Done) {
            Ok(Answer::Done)
        } else if seen == post.with(PostState::Refused) {
            self.why().map(Answer::Refused)
        } else {
            Ok(Answer::Nothing)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    // SAFETY: only posts are read and written, which live.
    static OWN: OwnMemory = unsafe { OwnMemory::new() };

    fn remote(posts: &Posts) -> RemotePosts<'static, OwnMemory> {
        RemotePosts::new(&OWN, (&raw const *posts).expose_provenance() as u64)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_command_learns_what_becomes_of_its_post() {
        let posts = Posts::new();
        for is_done in [true, false, true] {
            let said = thread::scope(|scope| {
                scope.spawn(|| {
                    let posted = loop {
                        match posts.posted() {
                            Some(posted) => break posted,
                            None => thread::yield_now(),
                        }
                    };
                    let taken = posts.take(posted).unwrap();
                    if is_done { posts.done(taken) } else { posts.refused(taken, b"not now") }
                });
                remote(&posts).post(LONG, |_| Ok(true)).unwrap()
            });
            match said {
                Answer::Done => assert!(is_done),
                Answer::Refused(why) => assert!(!is_done && why.text() == b"not now"),
                said => panic!("{said:?}"),
            }
        }
    }

    #[test]
    fn what_nobody_takes_up_stays_until_it_is_replaced() {
        let posts = Posts::new();
        let post = || remote(&posts).post(Duration::ZERO, |_| Ok(true));
        assert_eq!(post(), Ok(Answer::Nothing));
        let first = posts.posted().unwrap();
        let second = remote(&posts).post(Duration::ZERO, |writing| {
            assert_eq!((writing.before, posts.is_still(first)), (first, true));
            writing.replace()?;
            assert!(!posts.is_posted() && posts.take(first).is_none());
            Ok(true)
        });
        assert_eq!(
            (second, posts.seen()),
            (Ok(Answer::Nothing), first.next().with(PostState::Posted))
        );
        let none = remote(&posts).post(LONG, |_| Ok(false));
        assert_eq!((none, posts.is_posted()), (Ok(Answer::NotPosted), true));
        posts.take(posts.posted().unwrap()).unwrap();
        assert_eq!(post(), Ok(Answer::Stopped));
    }
}
