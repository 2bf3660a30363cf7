//! Policies that a program starts with: `policy:NAME[,key=value,...]` where a lock is named.

use super::chosen::Chosen;
use super::loading::Compiled;
use super::over;
use crate::hints::Failure;
use lockwright_programs::mailbox::{BUDGET_NS, SLOTS};

/// How a lock that asks a policy is written.
const PREFIX: &str = "policy:";

/// The policies' words. The first gets slot 1, and so on.
#[derive(Debug, Default)]
pub(crate) struct Slots(Vec<String>);

/// `policy:NAME,key=value`: the word of the policy, and the lock's other options.
pub(crate) fn split(lock: &str) -> Option<(&str, Option<&str>)> {
    let policy = lock.strip_prefix(PREFIX)?;
    Some(match policy.split_once(',') {
        Some((word, options)) => (word, Some(options)),
        None => (policy, None),
    })
}

impl Slots {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lock that asks this policy.
    pub(crate) fn add(&mut self, word: &str, options: Option<&str>) -> Result<String, Failure> {
        let place = self.0.iter().position(|known| known == word);
        let place = place.unwrap_or_else(|| {
            self.0.push(word.to_owned());
            self.0.len() - 1
        });
        match place + 1 < SLOTS {
            true => Ok(over::lock(place as u32 + 1, options)),
            false => Err(Failure::new(format!("more than {} policies", SLOTS - 1))
                .hint("several as one take one place: policy:A+B")),
        }
    }

    /// The same for a lock as it is written; another lock stays as it is.
    pub(crate) fn translated(&mut self, lock: &str) -> Result<String, Failure> {
        match split(lock) {
            Some((word, options)) => self.add(word, options),
            None => Ok(lock.to_owned()),
        }
    }

    /// Verifies and compiles them, by their slots.
    pub(crate) fn compiled(&self) -> Result<Vec<(u32, Compiled)>, Failure> {
        let one = |(number, word): (u32, &String)| {
            Ok((number, Compiled::new(&Chosen::find(word)?, BUDGET_NS)?))
        };
        (1..).zip(&self.0).map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_has_one_slot() {
        let mut slots = Slots::default();
        let locks = ["policy:numa", "fifo:spin=1", "policy:cal,bypass=8", "policy:numa,spin=0"];
        let locks = locks.map(|lock| slots.translated(lock).unwrap());
        assert_eq!(
            locks,
            [
                "programmed:slot=1",
                "fifo:spin=1",
                "programmed:slot=2,bypass=8",
                "programmed:slot=1,spin=0"
            ]
        );
        let many = (0..SLOTS).map(|number| slots.add(&number.to_string(), None));
        assert!(many.collect::<Result<Vec<_>, _>>().is_err());
    }
}
