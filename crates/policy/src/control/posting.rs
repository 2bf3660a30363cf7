//! Posts requests, and waits until the process takes them up.

use super::{Control, part, text};
use crate::image::Image;
use lockwright_contract::post::PostState;
use lockwright_contract::post::remote::{Answer, Begun, Memory, Writing};
use lockwright_contract::programs::image::{ImageHeader, LARGEST, NAME};
use lockwright_contract::programs::mailbox::{LOAD, Piece, Programs, ROOM, Request, UNLOAD, VOID};
use std::mem::offset_of;
use std::time::Duration;

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It has been done.
    Done,
    /// It was refused, for this reason.
    Refused(String),
    /// No thread has waited for a mutex so far. The next one that does takes it up, unless a later request is for the same slot. If it is
    /// refused then, nobody is told.
    Nothing,
    /// It is not posted: the requests that no thread has taken up leave no room for it.
    Full,
}

/// What is posted and not yet taken up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pending {
    /// A policy for a slot.
    Load {
        /// The slot.
        slot: u32,
        /// The policy's name.
        name: String,
        /// Its version in the store; 0: it has none.
        version: u32,
        /// It is on lease ([`lockwright_contract::mailbox`]).
        is_leased: bool,
    },
    /// This slot is to be emptied.
    Unload(u32),
}

/// A policy doesn't fit into the memory in which a process is given one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the policy is too large: {code} bytes of code, of at most {LARGEST}, and {pieces} bytes of the maps' first contents; both \
     together may have {}",
    ROOM - size_of::<Request>()
)]
pub struct TooLarge {
    /// Bytes of code.
    code: usize,
    /// Bytes of the maps' first contents.
    pieces: usize,
}

/// A policy, ready to be posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    request: Request,
    image: Vec<u8>,
}

impl Prepared {
    /// Prepares one whose hooks may take `budget_ns` on average.
    ///
    /// # Errors
    /// It is too large.
    pub fn new(image: &Image, budget_ns: u32) -> Result<Self, TooLarge> {
        let pieces = pieces(&image.data);
        let (code, pieces_len) = (image.code.len(), pieces.len());
        let mut all = image.code.clone();
        all.resize(code.next_multiple_of(8), 0);
        all.extend(pieces);
        if code > LARGEST || size_of::<Request>() + all.len() > ROOM {
            return Err(TooLarge { code, pieces: pieces_len });
        }
        let (code_len, pieces_len) = (code as u32, pieces_len as u32);
        let request =
            Request { what: LOAD, slot: 0, code_len, pieces_len, budget_ns, ..Request::default() };
        Ok(Self { request, image: all })
    }

    /// The same, whose slot is on lease ([`lockwright_contract::mailbox`]).
    pub fn on_lease(&self) -> Self {
        Self { request: Request { leased: 1, ..self.request }, ..self.clone() }
    }
}

