//! Types of locks, as the kernel's tracepoint reports them.

use std::fmt;

// As in `bpf/contention.bpf.c`; the ones up to MUTEX are the kernel's LCB_F_*.
const SPIN: u8 = 1;
const READ: u8 = 2;
const WRITE: u8 = 4;
const RT: u8 = 8;
const PERCPU: u8 = 16;
const MUTEX: u8 = 32;
const FUTEX: u8 = 64;

/// What a thread waits for: a type of lock, and whether for reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub(crate) u8);

/// Each type with the flags of its waits.
const TYPES: [(&str, &[u8]); 9] = [
    ("mutex", &[MUTEX]),
    ("rwsem", &[READ, WRITE]),
    ("spinlock", &[SPIN]),
    ("rwlock", &[SPIN | READ, SPIN | WRITE]),
    ("semaphore", &[0]),
    ("percpu-rwsem", &[PERCPU | READ, PERCPU | WRITE]),
    ("rt-mutex", &[RT]),
    ("rt-rwlock", &[RT | READ, RT | WRITE]),
    ("futex", &[FUTEX]),
];

impl Kind {
    /// A user-space futex.
    pub const FUTEX: Self = Self(FUTEX);

    /// The lock's type: `mutex`, `rwsem`, ...
    pub fn name(self) -> &'static str {
        let of = TYPES.iter().find(|(_, flags)| flags.contains(&self.0));
        of.map_or("unknown", |(name, _)| name)
    }

    /// Does it spin while it waits?
    pub(crate) fn spins(self) -> bool {
        self.0 & SPIN != 0
    }

    /// `R` or `W`, for locks that have readers.
    pub fn access(self) -> Option<&'static str> {
        match self.0 & (READ | WRITE) {
            READ => Some("R"),
            WRITE => Some("W"),
            _ => None,
        }
    }
}

impl fmt::Display for Kind {
    /// `rwsem:W`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.access() {
            Some(access) => write!(f, "{}:{access}", self.name()),
            None => f.write_str(self.name()),
        }
    }
}

/// The error for a type of lock that doesn't exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownType {
    /// What was asked for.
    pub name: String,
}

impl UnknownType {
    /// The types that exist.
    pub fn known() -> impl Iterator<Item = &'static str> {
        TYPES.iter().map(|(name, _)| *name).filter(|name| *name != "futex")
    }
}

/// The kernel's kinds of these types, `mutex`, `rwsem`, ..., one bit each.
///
/// # Errors
///
/// One of the types doesn't exist.
pub fn kinds_of<'a>(types: impl IntoIterator<Item = &'a str>) -> Result<u64, UnknownType> {
    let mut bits = 0;
    for name in types {
        if !UnknownType::known().any(|known| known == name) {
            return Err(UnknownType { name: name.to_owned() });
        }
        let of = TYPES.iter().filter(|(known, _)| *known == name);
        bits |= of.flat_map(|(_, flags)| *flags).fold(0, |bits, flags| bits | 1 << flags);
    }
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names_and_types_have_kinds() {
        assert_eq!(Kind(WRITE).to_string(), "rwsem:W");
        assert_eq!(Kind(SPIN).to_string(), "spinlock");
        assert_eq!(Kind(MUTEX).to_string(), "mutex");
        assert_eq!(Kind(PERCPU | READ).to_string(), "percpu-rwsem:R");
        assert_eq!(kinds_of(["mutex", "rwsem"]), Ok(1 << MUTEX | 1 << READ | 1 << WRITE));
        assert_eq!(kinds_of(["futex"]).unwrap_err().name, "futex", "futexes are not kernel locks");
    }
}
