//! What can be wrong with a hook, and how that is told.

use crate::object::SourceLine;
use lockwright_platform::hooks::Hook;
use std::fmt;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// No instruction of version 3, or one with wrong fields.
    Instruction,
    /// A jump out of the code, or into an instruction.
    Jump,
    /// Execution may reach the end of the code.
    End,
    /// Code that is never reached.
    Unreachable,
    /// More instructions than a hook may have.
    Length,
    /// A call of something that is no helper.
    Helper,
    /// A map, or a variable, that the policy doesn't have.
    Map,
    /// A register that has no value.
    Uninitialised,
    /// Bytes of the stack that have no value.
    UninitialisedStack,
    /// A read outside of the context, or of what is reserved there.
    Context,
    /// A write to the context.
    ReadOnly,
    /// An access outside of the stack.
    Stack,
    /// An access outside of a map's value.
    Value,
    /// An access that is not aligned.
    Alignment,
    /// A pointer that may be null.
    Null,
    /// An access through a number, or through a map.
    NoPointer,
    /// Arithmetic with pointers that isn't allowed.
    Arithmetic,
    /// A pointer would become a number, or get out of the hook.
    Leak,
    /// A comparison of pointers.
    Comparison,
    /// An atomic operation elsewhere than in a map's value.
    Atomic,
    /// A helper's argument is wrong.
    Argument,
    /// The answer may be out of range.
    Answer,
    /// A path that is too long.
    Endless,
    /// Too many paths to look at.
    Complex,
}

/// Why a hook was rejected, at the first place that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The hook.
    pub hook: Hook,
    /// The instruction.
    pub insn: usize,
    /// The instruction as people read it.
    pub assembly: String,
    /// The source's line, if the object says it.
    pub line: Option<SourceLine>,
    /// What is wrong.
    pub fault: Fault,
    /// The same in words; begins with a verb, the hook is its subject.
    pub what: String,
    /// The register that is to blame, and what it may hold: `r1 is a value of 'hits' + 0 to 1020`.
    pub register: Option<String>,
    /// What would mend it.
    pub hint: Option<String>,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {}", self.hook.name(), self.what)?;
        if let Some(line) = &self.line {
            write!(f, "\n  {line}")?;
        }
        write!(f, "\n  instruction {}: {}", self.insn, self.assembly)?;
        if let Some(register) = &self.register {
            write!(f, "\n  {register}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

/// Why a policy was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    pub(super) complaints: Vec<Complaint>,
}

impl Rejected {
    /// One for each hook that is wrong.
    pub fn complaints(&self) -> &[Complaint] {
        &self.complaints
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (number, complaint) in self.complaints.iter().enumerate() {
            write!(f, "{}{complaint}", if number > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Rejected {}

/// What is wrong at an instruction, before anybody knows which hook this is.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) fault: Fault,
    pub(super) what: String,
    /// The register to blame.
    pub(super) register: Option<u8>,
    pub(super) hint: Option<String>,
}

impl Wrong {
    pub(super) fn new(fault: Fault, what: impl Into<String>) -> Self {
        Self { fault, what: what.into(), register: None, hint: None }
    }

    pub(super) fn by(mut self, register: u8) -> Self {
        self.register = Some(register);
        self
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