impl<M: Memory> Control<'_, M> {
    /// Puts a policy into a slot, whatever it had. Waits this long for a thread to take it up.
    ///
    /// # Errors
    /// The memory's.
    pub fn load(
        &self,
        slot: u32,
        policy: &Prepared,
        patience: Duration,
    ) -> Result<Answered, M::Error> {
        self.post(Request { slot, ..policy.request }, &policy.image, patience)
    }

    /// Empties a slot, and gives its memory back as soon as no thread is in it.
    ///
    /// # Errors
    /// The memory's.
    pub fn unload(&self, slot: u32, patience: Duration) -> Result<Answered, M::Error> {
        let begun = Begun::new();
        loop {
            let request = Request { what: UNLOAD, slot, ..Request::default() };
            let said = self.post(request, &[], patience)?;
            let is_clean = self.word(offset_of!(Programs, retired))? == 0;
            // A thread that had lost its CPU in a hook is out of it soon.
            if said != Answered::Done || is_clean || begun.elapsed() >= patience {
                return Ok(said);
            }
            begun.pause();
        }
    }

    /// The requests in the room, one after the other.
    fn queue(&self) -> Result<Vec<u8>, M::Error> {
        let len = self.word(offset_of!(Programs, len))? as usize;
        let mut queue = vec![0; len.min(ROOM)];
        self.memory.read(self.room, &mut queue)?;
        Ok(queue)
    }

    /// Posts a request, and waits until it is taken up.
    fn post(
        &self,
        request: Request,
        image: &[u8],
        patience: Duration,
    ) -> Result<Answered, M::Error> {
        let own = [&request.bytes()[..], image].concat();
        let answer = self.posts().post(patience, |writing| {
            let is_queue = writing.before.is(PostState::Posted);
            let queue = if is_queue { self.queue()? } else { Vec::new() };
            self.put(writing, &queue, request.slot, own)
        })?;
        Ok(match answer {
            Answer::Done => Answered::Done,
            Answer::Refused(why) => {
                Answered::Refused(String::from_utf8_lossy(why.text()).into_owned())
            }
            Answer::Nothing => Answered::Nothing,
            Answer::NotPosted => Answered::Full,
            Answer::Stopped => {
                Answered::Refused("it is stopped while it changes its policies".to_owned())
            }
        })
    }

    /// Writes a request behind the others in the queue, except for those for the same slot. `false`: it doesn't fit.
    fn put(
        &self,
        writing: &Writing<'_, M>,
        queue: &[u8],
        slot: u32,
        own: Vec<u8>,
    ) -> Result<bool, M::Error> {
        let (mut kept, mut same) = (Vec::new(), Vec::new());
        for (at, request, bytes) in requests(queue) {
            match request.what {
                VOID => {}
                _ if request.slot == slot => same.push(at),
                _ => kept.extend(bytes),
            }
        }
        let is_first = kept.is_empty();
        if !is_first && queue.len() + own.len() <= ROOM {
            // What has been posted stays, whatever becomes of this command. So earlier requests for the slot go last.
            self.memory.write(self.room + queue.len() as u64, &own)?;
            self.set(offset_of!(Programs, len), (queue.len() + own.len()) as u32)?;
            for at in same {
                self.memory.set_word(self.room + (at + offset_of!(Request, what)) as u64, VOID)?;
            }
        } else {
            kept.extend(own);
            if kept.len() > ROOM {
                return Ok(false);
            }
            writing.replace()?;
            self.memory.write(self.room, &kept)?;
            self.set(offset_of!(Programs, len), kept.len() as u32)?;
        }
        Ok(true)
    }

    /// What is posted and not yet done, in that order.
    ///
    /// # Errors
    /// The memory's.
    pub fn pending(&self) -> Result<Vec<Pending>, M::Error> {
        let queue = loop {
            let post = self.posts().seen()?;
            if !post.is(PostState::Posted) && !post.is(PostState::Taken) {
                return Ok(Vec::new());
            }
            let queue = self.queue()?;
            if post == self.posts().seen()? {
                break queue;
            }
        };
        let pending = requests(&queue).filter_map(|(_, request, bytes)| {
            let slot = request.slot;
            let header = &bytes[size_of::<Request>()..];
            match request.what {
                UNLOAD => Some(Pending::Unload(slot)),
                LOAD if header.len() >= size_of::<ImageHeader>() => Some(Pending::Load {
                    slot,
                    name: text(&header[offset_of!(ImageHeader, name)..][..NAME]),
                    version: u32::from_ne_bytes(part(header, offset_of!(ImageHeader, version))),
                    is_leased: request.leased != 0,
                }),
                _ => None,
            }
        });
        Ok(pending.collect())
    }
}

/// The requests in a queue: where each begins, what it says, and its bytes.
fn requests(queue: &[u8]) -> impl Iterator<Item = (usize, Request, &[u8])> {
    let mut rest = queue;
    std::iter::from_fn(move || {
        let (at, posted) = (queue.len() - rest.len(), rest);
        let (request, _, _, behind) = Request::first(posted)?;
        rest = behind;
        Some((at, request, &posted[..posted.len() - behind.len()]))
    })
}

/// The parts of the maps' memory that aren't zero, as the mailbox has them.
pub(super) fn pieces(data: &[u8]) -> Vec<u8> {
    /// Shorter gaps cost less than another piece.
    const GAP: usize = 4;
    let mut pieces = Vec::new();
    let words: Vec<_> = data.chunks(8).map(|word| word.iter().any(|byte| *byte != 0)).collect();
    let mut at = 0;
    while let Some(first) = words[at..].iter().position(|is_set| *is_set).map(|skip| at + skip) {
        let mut end = first + 1;
        while let Some(next) = words[end..].iter().take(GAP).position(|is_set| *is_set) {
            end += next + 1;
        }
        let bytes = &data[first * 8..(end * 8).min(data.len())];
        let piece = Piece { at: first as u32 * 8, len: bytes.len() as u32 };
        pieces.extend(piece.at.to_ne_bytes());
        pieces.extend(piece.len.to_ne_bytes());
        pieces.extend(bytes);
        pieces.resize(pieces.len().next_multiple_of(8), 0);
        at = end;
    }
    pieces
}
