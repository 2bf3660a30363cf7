//! The classes as the user gives them: `big:0-3,little:4-7`, fastest first. If slower cores are to be emulated, with a
//! factor: `big:0,little:1x3.75`.

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
    /// The text is empty.
    Empty,
    /// CPUs before the first class name.
    NoClass,
    /// A class without a name.
    NoName,
    /// A class name that is too long, or has characters other than letters, digits, `_` and `-`.
    BadName,
    /// A class name that occurs twice.
    NameTwice,
    /// More classes than [`CLASSES`].
    TooManyClasses,
    /// `little` before `big` or `mid`, or `mid` before `big`: the order in the text is the rank.
    WrongOrder,
    /// Neither a CPU's number nor a range, or beyond the largest number.
    NotACpu,
    /// A range whose end is below its start.
    Backwards,
    /// A CPU that this machine doesn't have.
    UnknownCpu(u32),
    /// A CPU in two classes, or twice in one.
    CpuTwice(u32),
    /// An online CPU that is in no class.
    CpuMissing(u32),
    /// A factor where nothing is emulated.
    FactorUnwanted,
    /// A factor that isn't a decimal number from 1 to 100, with at most three digits after the point.
    BadFactor,
    /// Two factors for one class.
    FactorTwice,
    /// A factor other than 1 for the class called `big`.
    BigIsSlowed,
    /// A class with a smaller factor than a faster one.
    FactorFalls,
}

/// How many times slower a class is emulated, in thousandths: 1000 is unchanged, 100 000 the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor(u32);

impl Factor {
    /// Unchanged: as fast as the machine.
    pub const ONE: Self = Self(1000);
    const MOST: u32 = 100_000;

    /// The factor, in thousandths.
    pub const fn thousandths(self) -> u32 {
        self.0
    }

    /// `3.75`: a decimal number from 1 to 100, at most three digits after the point.
    fn parse(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str, most: usize| {
            (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !digits(whole, 3) || !digits(part, 3) {
            return None;
        }
        let scale = [100, 10, 1][part.len() - 1];
        let value = whole.parse::<u32>().ok()? * 1000 + part.parse::<u32>().ok()? * scale;
        (Self::ONE.0..=Self::MOST).contains(&value).then_some(Self(value))
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 1000, self.0 % 1000);
        match part {
            0 => write!(f, "{whole}"),
            _ if part % 100 == 0 => write!(f, "{whole}.{}", part / 100),
            _ if part % 10 == 0 => write!(f, "{whole}.{:02}", part / 10),
            _ => write!(f, "{whole}.{part:03}"),
        }
    }
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
            P::FactorUnwanted => f.write_str("a factor is for emulation (--emulate)"),
            P::BadFactor => {
                f.write_str("the factor after 'x' is a number from 1 to 100, as in x3.75")
            }
            P::FactorTwice => f.write_str("this class has another factor already"),
            P::BigIsSlowed => f.write_str("big cores keep their speed: x1, or no factor"),
            P::FactorFalls => f.write_str("a faster class has a larger factor"),
        }
    }
}

impl core::error::Error for SpecError<'_> {}

/// The rank of the names that imply one, so that `little:0-3,big:4-7` is caught.
fn known_rank(name: &str) -> Option<u8> {
    ["big", "mid", "little"].iter().position(|known| *known == name).map(|rank| rank as u8)
}

impl Topology {
    /// Sets the classes as the user says. On an error nothing changes.
    ///
    /// Capacities stay as they were read: a class is a rank, not a speed.
    ///
    /// # Errors
    /// The first piece that is wrong; see [`SpecProblem`].
    pub fn set<'a>(&mut self, spec: &'a str) -> Result<(), SpecError<'a>> {
        self.set_classes(spec, false).map(drop)
    }

    /// As [`set`](Self::set), for emulation: a class may have a factor, as in `little:4-7x3.75`. Returns the factors by
    /// rank.
    ///
    /// # Errors
    /// The first piece that is wrong; see [`SpecProblem`].
    pub fn set_emulated<'a>(&mut self, spec: &'a str) -> Result<[Factor; CLASSES], SpecError<'a>> {
        self.set_classes(spec, true)
    }

    fn set_classes<'a>(
        &mut self,
        spec: &'a str,
        emulated: bool,
    ) -> Result<[Factor; CLASSES], SpecError<'a>> {
        let fail = |piece: &'a str, problem| Err(SpecError { piece, problem });
        let mut classes = [CpuSet::EMPTY; CLASSES];
        let mut names = [""; CLASSES];
        let mut factors: [Option<Factor>; CLASSES] = [None; CLASSES];
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
            let range = match range.split_once('x') {
                None => range,
                Some((range, factor)) => {
                    let Some(factor) = Factor::parse(factor) else {
                        // Without emulation a stray letter isn't a factor; it isn't part of a CPU number either.
                        let problem =
                            if emulated { SpecProblem::BadFactor } else { SpecProblem::NotACpu };
                        return fail(piece, problem);
                    };
                    let known = &mut factors[count - 1];
                    match () {
                        () if !emulated => return fail(piece, SpecProblem::FactorUnwanted),
                        () if known.is_some_and(|known| known != factor) => {
                            return fail(piece, SpecProblem::FactorTwice);
                        }
                        () if names[count - 1] == "big" && factor != Factor::ONE => {
                            return fail(piece, SpecProblem::BigIsSlowed);
                        }
                        () => *known = Some(factor),
                    }
                    range
                }
            };
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
        let factors = factors.map(|factor| factor.unwrap_or(Factor::ONE));
        if factors[..count].windows(2).any(|pair| pair[1].0 < pair[0].0) {
            return fail(spec, SpecProblem::FactorFalls);
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
        Ok(factors)
    }
}

fn is_name(name: &str) -> bool {
    name.len() <= NAME_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// Is a class that is known to be slower than `name` listed before it?
fn is_slower_known(before: &[&str], name: &str) -> bool {
    known_rank(name).is_some_and(|rank| {
        before.iter().filter_map(|name| known_rank(name)).any(|other| other > rank)
    })
}
