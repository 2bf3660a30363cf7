//! The policies of a running process, as a command reads and changes them: the other side of `lockwright_programs::mailbox`.

use lockwright_platform::hooks::Hook;
use lockwright_programs::image::{ImageHeader, LARGEST, NAME};
use lockwright_programs::mailbox::{
    DONE, EMPTY, LOAD, LOADED, MAGIC, POST, POSTED, Piece, Programs, REFUSED, ROOM, SLOTS, STATE,
    SlotState, TAGS, TAKEN, TEXT, TOO_SLOW, Tag, UNLOAD, tag_places,
};
use lockwright_programs::maps::{Reported, View};
use std::mem::offset_of;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The memory of the process. What writes there keeps other commands out meanwhile.
pub trait Memory {
    /// Why it can't be read or written.
    type Error;
    /// Reads.
    ///
    /// # Errors
    /// The process is gone, for one.
    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Self::Error>;
    /// Writes.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Self::Error>;
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It has been done.
    Done,
    /// It was refused, for this reason.
    Refused(String),
    /// No thread has waited for a mutex so far. The next one that does takes it up, unless something else is posted first.
    Nothing,
}

/// A hook that has been asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AskedHook {
    /// The hook.
    pub hook: Hook,
    /// How often, about: it is sampled.
    pub asked: u64,
    /// How long it takes on average, ns. `None`: it has not been measured yet.
    pub mean_ns: Option<f64>,
}

/// A policy in a slot.
#[derive(Clone, Debug, PartialEq)]
pub struct InSlot {
    /// The slot, from 1.
    pub slot: u32,
    /// Its name.
    pub name: String,
    /// Its version in the store; 0: it has none.
    pub version: u32,
    /// Its hooks.
    pub hooks: Vec<AskedHook>,
    /// The longest time that a hook may take on average, ns.
    pub budget_ns: u32,
    /// It has been taken off, because this hook took this many ns.
    pub too_slow: Option<(Hook, u64)>,
    /// When it was loaded, ns of `CLOCK_MONOTONIC`.
    pub since_ns: u64,
    /// Questions that it wasn't asked: the thread was in a hook already, or has no cell.
    pub unasked: u64,
    /// Where its maps are, and how many bytes.
    data: (u64, usize),
}

/// What is posted and not yet taken up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pending {
    /// A policy of this name, for this slot.
    Load(u32, String),
    /// This slot is to be emptied.
    Unload(u32),
}

/// How often holders got waiters' priorities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boosts {
    /// How often they did.
    pub given: u32,
    /// How often the kernel refused, or the holder wasn't known.
    pub refused: u32,
    /// How many have one now.
    pub now: u32,
}

/// A process's policies.
#[derive(Debug)]
pub struct Control<'a, M> {
    memory: &'a M,
    at: u64,
    tags: u64,
    room: u64,
}

impl<'a, M: Memory> Control<'a, M> {
    /// The policies at the address of `lockwright_programs`. `None`: another version of lockwright runs there.
    ///
    /// # Errors
    /// The memory's.
    pub fn open(memory: &'a M, at: u64) -> Result<Option<Self>, M::Error> {
        let mut control = Self { memory, at, tags: 0, room: 0 };
        if control.word64(offset_of!(Programs, magic))? != MAGIC
            || control.word(offset_of!(Programs, size))? as usize != size_of::<Programs>()
        {
            return Ok(None);
        }
        control.tags = control.word64(offset_of!(Programs, tags))?;
        control.room = control.word64(offset_of!(Programs, room))?;
        Ok(Some(control))
    }

