//! The words of a process that hold the targets of calls to glibc's lock functions: the slots of the program and its
//! libraries, and libc's own symbol table, which later look-ups use.

use super::image::{Image, Symbol, images, is_libc};
use crate::hints::Failure;
use lockwright_contract::attached::{self, Attached, ORIGINALS};
use lockwright_observer::process::Process;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::ops::Range;

/// The functions that lead to our library when attached. Only mutexes are ours: glibc and our library follow the same
/// protocol on each of them. The waits for a condition variable are here because they release a mutex: our versions
/// tell the lock, then call glibc's. `prctl` is here because a process may confine itself, and the library must know.
const NAMES: &[&str] = &[
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pthread_mutex_trylock",
    "pthread_mutex_timedlock",
    "pthread_mutex_clocklock",
    "__pthread_mutex_lock",
    "__pthread_mutex_unlock",
    "__pthread_mutex_trylock",
    "mtx_lock",
    "mtx_unlock",
    "mtx_trylock",
    "mtx_timedlock",
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_clockwait",
    "cnd_wait",
    "cnd_timedwait",
    "prctl",
];

/// The functions that stay redirected even after a detach. glibc's versions refuse to destroy a mutex whose count of
/// holders isn't 0. Our library doesn't maintain that count, and may have released a mutex that glibc's acquired.
const FOR_GOOD: &[&str] = &["pthread_mutex_destroy", "__pthread_mutex_destroy", "mtx_destroy"];

/// In this version, condition variables are pointers. These functions stay unchanged.
const OLD: (&str, &str) = ("pthread_cond_", "GLIBC_2.2.5");

fn is_wanted(name: &str) -> bool {
    NAMES.contains(&name) || FOR_GOOD.contains(&name)
}

/// Our library and libc in the process.
pub(super) struct Two<'a> {
    pub(super) library: Image<'a>,
    pub(super) libc: Image<'a>,
    /// The address of [`Attached`].
    state: u64,
    /// The functions of both, by name.
    functions: BTreeMap<String, Vec<Function>>,
    others: Vec<Image<'a>>,
}

/// A function in one version.
struct Function {
    glibcs: u64,
    ours: u64,
    /// The word for it in libc's symbol table, and its index there.
    at: u64,
    index: u64,
    /// That word's value before we changed it.
    original: u64,
}

/// The library to which the words should lead.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum To {
    Us,
    Glibc,
}

/// A word to be written.
pub(super) struct Change {
    at: u64,
    from: u64,
    to: u64,
}

/// Where the call goes whose target a word holds.
#[derive(Clone, Copy)]
enum LeadsTo {
    /// To one of the two: the word's values for glibc's function and for ours.
    Known { glibcs: u64, ours: u64, is_ours: bool },
    /// Nobody has called it yet. Then the dynamic linker will ask libc's symbol table, which we redirect, too.
    Unbound,
    /// To somebody else's function of that name.
    Elsewhere,
}

/// All words whose calls change sides.
pub(super) struct Redirected {
    /// Those that must be written.
    pub(super) changes: Vec<Change>,
    /// How many there are, written or not.
    pub(super) words: usize,
    /// In how many files.
    pub(super) files: usize,
    /// Of these, how many lead to us also after a detach.
    pub(super) for_good: usize,
}

/// The process's libc, and the other objects. Namespaces made by `dlmopen` have their own.
pub(super) fn libc_of<'a>(images: Vec<Image<'a>>) -> (Vec<Image<'a>>, Vec<Image<'a>>) {
    images.into_iter().partition(is_libc)
}

