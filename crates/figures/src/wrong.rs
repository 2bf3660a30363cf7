//! Planted wrong models: each row of a figure names one that it must notice.
//!
//! A row that accepts every result says nothing. So each row names a model of which we know that it is wrong, and that the row
//! should reject: a lock that is another lock, has another option, or is slower than it is; a machine whose cores are equal; spinning
//! that takes more power; an option with another value. `lockwright reproduce --planted` measures the rows on these models.

use lockwright_sim::LockSpec;
use lockwright_sim::profile::{ClassProfile, Profile};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A wrong model.
#[derive(Clone, Debug, PartialEq)]
pub enum Wrong {
    /// `every lock is mcs`: no two locks differ.
    EachLock(String),
    /// `asl-mcs is mcs`: one lock is another one, whatever its options.
    Lock {
        /// Which.
        lock: String,
        /// What it is.
        is: String,
    },
    /// `cal is 500 ns slower`: each section under the lock takes longer.
    Slower {
        /// Which lock.
        lock: String,
        /// By how much, ns.
        ns: f64,
    },
    /// `cores are equal`: those of all classes are like the fastest, and as near to each other as those of one cluster. Arbitration
    /// still prefers the line's own cluster.
    EqualCores,
    /// `spinning takes 5 times the power`: of what a core draws whose thread waits awake.
    Spinning(f64),
    /// `option slo_us is 100000`: wherever the workload is given this option, it has another value.
    Option {
        /// Which.
        key: String,
        /// Its value.
        value: f64,
    },
}

/// A text that is no wrong model.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "'{0}' is no wrong model: LOCK is LOCK, every lock is LOCK, LOCK is N ns slower, option KEY is VALUE, \
     cores are equal, spinning takes N times the power"
)]
pub struct NoModel(String);

impl Wrong {
    /// Reads one.
    ///
    /// # Errors
    /// The text is none, or names a lock that doesn't exist.
    pub fn parse(text: &str) -> Result<Self, NoModel> {
        let none = || NoModel(text.to_owned());
        let number = |word: &str| word.parse().map_err(|_| none());
        let lock = |word: &str| match LockSpec::parse(word) {
            Ok(_) => Ok(word.to_owned()),
            Err(_) => Err(none()),
        };
        match text.split(' ').collect::<Vec<_>>()[..] {
            ["cores", "are", "equal"] => Ok(Self::EqualCores),
            ["spinning", "takes", times, "times", "the", "power"] => {
                Ok(Self::Spinning(number(times)?))
            }
            ["every", "lock", "is", is] => Ok(Self::EachLock(lock(is)?)),
            ["option", key, "is", value] => {
                Ok(Self::Option { key: key.to_owned(), value: number(value)? })
            }
            [slow, "is", ns, "ns", "slower"] => {
                Ok(Self::Slower { lock: slow.to_owned(), ns: number(ns)? })
            }
            [one, "is", is] => Ok(Self::Lock { lock: lock(one)?, is: lock(is)? }),
            _ => Err(none()),
        }
    }

    /// What a load's lock is in this model.
    pub(crate) fn lock(&self, lock: LockSpec) -> LockSpec {
        let is = |name: &str| LockSpec::parse(name).expect("parsed");
        match self {
            Self::EachLock(other) => is(other),
            Self::Lock { lock: name, is: other } if is_called(&lock, name) => is(other),
            Self::Slower { lock: name, ns } if is_called(&lock, name) => lock.slower(*ns),
            _ => lock,
        }
    }

    /// What a machine is.
    pub(crate) fn machine(&self, profile: Arc<Profile>) -> Arc<Profile> {
        let mut equal = (*profile).clone();
        match self {
            Self::EqualCores => {}
            Self::Spinning(times) => {
                for class in &mut equal.class {
                    let power = &mut class.power;
                    power.spin_local_w *= times;
                    power.spin_fence_w *= times;
                    power.spin_global_w *= times;
                }
                return Arc::new(equal);
            }
            _ => return profile,
        }
        let fastest = equal.class[0].clone();
        for class in &mut equal.class {
            *class = ClassProfile { name: class.name.clone(), ..fastest.clone() };
        }
        let near = equal.memory.latency_ns[0][0];
        equal.memory.latency_ns.iter_mut().flatten().for_each(|latency| *latency = near);
        Arc::new(equal)
    }

    /// What a workload's options are.
    pub(crate) fn options(&self, given: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
        let mut options = given.clone();
        if let Self::Option { key, value } = self {
            options.entry(key.clone()).and_modify(|option| *option = *value);
        }
        options
    }
}

/// Is it that lock, with whatever options?
fn is_called(lock: &LockSpec, name: &str) -> bool {
    lock.entry().map_or("glibc", |entry| entry.id) == name || lock.name() == name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, Load, Plan};
    use lockwright_sim::{profile, targets};

    #[test]
    fn each_row_names_a_wrong_model() {
        for (id, _) in targets::FIGURES {
            for row in targets::figure(id).unwrap().row {
                assert!(Wrong::parse(&row.wrong).is_ok(), "{id}: {}: {}", row.name, row.wrong);
            }
        }
        for none in
            ["", "mcs", "mcs is none", "every lock is none", "mcs is x ns slower", "spinning takes"]
        {
            assert_eq!(Wrong::parse(none), Err(NoModel(none.to_owned())));
        }
    }

    /// Sections of 500 ns under one lock, 8 threads: millions a second.
    fn throughput(lock: &str, wrong: &str) -> f64 {
        let wrong = Wrong::parse(wrong).unwrap();
        let profile = Arc::new(profile::builtin("m1").unwrap());
        let context = Context { wrong: Some(&wrong), ..Context::new(profile, 1) };
        let mut plan = Plan::new();
        let load = Load::new("bench", lock).with("cs", 500.0).with("gap", 0.0);
        let key = plan.add(load.lasting(0.1, 2.0));
        plan.run(&context).unwrap().throughput(key)[0] / 1e6
    }

    #[test]
    fn a_model_changes_what_it_says_and_nothing_else() {
        let of = throughput;
        let close = |a: f64, b: f64| (a / b - 1.0).abs() < 0.01;
        let right = of("mcs", "tas is ticket");
        assert!(close(of("mcs", "mcs is ticket"), of("ticket", "tas is mcs")));
        assert!(close(of("fifo:spin=1000", "every lock is mcs"), right));
        // 1 us more on big cores, and more on little ones.
        let slower = of("mcs", "mcs is 1000 ns slower");
        assert!((0.2..0.6).contains(&(slower / right)), "{slower} {right}");
        assert!(close(of("mcs", "tas is 1000 ns slower"), right));
        assert!(of("mcs", "cores are equal") > 1.2 * right);
        assert!(of("mcs", "option cs is 1000") < 0.7 * right);
        assert!(close(of("mcs", "option slo_us is 7"), right), "an option that isn't given");
    }
}
