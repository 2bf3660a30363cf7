//! Gives a running process a policy: into a slot, then a table whose rules say which locks ask it.

use super::chosen::Chosen;
use super::remote::{KnownPolicy, Remote, RemotePlace};
use super::slots::{Asked, Slots};
use super::{over, readers, stats};
use crate::catalog;
use crate::ctl::epochs;
use crate::ctl::guard::{End, Guard, Guarded};
use crate::ctl::judge::Terms;
use crate::ctl::target::{For, Target, contended};
use crate::hints::Failure;
use lockwright_bench::catch_ends;
use lockwright_contract::mailbox::DROPS;
use lockwright_contract::programs::mailbox::{BUDGET_NS, SLOTS};
use lockwright_observer::lease::Lease;
use lockwright_observer::mailbox::{self, MailboxPlace, PATIENCE};
use lockwright_observer::process::Process;
use lockwright_observer::table::Table;
use lockwright_platform::hooks::Hook;
use lockwright_policy::control::Prepared;
use lockwright_policy::image;
use lockwright_policy::only::only_for;
use lockwright_policy::verify::{Verified, verify};
use std::cell::RefCell;
use std::fmt::Display;
use std::time::Duration;

/// What is said of a load that no thread has taken up.
pub(crate) const LATER: &str = "; it takes effect when a thread next waits for a mutex";

/// The locks that a policy is for, as the user names them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Whose {
    /// Locks as `lockwright switch` lists them.
    pub(crate) locks: Vec<String>,
    /// Functions that wait for them.
    pub(crate) sites: Vec<String>,
    /// Libraries whose functions do.
    pub(crate) libraries: Vec<String>,
    /// Kinds of mutexes.
    pub(crate) kinds: Vec<String>,
}

/// A policy that was verified and compiled.
pub(crate) struct Compiled {
    pub(crate) title: String,
    word: String,
    name: String,
    version: u32,
    budget_ns: u32,
    verified: Verified,
    pub(super) prepared: Prepared,
}

impl Compiled {
    /// A hook may take `budget_ns` on average.
    pub(crate) fn new(chosen: &Chosen, budget_ns: u32) -> Result<Self, Failure> {
        let verified = chosen.verified()?;
        let (name, version) = (chosen.name.clone(), chosen.version);
        let prepared = prepared(&verified, &name, version, budget_ns)
            .map_err(|why| cannot(&why, &chosen.title(), &chosen.word()))?;
        let (title, word) = (chosen.title(), chosen.word());
        Ok(Self { title, word, name, version, budget_ns, verified, prepared })
    }

    /// Verifies and compiles the policies of a program, by their slots.
    pub(crate) fn all(slots: &Slots) -> Result<Vec<(u32, Self)>, Failure> {
        let one = |(slot, asked, place): (u32, &Asked, &str)| {
            let compiled = asked.chosen().and_then(|chosen| Self::new(&chosen, BUDGET_NS));
            Ok((slot, compiled.map_err(|failure| failure.within(place))?))
        };
        slots.each().map(one).collect()
    }

    /// As the slot needs it by this table: one for some locks is for some readers-writer locks, too. `None`: as it is.
    pub(super) fn for_rules(
        &self,
        process: &Process,
        table: &Table,
        slot: u32,
    ) -> Result<Option<Prepared>, Failure> {
        let hooks = self.verified.object().hooks();
        if hooks & Hook::RwBias.bit() == 0 {
            return Ok(None);
        }
        let Some(locks) = readers::asked(process, table, slot)? else { return Ok(None) };
        if locks.is_empty() && hooks == Hook::RwBias.bit() {
            return Err(Failure::new(format!(
                "{} is for readers-writer locks, and these rules select none",
                self.title
            ))
            .hint(
                "--lock NAME selects one; without --lock, --site, --library and --kind, all ask",
            ));
        }
        let cannot = |why: &dyn Display| cannot(why, &self.title, &self.word);
        let only = verify(only_for(self.verified.object(), &locks));
        let only = only.map_err(|_| cannot(&"its rw_bias has too many instructions"))?;
        let prepared = prepared(&only, &self.name, self.version, self.budget_ns);
        prepared.map(Some).map_err(|why| cannot(&why))
    }
}