    fn word(&self, offset: usize) -> Result<u32, M::Error> {
        let mut bytes = [0; 4];
        self.memory.read(self.at + offset as u64, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn word64(&self, offset: usize) -> Result<u64, M::Error> {
        let mut bytes = [0; 8];
        self.memory.read(self.at + offset as u64, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn set(&self, offset: usize, value: u32) -> Result<(), M::Error> {
        self.memory.write(self.at + offset as u64, &value.to_ne_bytes())
    }

    fn state(&self) -> Result<u32, M::Error> {
        self.word(offset_of!(Programs, state))
    }

    /// Puts a policy into a slot, whatever it had. `code` and `data`: as `image::build` makes them. A hook may
    /// take `budget_ns` on average. Waits so long for a thread to take it up.
    ///
    /// # Errors
    /// The memory's.
    pub fn load(
        &self,
        slot: u32,
        code: &[u8],
        data: &[u8],
        budget_ns: u32,
        patience: Duration,
    ) -> Result<Answered, M::Error> {
        let pieces = pieces(data);
        let begin = code.len().next_multiple_of(8);
        if code.len() > LARGEST || begin + pieces.len() > ROOM {
            let (code, pieces) = (code.len(), pieces.len());
            return Ok(Answered::Refused(format!(
                "the policy is too large: {code} bytes of code, of at most {LARGEST}, and {pieces} bytes of the maps' first \
                 contents; both together may have {ROOM}"
            )));
        }
        self.post(patience, |post| {
            self.memory.write(self.room, code)?;
            self.memory.write(self.room + begin as u64, &pieces)?;
            self.set(offset_of!(Programs, code_len), code.len() as u32)?;
            self.set(offset_of!(Programs, pieces_len), pieces.len() as u32)?;
            self.set(offset_of!(Programs, budget_ns), budget_ns)?;
            self.request(post, LOAD, slot)
        })
    }

    /// Empties a slot, and gives its memory back as soon as no thread is in it.
    ///
    /// # Errors
    /// The memory's.
    pub fn unload(&self, slot: u32, patience: Duration) -> Result<Answered, M::Error> {
        let begun = Instant::now();
        loop {
            let said = self.post(patience, |post| self.request(post, UNLOAD, slot))?;
            let is_clean = self.word(offset_of!(Programs, retired))? == 0;
            // A thread that had lost its CPU in a hook is out of it soon.
            if said != Answered::Done || is_clean || begun.elapsed() >= patience {
                return Ok(said);
            }
            sleep(Duration::from_millis(1));
        }
    }

    fn request(&self, post: u32, what: u32, slot: u32) -> Result<(), M::Error> {
        self.set(offset_of!(Programs, what), what)?;
        self.set(offset_of!(Programs, slot), slot)?;
        self.set(offset_of!(Programs, state), post | POSTED)
    }

    /// Posts something by `write`, which is told the post's number, and waits until it is taken up.
    fn post(
        &self,
        patience: Duration,
        write: impl FnOnce(u32) -> Result<(), M::Error>,
    ) -> Result<Answered, M::Error> {
        let begun = Instant::now();
        let mut before = self.state()?;
        while before & STATE == TAKEN {
            if begun.elapsed() > patience {
                let why = "it is stopped while it changes its policies";
                return Ok(Answered::Refused(why.to_owned()));
            }
            sleep(Duration::from_millis(1));
            before = self.state()?;
        }
        let post = before.wrapping_add(POST) & !STATE;
        // The process must not take up what was posted before while we replace it.
        self.set(offset_of!(Programs, state), post | EMPTY)?;
        write(post)?;
        loop {
            let state = self.state()?;
            if state == post | DONE {
                return Ok(Answered::Done);
            } else if state == post | REFUSED {
                let len = self.word(offset_of!(Programs, text_len))? as usize;
                let mut why = vec![0; len.min(TEXT)];
                self.memory.read(self.at + offset_of!(Programs, text) as u64, &mut why)?;
                return Ok(Answered::Refused(String::from_utf8_lossy(&why).into_owned()));
            } else if begun.elapsed() > patience {
                return Ok(Answered::Nothing);
            }
            // If locks are contended, this takes microseconds.
            sleep((begun.elapsed() / 8).clamp(Duration::from_micros(20), Duration::from_millis(1)));
        }
    }

    /// What is posted and not yet taken up.
    ///
    /// # Errors
    /// The memory's.
    pub fn pending(&self) -> Result<Option<Pending>, M::Error> {
        let state = self.state()?;
        let slot = self.word(offset_of!(Programs, slot))?;
        let pending = if self.word(offset_of!(Programs, what))? == LOAD {
            let mut name = [0; NAME];
            self.memory.read(self.room + offset_of!(ImageHeader, name) as u64, &mut name)?;
            Pending::Load(slot, text(&name))
        } else {
            Pending::Unload(slot)
        };
        Ok((state & STATE == POSTED && state == self.state()?).then_some(pending))
    }

    /// Takes back what is posted and not yet taken up.
    ///
    /// # Errors
    /// The memory's.
    pub fn cancel(&self) -> Result<(), M::Error> {
        let state = self.state()?;
        if state & STATE == POSTED {
            self.set(offset_of!(Programs, state), state.wrapping_add(POST) & !STATE | EMPTY)?;
        }
        Ok(())
    }

    /// The policies that the process has, by slot, including those that were taken off.
    ///
    /// # Errors
    /// The memory's.
    pub fn slots(&self) -> Result<Vec<InSlot>, M::Error> {
        let mut all = Vec::new();
        for slot in 1..SLOTS as u32 {
            all.extend(self.in_slot(slot)?);
        }
        Ok(all)
    }

    /// The policy in this slot.
    ///
    /// # Errors
    /// The memory's.
    pub fn in_slot(&self, slot: u32) -> Result<Option<InSlot>, M::Error> {
        if !(1..SLOTS as u32).contains(&slot) {
            return Ok(None);
        }
        let base =
            self.at + (offset_of!(Programs, slots) + slot as usize * size_of::<SlotState>()) as u64;
        let copy = || {
            let mut bytes = [0; size_of::<SlotState>()];
            self.memory.read(base, &mut bytes).map(|()| bytes)
        };
        let word = |bytes: &[u8], at| u32::from_ne_bytes(part(bytes, at));
        let word64 = |bytes: &[u8], at| u64::from_ne_bytes(part(bytes, at));
        let state = |bytes: &[u8]| word(bytes, offset_of!(SlotState, state));
        let mut bytes = copy()?;
        // If it changes meanwhile, read it again.
        for _ in 0..1000 {
            let again = copy()?;
            if state(&bytes) == state(&again) && matches!(state(&again) % POST, 0..=TOO_SLOW) {
                break;
            }
            bytes = again;
        }
        if !matches!(state(&bytes) % POST, LOADED | TOO_SLOW) {
            return Ok(None);
        }
        let bits = word(&bytes, offset_of!(SlotState, hooks));
        let of = |hook: Hook, at| word64(&bytes, at + hook as usize * 8);
        let hooks = Hook::ALL.into_iter().filter(|hook| bits & hook.bit() != 0).map(|hook| {
            let samples = of(hook, offset_of!(SlotState, samples));
            let sum = of(hook, offset_of!(SlotState, sampled_ns));
            let mean_ns = (samples > 0).then(|| sum as f64 / samples as f64);
            AskedHook { hook, asked: of(hook, offset_of!(SlotState, asked)), mean_ns }
        });
        let slow_hook =
            Hook::ALL.get(word(&bytes, offset_of!(SlotState, slow_hook)) as usize).copied();
        let slow = slow_hook.filter(|_| state(&bytes) % POST == TOO_SLOW);
        let name = offset_of!(SlotState, name);
        Ok(Some(InSlot {
            slot,
            name: text(&bytes[name..name + NAME]),
            version: word(&bytes, offset_of!(SlotState, version)),
            hooks: hooks.collect(),
            budget_ns: word(&bytes, offset_of!(SlotState, budget_ns)),
            too_slow: slow.map(|hook| (hook, word64(&bytes, offset_of!(SlotState, slow_ns)))),
            since_ns: word64(&bytes, offset_of!(SlotState, since_ns)),
            unasked: word64(&bytes, offset_of!(SlotState, unasked)),
            data: (
                word64(&bytes, offset_of!(SlotState, data)),
                word64(&bytes, offset_of!(SlotState, data_len)) as usize,
            ),
        }))
    }

    /// The first slot without a policy. `None`: all have one.
    ///
    /// # Errors
    /// The memory's.
    pub fn free_slot(&self) -> Result<Option<u32>, M::Error> {
        let taken: Vec<_> = self.slots()?.into_iter().map(|policy| policy.slot).collect();
        Ok((1..SLOTS as u32).find(|slot| !taken.contains(slot)))
    }

    /// How often holders got waiters' priorities, over all policies.
    ///
    /// # Errors
    /// The memory's.
    pub fn boosts(&self) -> Result<Boosts, M::Error> {
        Ok(Boosts {
            given: self.word(offset_of!(Programs, boosts))?,
            refused: self.word(offset_of!(Programs, unboosted))?,
            now: self.word(offset_of!(Programs, boosted))?,
        })
    }

    /// A copy of a policy's maps, for [`View::all`]; empty if it is taken off: its maps may be gone. What was changed meanwhile may be
    /// half old, half new.
    ///
    /// # Errors
    /// The memory's: the policy may just have been unloaded.
    pub fn data(&self, policy: &InSlot) -> Result<Vec<u8>, M::Error> {
        let (at, len) = if policy.too_slow.is_none() { policy.data } else { (0, 0) };
        let mut data = vec![0; len.min(lockwright_programs::image::LARGEST_DATA)];
        if !data.is_empty() {
            self.memory.read(at, &mut data)?;
        }
        Ok(data)
    }

    /// The records in the ring with this number among a policy's maps, from record `from` on: one more than the last
    /// [`Reported::number`], or 0.
    ///
    /// # Errors
    /// As [`data`](Self::data).
    pub fn records(&self, policy: &InSlot, map: u32, from: u64) -> Result<Vec<Reported>, M::Error> {
        let [before, during, after] = [self.data(policy)?, self.data(policy)?, self.data(policy)?];
        let ring = |data| View::all(data).find(|view| view.number == map);
        Ok(match (ring(&before), ring(&during), ring(&after)) {
            (Some(before), Some(during), Some(after)) => {
                during.records(&before, &after, from).collect()
            }
            _ => Vec::new(),
        })
    }

    fn tag_at(&self, place: usize) -> Result<(u32, u64), M::Error> {
        let mut bytes = [0; size_of::<Tag>()];
        self.memory.read(self.tags + (place * size_of::<Tag>()) as u64, &mut bytes)?;
        let tid = u32::from_ne_bytes(part(&bytes, offset_of!(Tag, tid)));
        Ok((tid, u64::from_ne_bytes(part(&bytes, offset_of!(Tag, tag)))))
    }

    /// Tags a thread; 0: not any more. `exists`: does the process have a thread with this id? `false`: too many threads have tags.
    ///
    /// # Errors
    /// The memory's.
    pub fn tag(&self, tid: u32, tag: u64, exists: impl Fn(u32) -> bool) -> Result<bool, M::Error> {
        let mut place = None;
        for at in tag_places(tid) {
            let (owner, _) = self.tag_at(at)?;
            if owner == tid {
                place = Some(at);
                break;
            }
            if place.is_none() && (owner == 0 || !exists(owner)) {
                place = Some(at);
            }
        }
        let Some(place) = place else { return Ok(false) };
        // In one write: the process sees either the thread's old tag or the new one, or none.
        let mut bytes = [0; size_of::<Tag>()];
        bytes[offset_of!(Tag, tid)..][..4].copy_from_slice(&tid.to_ne_bytes());
        bytes[offset_of!(Tag, tag)..][..8].copy_from_slice(&tag.to_ne_bytes());
        self.memory.write(self.tags + (place * size_of::<Tag>()) as u64, &bytes)?;
        self.set(offset_of!(Programs, tagged), 1)?;
        Ok(true)
    }

    /// All threads that have a tag.
    ///
    /// # Errors
    /// The memory's.
    pub fn tags(&self) -> Result<Vec<(u32, u64)>, M::Error> {
        let mut all = Vec::new();
        for place in 0..TAGS {
            all.extend(Some(self.tag_at(place)?).filter(|(tid, tag)| *tid != 0 && *tag != 0));
        }
        Ok(all)
    }
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("as many bytes as asked for")
}

/// A name that is padded with zeroes.
fn text(name: &[u8]) -> String {
    let len = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..len]).into_owned()
}

/// The parts of the maps' memory that aren't zero, as the mailbox has them.
fn pieces(data: &[u8]) -> Vec<u8> {
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

#[cfg(test)]
mod tests;
