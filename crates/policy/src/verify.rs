//! Checks that a policy can do no harm, whatever it is told: `verify` follows every path through each hook.
//!
//! ```text
//!   fault.rs    what can be wrong, and how that is told
//!   flow.rs     instructions, jumps, registers that are still needed; before anything is executed
//!   walk.rs     all paths; where a path may end, since another has shown the rest
//!   done.rs     states from which nothing goes wrong
//!   step.rs     one instruction      memory.rs  loads, stores      call.rs  helpers
//!   state.rs    registers, stack     scalar.rs  numbers: range.rs, bits.rs
//!   asm.rs      instructions for people
//! ```
//!
//! A hook is accepted if on every path
//! - it ends after at most [`LONGEST`] instructions, with an answer in the hook's range;
//! - it reads only registers and stack that have been written, the context, and values of maps; it writes only the stack and values;
//! - each access lies in its object, and a value that may be NULL is checked first;
//! - helpers get what they ask for;
//! - no pointer becomes a number, or gets into a map or an answer.
//!
//! The rules are the kernel's, for a tracepoint that an unprivileged user may load, with a few exceptions (`docs/policy-checks.md`).

mod asm;
mod bits;
mod call;
mod done;
mod fault;
mod flow;
mod memory;
mod range;
mod scalar;
mod state;
mod step;
mod walk;

pub use crate::object::LONGEST;
pub use asm::Text;
pub use fault::{Complaint, Fault, Rejected};

use crate::object::Object;
use lockwright_contract::programs::helpers::Helper;
use lockwright_platform::hooks::Hook;

/// A policy that has been checked. Only [`verify`] makes one.
#[derive(Clone, Debug)]
pub struct Verified {
    object: Object,
    reports: Vec<HookReport>,
}

/// What the check of a hook has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookReport {
    /// The hook.
    pub hook: Hook,
    /// Its instructions; one that loads 64 bits counts as two.
    pub insns: usize,
    /// The most instructions that one call executes; one that loads 64 bits counts as one.
    pub longest: u32,
    /// The helpers that it may call.
    pub helpers: Vec<&'static Helper>,
    /// The maps that it may use, by their places in the policy.
    pub maps: Vec<u32>,
    /// Bytes of stack that it writes to.
    pub stack: usize,
    /// What it may read that takes time to know, of [`READS`](lockwright_platform::hooks::READS).
    pub reads: u32,
}

impl HookReport {
    fn new(hook: Hook, insns: usize) -> Self {
        Self { hook, insns, longest: 0, helpers: Vec::new(), maps: Vec::new(), stack: 0, reads: 0 }
    }
}

impl Verified {
    /// The policy.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// What is known of each hook, in the order of [`Object::hooks`].
    pub fn reports(&self) -> &[HookReport] {
        &self.reports
    }

    /// The sum of its hooks' [bits](Hook::bit), and what they may read, of [`READS`](lockwright_platform::hooks::READS).
    pub fn hooks(&self) -> u32 {
        self.reports.iter().fold(self.object.hooks(), |hooks, report| hooks | report.reads)
    }
}

/// Checks a policy.
///
/// # Errors
/// The first thing that is wrong with each hook.
pub fn verify(object: Object) -> Result<Verified, Rejected> {
    let (mut reports, mut complaints) = (Vec::new(), Vec::new());
    for code in &object.hooks {
        match walk::check(&object, code) {
            Ok(report) => reports.push(report),
            Err(complaint) => complaints.push(*complaint),
        }
    }
    if complaints.is_empty() {
        Ok(Verified { object, reports })
    } else {
        Err(Rejected { complaints })
    }
}

#[cfg(test)]
pub(crate) mod tests;