/// Compiles a policy.
fn prepared(
    verified: &Verified,
    name: &str,
    version: u32,
    budget_ns: u32,
) -> Result<Prepared, String> {
    let image = image::build(verified, name, version).map_err(|why| why.to_string())?;
    Prepared::new(&image, budget_ns).map_err(|why| why.to_string())
}

fn cannot(why: &dyn Display, title: &str, word: &str) -> Failure {
    Failure::new(format!("cannot compile {title}: {why}"))
        .hint(format!("lockwright policy check {word}"))
}

/// What is loaded, and for which locks.
pub(crate) struct PolicyLoad {
    pub(crate) policy: Compiled,
    pub(crate) whose: Whose,
    /// More options of the lock, such as `bypass=8`.
    pub(crate) options: Option<String>,
}

/// A policy that has been loaded.
pub(crate) struct Loaded {
    pub(crate) slot: u32,
    /// Do locks ask it already? Else from the next wait on.
    pub(crate) is_in_force: bool,
    /// The policies that it replaces.
    pub(crate) replaced: Vec<String>,
    /// Why the process has taken it off, if it has.
    pub(crate) taken_off: Option<String>,
}

impl PolicyLoad {
    /// Verifies and compiles a policy.
    pub(crate) fn new(
        chosen: &Chosen,
        whose: Whose,
        options: Option<String>,
        budget_ns: u32,
    ) -> Result<Self, Failure> {
        catalog::check(&over::lock(1, options.as_deref()))?;
        Ok(Self { policy: Compiled::new(chosen, budget_ns)?, whose, options })
    }

    /// Loads it.
    pub(crate) fn put_into(&self, process: &Process) -> Result<Loaded, Failure> {
        let there = There::find(process)?;
        let prepared = self.prepared(process, &there)?;
        let (mailbox, programs) = (there.mailbox.of(process), there.programs.open(process)?);
        // If this command ends before the table asks the policy, the policy goes.
        mailbox.renew_lease()?;
        let image = self.image(&prepared).on_lease();
        let in_slot = programs.load(prepared.slot, &image, PATIENCE)?;
        mailbox.renew_lease()?;
        let terms = prepared.drops() << DROPS;
        let posted = mailbox::post_for(process, &mailbox, &prepared.new, terms, patience(in_slot));
        let ended = mailbox.end_lease();
        let in_table = posted.inspect_err(|_| {
            let _ = programs.unload(prepared.slot, PATIENCE);
        })?;
        ended?;
        let is_in_force = in_slot && in_table;
        let replaced = dropped(&programs, &prepared, is_in_force)?;
        Ok(Loaded { slot: prepared.slot, is_in_force, replaced, taken_off: None })
    }

