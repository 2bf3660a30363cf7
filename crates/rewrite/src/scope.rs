//! The scope of a C++ guard, and the lambda that it becomes.

use std::ops::Range;

/// A scope in which a guard holds a mutex.
#[derive(Clone, Debug)]
pub struct GuardScope {
    /// The function, with its class.
    pub function: String,
    /// The mutex, as the guard gets it.
    pub mutex: String,
    /// The guard's declaration.
    pub guard: Range<usize>,
    /// Where its scope's `}` is.
    pub end: usize,
    /// Who is called inside.
    pub called: Vec<String>,
    /// What takes the section's place; or why nothing does.
    pub fate: Result<Lambda, String>,
}

/// A section as a lambda.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lambda {
    /// The `pthread_mutex_t *`.
    pub handle: String,
    /// How its end goes on.
    pub form: Form,
    /// The statements that leave it.
    pub exits: Exits,
}

/// The statements that leave a section, and change.
pub type Exits = Vec<(Leave, Range<usize>)>;

/// How a lambda's end goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// What is behind it runs.
    Falls,
    /// The function returns.
    Ends,
    /// It returns from the function, by a value of this type; `None`: of the type that it has.
    Returns(Option<String>),
    /// It may return from the function, with a value of this type.
    MayReturn(String),
    /// It may leave the function, or a loop.
    MayLeave,
}

/// A statement that leaves a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// `return`.
    Return,
    /// `break`.
    Break,
    /// `continue`.
    Continue,
}

impl Leave {
    /// What its lambda returns then.
    pub fn code(self) -> usize {
        match self {
            Self::Return => 1,
            Self::Break => 2,
            Self::Continue => 3,
        }
    }

    /// The keyword.
    pub fn word(self) -> &'static str {
        match self {
            Self::Return => "return",
            Self::Break => "break",
            Self::Continue => "continue",
        }
    }
}
