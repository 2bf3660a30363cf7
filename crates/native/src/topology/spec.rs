//! The user's own word on the classes: `big:0-3,little:4-7`, fastest first.

use super::{CLASSES, CpuSet, NAME_MAX, Source, Topology, list};
use core::fmt;
use lockwright_platform::Class;

/// Why an override was refused, and the piece of it that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecError<'a> {
    /// The offending piece of the text.
    pub piece: &'a str,
    /// What is wrong with it.
    pub problem: SpecProblem,
}

/// What can be wrong with an override.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecProblem {
    /// Nothing there.
    Empty,
    /// CPUs before any class is named.
    NoClass,
    /// A class without a name.
    NoName,
    /// A class name with other characters than letters, digits, `_` and `-`, or too long.
    BadName,
    /// A class name for the second time.
    NameTwice,
    /// More classes than [`CLASSES`].
    TooManyClasses,
    /// `little` before `big` or `mid`, or `mid` before `big`: the order in the text is the rank.
    WrongOrder,
    /// Neither a CPU's number nor a range, or beyond the largest number.
    NotACpu,
    /// A range from high to low.
    Backwards,
    /// A CPU that this machine doesn't have.
    UnknownCpu(u32),
    /// A CPU in two classes, or twice in one.
    CpuTwice(u32),
    /// A CPU that is online and in no class.
    CpuMissing(u32),
}

impl fmt::Display for SpecError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use SpecProblem as P;
        if self.problem == P::Empty {
            return f.write_str("no classes given");
        }
        write!(f, "'{}': ", self.piece)?;
        match self.problem {
            P::Empty => Ok(()),
            P::NoClass => f.write_str("no class before these cpus"),
            P::NoName => f.write_str("the class has no name"),
            P::BadName => {
                write!(f, "a class name has at most {NAME_MAX} letters, digits, '_' and '-'")
            }
            P::NameTwice => f.write_str("this class is named twice"),
            P::TooManyClasses => write!(f, "more than {CLASSES} classes"),
            P::WrongOrder => f.write_str("classes go from the fastest to the slowest"),
            P::NotACpu => f.write_str("neither a cpu number nor a range"),
            P::Backwards => f.write_str("the range goes backwards"),
            P::UnknownCpu(cpu) => write!(f, "this machine has no cpu {cpu}"),
            P::CpuTwice(cpu) => write!(f, "cpu {cpu} is given twice"),
            P::CpuMissing(cpu) => write!(f, "cpu {cpu} is online and in no class"),
        }
    }
}

impl core::error::Error for SpecError<'_> {}

/// Rank of the names that mean one, so that `little:0-3,big:4-7` is caught.
fn known_rank(name: &str) -> Option<u8> {
    ["big", "mid", "little"].iter().position(|known| *known == name).map(|rank| rank as u8)
}

impl Topology {
    /// Sets the classes as the user says; on an error nothing has changed.
    ///
    /// Capacities stay as they were read: a class is a rank, not a speed.
    ///
    /// # Errors
    /// The first piece that is wrong; see [`SpecProblem`].
    pub fn set<'a>(&mut self, spec: &'a str) -> Result<(), SpecError<'a>> {
        let fail = |piece: &'a str, problem| Err(SpecError { piece, problem });
        let mut classes = [CpuSet::EMPTY; CLASSES];
        let mut names = [""; CLASSES];
        let mut count = 0;
        let mut taken = CpuSet::EMPTY;
        if spec.trim().is_empty() {
            return fail(spec, SpecProblem::Empty);
        }
        for piece in spec.split(',').map(str::trim) {
            let range = match piece.split_once(':') {
                None => piece,
                Some((name, range)) => {
                    let name = name.trim();
                    let known = &names[..count];
                    match () {
                        () if name.is_empty() => return fail(piece, SpecProblem::NoName),
                        () if !is_name(name) => return fail(name, SpecProblem::BadName),
                        () if known.contains(&name) => return fail(name, SpecProblem::NameTwice),
                        () if count == CLASSES => return fail(name, SpecProblem::TooManyClasses),
                        () if is_slower_known(known, name) => {
                            return fail(name, SpecProblem::WrongOrder);
                        }
                        () => {}
                    }
                    names[count] = name;
                    count += 1;
                    range.trim()
                }
            };
            if count == 0 {
                return fail(piece, SpecProblem::NoClass);
            }
            let Some((first, last)) = list::range(range.as_bytes()) else {
                return fail(piece, SpecProblem::NotACpu);
            };
            if last < first {
                return fail(piece, SpecProblem::Backwards);
            }
            for cpu in first..=last {
                if !self.present.has(cpu) {
                    return fail(piece, SpecProblem::UnknownCpu(cpu as u32));
                }
                if taken.has(cpu) {
                    return fail(piece, SpecProblem::CpuTwice(cpu as u32));
                }
                taken.insert(cpu);
                classes[count - 1].insert(cpu);
            }
        }
        if let Some((cpu, _)) = self.online().find(|(cpu, _)| !taken.has(*cpu)) {
            return fail(spec, SpecProblem::CpuMissing(cpu as u32));
        }
        self.classes = count;
        self.names = Default::default();
        for (rank, (members, name)) in classes.iter().zip(names).enumerate().take(count) {
            self.names[rank][..name.len()].copy_from_slice(name.as_bytes());
            for cpu in members.iter() {
                self.cpus[cpu].class = Class(rank as u8);
                self.cpus[cpu].class_source = Source::User;
            }
        }
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    name.len() <= NAME_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// Does a class that is known to be slower than `name` stand before it?
fn is_slower_known(before: &[&str], name: &str) -> bool {
    known_rank(name).is_some_and(|rank| {
        before.iter().filter_map(|name| known_rank(name)).any(|other| other > rank)
    })
}
