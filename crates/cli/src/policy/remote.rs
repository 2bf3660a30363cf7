//! The policies of a running process, by way of its memory.

use super::over;
use super::unchecked;
use crate::hints::Failure;
use lockwright_contract::programs::mailbox::SYMBOL;
use lockwright_observer::mailbox::{self, MailboxPlace, settled, symbol_in};
use lockwright_observer::process::Process;
use lockwright_policy::control::{Answered, Control, InSlot, Pending, Prepared};
use std::time::Duration;

/// Where a process has its policies, as long as it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemotePlace {
    at: u64,
    mailbox: MailboxPlace,
}

impl RemotePlace {
    /// Finds them in the preloaded library, or in the runtime that is linked into the program.
    pub(crate) fn find(process: &Process) -> Result<Self, Failure> {
        let mailbox = mailbox::Remote::find(process)?.place();
        Ok(Self { at: symbol_in(process, SYMBOL)?, mailbox })
    }

    /// Opens them.
    pub(crate) fn open(self, process: &Process) -> Result<Remote<'_>, Failure> {
        let control = settled(process, || Control::open(process, self.at))?;
        Ok(Remote { process, control, mailbox: self.mailbox })
    }
}

/// A process's policies.
pub(crate) struct Remote<'a> {
    process: &'a Process,
    pub(crate) control: Control<'a, Process>,
    mailbox: MailboxPlace,
}

impl Remote<'_> {
    /// Gives the slot this policy, whatever it had. Waits this long for a thread to take it up. `false`: none has, but one will.
    pub(crate) fn load(
        &self,
        slot: u32,
        policy: &Prepared,
        patience: Duration,
    ) -> Result<bool, Failure> {
        self.is_done(self.control.load(slot, policy, patience)?)
    }

    /// Takes the slot's policy away. Waits, and returns, as [`load`](Self::load).
    pub(crate) fn unload(&self, slot: u32, patience: Duration) -> Result<bool, Failure> {
        self.is_done(self.control.unload(slot, patience)?)
    }

    fn is_done(&self, said: Answered) -> Result<bool, Failure> {
        let pid = self.process.pid;
        match said {
            Answered::Done => Ok(true),
            Answered::Nothing => Ok(false),
            Answered::Refused(why) => {
                Err(Failure::new(format!("process {pid} refuses the policy: {why}"))
                    .hint(format!("to see which it has: lockwright policy list --pid {pid}")))
            }
            Answered::Full => Err(Failure::new(format!(
                "process {pid} has no room for another policy: its queue is full, and no thread has waited for a mutex since"
            ))
            .hint(format!("lockwright policy unload --pid {pid}"))),
        }
    }

    /// The policies that the process has, by slot, including those that were taken off.
    pub(crate) fn slots(&self) -> Result<Vec<InSlot>, Failure> {
        let mut slots = self.control.slots()?;
        let is_there = self.stays()?;
        slots.retain(|seen| !seen.is_leased || is_there(seen.slot));
        Ok(slots)
    }

    /// What is posted for them and not yet taken up.
    fn pending(&self) -> Result<Vec<Pending>, Failure> {
        let mut pending = self.control.pending()?;
        let is_there = self.stays()?;
        pending.retain(
            |one| !matches!(one, Pending::Load { slot, is_leased: true, .. } if !is_there(*slot)),
        );
        Ok(pending)
    }

    /// Does a slot that is on lease still count?
    fn stays(&self) -> Result<impl Fn(u32) -> bool, Failure> {
        let mailbox = self.mailbox.of(self.process);
        let asked = match mailbox.is_lease_over()? {
            true => Some(over::slots(&mailbox::base(&mailbox)?)),
            false => None,
        };
        Ok(move |slot| asked.as_ref().is_none_or(|asked| asked.contains(&slot)))
    }

    /// The policies that the process has, or will have when a thread waits for a mutex.
    pub(crate) fn known(&self) -> Result<Vec<KnownPolicy>, Failure> {
        // First what is not in its slot yet: it may get there meanwhile.
        let pending = self.pending()?;
        let has = self.slots()?.into_iter();
        let mut known: Vec<_> =
            has.map(|seen| KnownPolicy::new(seen.slot, seen.name, seen.version)).collect();
        for pending in pending {
            let (Pending::Load { slot, .. } | Pending::Unload(slot)) = pending;
            known.retain(|one| one.slot != slot);
            if let Pending::Load { slot, name, version, .. } = pending {
                known.push(KnownPolicy::new(slot, name, version));
            }
        }
        Ok(known)
    }

    /// The policies that the process will have no more when a thread waits for a mutex.
    pub(crate) fn leaving(&self) -> Result<Vec<KnownPolicy>, Failure> {
        let pending = self.pending()?;
        let goes = |slot: u32| pending.contains(&Pending::Unload(slot));
        let has = self.slots()?.into_iter().filter(|seen| goes(seen.slot));
        Ok(has.map(|seen| KnownPolicy::new(seen.slot, seen.name, seen.version)).collect())
    }
}

/// A policy in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownPolicy {
    pub(crate) slot: u32,
    pub(crate) name: String,
    pub(crate) title: String,
}

impl KnownPolicy {
    fn new(slot: u32, name: String, version: u32) -> Self {
        Self { slot, title: unchecked::title(&name, version), name }
    }
}

/// The name of a process's policy, with its version in the store.
pub(super) fn title(policy: &InSlot) -> String {
    unchecked::title(&policy.name, policy.version)
}
