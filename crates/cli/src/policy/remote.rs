//! The policies of a running process, by way of its memory.

use super::loading::Compiled;
use super::named;
use crate::hints::Failure;
use crate::mailbox::{PATIENCE, other_version, symbol_in};
use crate::process::Process;
use lockwright_policy::control::{Answered, Control, InSlot, Memory, Pending};
use lockwright_programs::mailbox::SYMBOL;

impl Memory for Process {
    type Error = Failure;

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        Self::read(self, at, bytes)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        Self::write(self, at, bytes)
    }
}

/// Where a process has its policies, as long as it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemotePlace(u64);

impl RemotePlace {
    /// Finds them in the preloaded library, or in the runtime that is linked into the program.
    pub(crate) fn find(process: &Process) -> Result<Self, Failure> {
        symbol_in(process, SYMBOL).map(Self)
    }

    /// Opens them.
    pub(crate) fn open(self, process: &Process) -> Result<Remote<'_>, Failure> {
        let control = Control::open(process, self.0)?;
        Ok(Remote { process, control: control.ok_or_else(|| other_version(process))? })
    }
}

/// A process's policies.
pub(crate) struct Remote<'a> {
    process: &'a Process,
    pub(crate) control: Control<'a, Process>,
}

/// What a process has made of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Took {
    /// It has done what it says.
    Done,
    /// It will, when a thread next waits for a mutex.
    Later,
    /// An earlier request for another slot is still there, so this one isn't.
    Busy,
}

impl Took {
    /// Has it been done already? That the process is busy is an error.
    pub(crate) fn is_done(self, process: &Process) -> Result<bool, Failure> {
        match self {
            Self::Done => Ok(true),
            Self::Later => Ok(false),
            Self::Busy => Err(Failure::new(format!(
                "process {} has not taken up the last policy yet: no thread has waited for a mutex since",
                process.pid
            ))
            .hint("try again when it is at work")),
        }
    }
}

impl Remote<'_> {
    /// Gives the slot this policy, whatever it had.
    pub(crate) fn load(&self, slot: u32, policy: &Compiled) -> Result<Took, Failure> {
        let Compiled { image, budget_ns, .. } = policy;
        self.unless_busy(slot, || {
            self.control.load(slot, &image.code, &image.data, *budget_ns, PATIENCE)
        })
    }

    /// Takes the slot's policy away.
    pub(crate) fn unload(&self, slot: u32) -> Result<Took, Failure> {
        self.unless_busy(slot, || self.control.unload(slot, PATIENCE))
    }

    /// What is posted for the same slot may be replaced, for another one it may not.
    fn unless_busy(
        &self,
        slot: u32,
        post: impl FnOnce() -> Result<Answered, Failure>,
    ) -> Result<Took, Failure> {
        let pid = self.process.pid;
        let pending = self.control.pending()?;
        if pending.is_some_and(|(Pending::Load(other, _) | Pending::Unload(other))| other != slot) {
            return Ok(Took::Busy);
        }
        match post()? {
            Answered::Done => Ok(Took::Done),
            Answered::Nothing => Ok(Took::Later),
            Answered::Refused(why) => {
                Err(Failure::new(format!("process {pid} refuses the policy: {why}"))
                    .hint(format!("which it has: lockwright policy list --pid {pid}")))
            }
        }
    }
}

/// The name of a process's policy, with its version in the store.
pub(super) fn title(policy: &InSlot) -> String {
    named::title(&policy.name, policy.version)
}