    /// Loads it, measures the process with and without it by turns, and takes it away again if it is worse.
    pub(crate) fn guarded(
        &self,
        process: Process,
        time: Duration,
        counter: Option<&str>,
        terms: Terms,
        quiet: bool,
    ) -> Result<(Guarded, Loaded), Failure> {
        let pid = process.pid;
        let there = There::find(&process)?;
        let prepared = self.prepared(&process, &there)?;
        let epochs = epochs::Remote::find(&process)?;
        catch_ends();
        let lease = Lease::begin(&process, there.mailbox)?;
        let image = self.image(&prepared).on_lease();
        let in_slot = there.programs.open(&process)?.load(prepared.slot, &image, PATIENCE)?;
        process.unlock();
        let ours = |process: &Process| -> Result<_, Failure> {
            let seen = there.programs.open(process)?.slots()?;
            Ok(seen.into_iter().find(|seen| seen.slot == prepared.slot))
        };
        let taken_off = RefCell::new(None);
        let guard = Guard {
            pid,
            mailbox: there.mailbox,
            epochs,
            lease,
            old: &prepared.old,
            new: &prepared.new,
            target: &prepared.target,
            time,
            counter,
            terms,
            called: Some(&self.policy.title),
            quiet,
            may_stay: &|process| {
                *taken_off.borrow_mut() = ours(process)?.as_ref().and_then(stats::taken_off);
                Ok(taken_off.borrow().is_none())
            },
            drops: prepared.drops(),
        };
        drop(process);
        let guarded = guard.run()?;
        let replaced = match (guarded.end, Process::open(pid)) {
            (End::Kept, Ok(process)) => {
                dropped(&there.programs.open(&process)?, &prepared, in_slot)?
            }
            // Whoever has ended needs no policy.
            _ => Vec::new(),
        };
        let taken_off = taken_off.into_inner();
        Ok((guarded, Loaded { slot: prepared.slot, is_in_force: true, replaced, taken_off }))
    }

    fn prepared(&self, process: &Process, there: &There) -> Result<Change, Failure> {
        let (mailbox, programs) = (there.mailbox.of(process), there.programs.open(process)?);
        mailbox::refuse_detached(process, &mailbox)?;
        let old = mailbox::base(&mailbox)?;
        let targets = over::targets(&self.whose.targets(process)?);
        let known = programs.known()?;
        let slot = free(process, &old, &known)?;
        let mut new = old.clone();
        new.set(&targets, Some(&over::lock(slot, self.options.as_deref())));
        let target = match self.whose.is_all() {
            true => Target::All,
            false => Target::Rules(targets),
        };
        let narrowed = self.policy.for_rules(process, &new, slot)?;
        Ok(Change { old, new, slot, target, known, narrowed })
    }

    /// What goes into the slot.
    fn image<'a>(&'a self, change: &'a Change) -> &'a Prepared {
        change.narrowed.as_ref().unwrap_or(&self.policy.prepared)
    }
}

/// Where a process has what we need.
#[derive(Clone, Copy)]
pub(crate) struct There {
    pub(crate) mailbox: MailboxPlace,
    pub(crate) programs: RemotePlace,
}

impl There {
    pub(crate) fn find(process: &Process) -> Result<Self, Failure> {
        let programs = RemotePlace::find(process)?;
        Ok(Self { mailbox: mailbox::Remote::find(process)?.place(), programs })
    }
}

/// What a load changes.
struct Change {
    old: Table,
    new: Table,
    slot: u32,
    target: Target,
    /// What the slots had before.
    known: Vec<KnownPolicy>,
    /// The policy as these locks need it, if that differs.
    narrowed: Option<Prepared>,
}

impl Change {
    /// The policies that no lock asks any more.
    fn gone(&self) -> impl Iterator<Item = &KnownPolicy> {
        let asked = over::slots(&self.new);
        self.known.iter().filter(move |known| !asked.contains(&known.slot))
    }

    /// Their slots, one bit each.
    fn drops(&self) -> u32 {
        bits(self.gone().map(|known| known.slot))
    }
}

/// Slots, one bit each.
fn bits(slots: impl IntoIterator<Item = u32>) -> u32 {
    slots.into_iter().fold(0, |bits, slot| bits | 1 << slot)
}

impl Whose {
    fn is_all(&self) -> bool {
        let named = [&self.locks, &self.sites, &self.libraries, &self.kinds];
        named.iter().all(|names| names.is_empty())
    }

    fn targets(&self, process: &Process) -> Result<Vec<Target>, Failure> {
        if self.is_all() {
            return Ok(vec![Target::All]);
        }
        let kinds = self.kinds.iter().map(|kind| format!("kind:{kind}"));
        let named = self.locks.iter().chain(&self.sites).chain(&self.libraries).cloned();
        let all = named.chain(kinds);
        all.map(|name| Target::find(process, &name, For::Mutexes, || contended(process))).collect()
    }
}