/// The object that has our variables, unless it is a program with our locks linked in.
fn library_in(images: &[Image<'_>]) -> Result<Option<(usize, u64)>, Failure> {
    for (place, image) in images.iter().enumerate() {
        if !image.name().contains("lockwright") {
            continue;
        }
        let symbols = image.definitions()?;
        if let Some(found) = symbols.iter().find(|symbol| symbol.name == attached::SYMBOL) {
            return Ok(Some((place, image.base.wrapping_add(found.value))));
        }
    }
    Ok(None)
}

impl<'a> Two<'a> {
    /// `None`: the library isn't loaded.
    pub(super) fn find(process: &'a Process) -> Result<Option<Self>, Failure> {
        let (mut libcs, mut others) = libc_of(images(process)?);
        let Some((place, state)) = library_in(&others)? else { return Ok(None) };
        let library = others.remove(place);
        let (Some(libc), true) = (libcs.pop(), libcs.is_empty()) else {
            return Err(Failure::new(format!(
                "process {} has no libc yet, or several",
                process.pid
            )));
        };
        let size = process.words(state, 1)?[0] as u32;
        if size as usize != size_of::<Attached>() {
            return Err(Failure::new(format!(
                "process {} runs with another version of lockwright than this command",
                process.pid
            ))
            .hint(
                "restart it with this version's library; lockwright --version says which that is",
            ));
        }
        let mut two = Self { library, libc, state, functions: BTreeMap::new(), others };
        two.functions = two.functions(process)?;
        Ok(Some(two))
    }

    /// How the library was loaded.
    pub(super) fn how(&self, process: &Process) -> Result<u32, Failure> {
        let mut word = [0; 4];
        process.read(self.state + offset_of!(Attached, how) as u64, &mut word)?;
        Ok(u32::from_ne_bytes(word))
    }

    fn functions(&self, process: &Process) -> Result<BTreeMap<String, Vec<Function>>, Failure> {
        let mut functions = BTreeMap::<String, Vec<Function>>::new();
        let ours: Vec<Symbol> = self.library.definitions()?;
        let originals = self.originals(process)?;
        for symbol in self.libc.definitions()? {
            let is_old = symbol.name.starts_with(OLD.0) && symbol.version == OLD.1;
            if !is_wanted(&symbol.name) || is_old {
                continue;
            }
            // If our linker ignored versions, each name occurs only once.
            let mut named = ours.iter().filter(|own| own.name == symbol.name);
            let Some(own) =
                named.clone().find(|own| own.version == symbol.version).or(named.next())
            else {
                continue;
            };
            let original = originals.get(&symbol.index).copied().unwrap_or(symbol.value);
            functions.entry(symbol.name).or_default().push(Function {
                glibcs: self.libc.base.wrapping_add(original),
                ours: self.library.base.wrapping_add(own.value),
                at: symbol.at,
                index: symbol.index,
                original,
            });
        }
        Ok(functions)
    }

    /// The original values of libc's symbols, by their indices.
    fn originals(&self, process: &Process) -> Result<BTreeMap<u64, u64>, Failure> {
        let at = |field: usize| self.state + field as u64;
        let count = process.words(at(offset_of!(Attached, count)), 1)?[0];
        let count = (count as usize).min(ORIGINALS);
        let words = process.words(at(offset_of!(Attached, originals)), count * 2)?;
        Ok(words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
    }

    /// Stores the original values of libc's symbols, unless an earlier attach did so.
    pub(super) fn keep_originals(&self, process: &Process) -> Result<(), Failure> {
        if !self.originals(process)?.is_empty() {
            return Ok(());
        }
        let all: Vec<u64> =
            self.functions.values().flatten().flat_map(|f| [f.index, f.original]).collect();
        if all.len() > ORIGINALS * 2 {
            return Err(Failure::new(format!(
                "process {}'s libc has too many versions",
                process.pid
            )));
        }
        let at = |field: usize| self.state + field as u64;
        let bytes: Vec<u8> = all.iter().flat_map(|word| word.to_ne_bytes()).collect();
        process.write(at(offset_of!(Attached, originals)), &bytes)?;
        let count = (all.len() / 2) as u64;
        process.write(at(offset_of!(Attached, count)), &count.to_ne_bytes())
    }

    /// Stores in the process how the library was loaded.
    pub(super) fn set_how(&self, process: &Process, how: u32) -> Result<(), Failure> {
        process.write(self.state + offset_of!(Attached, how) as u64, &how.to_ne_bytes())
    }

    /// The places of the words, whatever their values are.
    pub(super) fn places(&self) -> Result<Vec<WordPlace>, Failure> {
        let mut places = Vec::new();
        for image in &self.others {
            let slots = image.slots(|name| self.functions.contains_key(name))?;
            let of = |slot: super::image::Slot| WordPlace {
                at: slot.at,
                name: slot.name,
                owner: image.name(),
                own: image.range.clone(),
                symbol: false,
            };
            places.extend(slots.into_iter().map(of));
        }
        for (name, functions) in &self.functions {
            let of = |function: &Function| WordPlace {
                at: function.at,
                name: name.clone(),
                owner: self.libc.name(),
                own: 0..0,
                symbol: true,
            };
            places.extend(functions.iter().map(of));
        }
        Ok(places)
    }

    /// What redirects all calls.
    pub(super) fn redirected(
        &self,
        process: &Process,
        places: &[WordPlace],
        to: To,
    ) -> Result<Redirected, Failure> {
        let (mut changes, mut files) = (Vec::new(), BTreeSet::new());
        let (mut words, mut for_good) = (0, 0);
        for place in places {
            let way = self.way(process, place)?;
            if matches!(way, LeadsTo::Elsewhere) {
                continue;
            }
            let is_for_good = FOR_GOOD.contains(&place.name.as_str());
            words += 1;
            for_good += usize::from(is_for_good);
            files.insert(&place.owner);
            let at = place.at;
            match (way, to) {
                (LeadsTo::Known { glibcs, ours, is_ours: false }, To::Us) => {
                    changes.push(Change { at, from: glibcs, to: ours });
                }
                (LeadsTo::Known { glibcs, ours, is_ours: true }, To::Glibc) if !is_for_good => {
                    changes.push(Change { at, from: ours, to: glibcs });
                }
                _ => {}
            }
        }
        Ok(Redirected { changes, words, files: files.len(), for_good })
    }

    fn way(&self, process: &Process, place: &WordPlace) -> Result<LeadsTo, Failure> {
        let now = process.words(place.at, 1)?[0];
        for function in &self.functions[&place.name] {
            let (mut glibcs, mut ours) = (function.glibcs, function.ours);
            if place.symbol {
                if function.at != place.at {
                    continue;
                }
                glibcs = glibcs.wrapping_sub(self.libc.base);
                ours = ours.wrapping_sub(self.libc.base);
            }
            if now == glibcs || now == ours {
                return Ok(LeadsTo::Known { glibcs, ours, is_ours: now == ours });
            }
        }
        // Until its first call, a slot leads to its own file's code that asks the dynamic linker.
        Ok(if place.own.contains(&now) { LeadsTo::Unbound } else { LeadsTo::Elsewhere })
    }

    /// Writes the changes. The process's threads are stopped.
    pub(super) fn write(&self, process: &Process, changes: &[Change]) -> Result<(), Failure> {
        for change in changes {
            debug_assert_ne!(change.from, change.to);
            process.write(change.at, &change.to.to_ne_bytes())?;
        }
        Ok(())
    }
}

/// The place of such a word.
pub(super) struct WordPlace {
    at: u64,
    name: String,
    owner: String,
    /// Where that file is mapped; empty for a symbol.
    own: Range<u64>,
    /// It is a symbol of libc: its value is an offset from libc's base.
    symbol: bool,
}
