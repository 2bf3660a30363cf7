//! The policies of a running process, as a command reads and changes them: the other side of `lockwright_contract::programs::mailbox`.

mod posting;

pub use posting::{Answered, Pending, Prepared, TooLarge};

use lockwright_contract::post::remote::{Memory, RemotePosts};
use lockwright_contract::programs::image::NAME;
use lockwright_contract::programs::mailbox::{
    LOADED, MAGIC, Programs, SLOTS, SlotState, TAGS, TOO_SLOW, TURN, Tag, tag_places,
};
use lockwright_contract::programs::maps::{Reported, View};
use lockwright_contract::text::unpadded;
use lockwright_platform::hooks::Hook;
use std::mem::offset_of;

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
    /// It is on lease ([`lockwright_contract::mailbox`]).
    pub is_leased: bool,
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
        if !memory.has::<Programs>(at, MAGIC)? {
            return Ok(None);
        }
        let mut control = Self { memory, at, tags: 0, room: 0 };
        control.tags = control.word64(offset_of!(Programs, tags))?;
        control.room = control.word64(offset_of!(Programs, room))?;
        Ok(Some(control))
    }

    fn word(&self, offset: usize) -> Result<u32, M::Error> {
        self.memory.word(self.at + offset as u64)
    }

    fn word64(&self, offset: usize) -> Result<u64, M::Error> {
        self.memory.word64(self.at + offset as u64)
    }

    fn set(&self, offset: usize, value: u32) -> Result<(), M::Error> {
        self.memory.set_word(self.at + offset as u64, value)
    }

    fn posts(&self) -> RemotePosts<'a, M> {
        RemotePosts::new(self.memory, self.at + offset_of!(Programs, posts) as u64)
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
            if state(&bytes) == state(&again) && matches!(state(&again) % TURN, 0..=TOO_SLOW) {
                break;
            }
            bytes = again;
        }
        if !matches!(state(&bytes) % TURN, LOADED | TOO_SLOW) {
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
        let slow = slow_hook.filter(|_| state(&bytes) % TURN == TOO_SLOW);
        let name = offset_of!(SlotState, name);
        Ok(Some(InSlot {
            slot,
            name: text(&bytes[name..name + NAME]),
            version: word(&bytes, offset_of!(SlotState, version)),
            is_leased: word(&bytes, offset_of!(SlotState, leased)) != 0,
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
        let mut data = vec![0; len.min(lockwright_contract::programs::image::LARGEST_DATA)];
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
    String::from_utf8_lossy(unpadded(name)).into_owned()
}

#[cfg(test)]
mod tests;