/// A slot that nobody uses.
fn free(process: &Process, table: &Table, known: &[KnownPolicy]) -> Result<u32, Failure> {
    let asked = over::slots(table);
    let is_free = |slot: &u32| !asked.contains(slot) && known.iter().all(|one| one.slot != *slot);
    (1..SLOTS as u32).find(is_free).ok_or_else(|| {
        Failure::new(format!("process {} has {} policies already", process.pid, SLOTS - 1))
            .hint(format!("lockwright policy unload --pid {} NAME", process.pid))
    })
}

/// Takes away the policies that no lock asks any more. Returns their names.
fn dropped(
    programs: &Remote<'_>,
    change: &Change,
    is_in_force: bool,
) -> Result<Vec<String>, Failure> {
    unload_all(programs, change.gone().map(|known| known.slot), is_in_force)?;
    Ok(change.gone().map(|known| known.title.clone()).collect())
}

/// Empties slots. `is_at_work`: the process has taken up what was posted last. Returns whether it has taken up this, too.
fn unload_all(
    programs: &Remote<'_>,
    slots: impl IntoIterator<Item = u32>,
    mut is_at_work: bool,
) -> Result<bool, Failure> {
    for slot in slots {
        is_at_work &= programs.unload(slot, patience(is_at_work))?;
    }
    Ok(is_at_work)
}

/// How long a process may take for what is posted. Whatever an idle one doesn't take up waits for it.
fn patience(is_at_work: bool) -> Duration {
    if is_at_work { PATIENCE } else { Duration::ZERO }
}

/// Takes policies away: all, or those with this name or slot. Returns their titles, and whether that is in force.
pub(crate) fn unload(
    process: &Process,
    word: Option<&str>,
) -> Result<(Vec<String>, bool), Failure> {
    let there = There::find(process)?;
    let (mailbox, programs) = (there.mailbox.of(process), there.programs.open(process)?);
    let pid = process.pid;
    let known = programs.known()?;
    let mut table = mailbox::base(&mailbox)?;
    let is_meant = |slot: u32, known: Option<&KnownPolicy>| match word {
        None => true,
        Some(word) if word.parse() == Ok(slot) => true,
        Some(word) => known.is_some_and(|known| known.name == word || known.title == word),
    };
    let known = |slot: u32| known.iter().find(|known| known.slot == slot);
    let slots = (1..SLOTS as u32).filter(|slot| {
        is_meant(*slot, known(*slot))
            && (known(*slot).is_some() || over::slots(&table).contains(slot))
    });
    let slots: Vec<u32> = slots.collect();
    if slots.is_empty() {
        let which = word.map_or("no policy".to_owned(), |word| format!("no policy '{word}'"));
        return Err(Failure::new(format!("process {pid} ({}) has {which}", process.name()))
            .hint(format!("lockwright policy list --pid {pid}")));
    }
    let lifted = table.lift(|lock| over::slot(lock).is_some_and(|slot| slots.contains(&slot)));
    // If this command ends before it has unloaded all of them, they go all the same.
    let terms = bits(slots.iter().copied()) << DROPS;
    // A command that tries a policy on lease notices by the post that its policy is gone.
    let is_tried = mailbox.leased()? != 0;
    let is_at_work =
        lifted == 0 && !is_tried || mailbox::post_for(process, &mailbox, &table, terms, PATIENCE)?;
    let is_in_force = unload_all(&programs, slots.iter().copied(), is_at_work)?;
    let title = |slot: &u32| {
        known(*slot).map_or_else(|| format!("slot {slot}"), |known| known.title.clone())
    };
    Ok((slots.iter().map(title).collect(), is_in_force))
}
