//! Policies where a lock is named: `policy:NAME[,key=value,...]`. Keys are the lock's options, and `set.CONSTANT`.

use super::chosen::Chosen;
use super::over;
use super::settings::Setting;
use crate::hints::{Failure, nearest};
use lockwright_contract::programs::mailbox::SLOTS;
use lockwright_locks::catalog::{find, find_read_write};

/// How a lock that asks a policy is written.
const PREFIX: &str = "policy:";

/// How a key begins that is a constant of the policy.
const SET: &str = "set.";

/// A policy that a lock asks, and values for its constants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    word: String,
    settings: Vec<Setting>,
}

/// The policies of a program, by slots, and where they are named, for messages. The first gets slot 1, and so on.
#[derive(Debug, Default)]
pub(crate) struct Slots(Vec<(Asked, String)>);

/// What this lock has behind `policy:`, and the same in the words of `lockwright policy`: `NAME --set CONSTANT=value --option key=value`.
pub(crate) fn words(lock: &str) -> Option<(&str, String)> {
    let policy = lock.strip_prefix(PREFIX)?;
    let mut pieces = policy.split(',').filter(|piece| !piece.is_empty());
    let word = pieces.next()?;
    let (settings, options): (Vec<&str>, Vec<&str>) =
        pieces.partition(|piece| piece.starts_with(SET));
    let settings = settings.iter().map(|piece| format!(" --set {}", &piece[SET.len()..]));
    let mut words = word.to_owned() + &settings.collect::<String>();
    if !options.is_empty() {
        words += &format!(" --option {}", options.join(","));
    }
    Some((policy, words))
}

/// `policy:NAME,key=value`: the policy, and the lock's other options. `None`: it asks no policy.
pub(crate) fn split(lock: &str) -> Result<Option<(Asked, Option<String>)>, Failure> {
    let Some(policy) = lock.strip_prefix(PREFIX) else { return Ok(None) };
    let (word, pieces) = policy.split_once(',').unwrap_or((policy, ""));
    let (mut settings, mut options) = (Vec::new(), Vec::new());
    for piece in pieces.split(',').filter(|piece| !piece.is_empty()) {
        match piece.strip_prefix(SET) {
            Some(setting) => settings.push(Setting::parse(setting).map_err(|why| {
                Failure::new(format!("lock '{lock}': '{piece}': {why}"))
                    .hint(format!("for example '{PREFIX}big-first,{SET}most_ns=1ms'"))
            })?),
            None => options.push(known(lock, piece)?),
        }
    }
    let options = (!options.is_empty()).then(|| options.join(","));
    Ok(Some((Asked { word: word.to_owned(), settings }, options)))
}

/// An option of the lock, if there is one of that name. The slot is ours to choose.
fn known<'a>(lock: &str, piece: &'a str) -> Result<&'a str, Failure> {
    let key = piece.split('=').next().unwrap_or(piece);
    let options = find(over::LOCK).into_iter().chain(find_read_write(over::RW_LOCK));
    let keys = options.flat_map(|entry| entry.options).map(|one| one.key);
    let keys: Vec<&str> = keys.filter(|key| *key != "slot").collect();
    if keys.contains(&key) {
        return Ok(piece);
    }
    let meant =
        nearest(key, keys).map_or_else(String::new, |key| format!(", did you mean '{key}'?"));
    Err(Failure::new(format!("lock '{lock}': no option '{key}'{meant}")).hint(format!(
        "constants: {SET}{piece} where a lock is named, --set {piece} as a flag; options: lockwright explain {}",
        over::LOCK
    )))
}

/// How a lock is written that asks this policy: what [`split`] reads.
pub(crate) fn joined(word: &str, settings: &[Setting], options: Option<&str>) -> String {
    let settings = settings.iter().map(|setting| format!(",{SET}{}", setting.text()));
    let options = options.map_or_else(String::new, |options| format!(",{options}"));
    format!("{PREFIX}{word}{}{options}", settings.collect::<String>())
}

impl Asked {
    pub(crate) fn chosen(&self) -> Result<Chosen, Failure> {
        Chosen::with(&[&self.word], &self.settings)
    }
}

impl Slots {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lock that asks the policy of `NAME[,key=value,...]`.
    pub(crate) fn add(&mut self, policy: &str) -> Result<String, Failure> {
        self.translated(&format!("{PREFIX}{policy}"), "")
    }

    /// The same for a lock as it is written, `place` for messages; one that asks no policy stays as it is.
    pub(crate) fn translated(&mut self, lock: &str, place: &str) -> Result<String, Failure> {
        let within = |failure: Failure| failure.within(place);
        let Some((asked, options)) = split(lock).map_err(within)? else {
            return Ok(lock.to_owned());
        };
        let slot = self.0.iter().position(|(known, _)| *known == asked);
        let slot = slot.unwrap_or_else(|| {
            self.0.push((asked, place.to_owned()));
            self.0.len() - 1
        });
        match slot + 1 < SLOTS {
            true => Ok(over::lock(slot as u32 + 1, options.as_deref())),
            false => Err(Failure::new(format!("{place}more than {} policies", SLOTS - 1))
                .hint("several as one take one place: policy:A+B")),
        }
    }

    /// The policies by their slots, each with where it is named.
    pub(crate) fn each(&self) -> impl Iterator<Item = (u32, &Asked, &str)> {
        (1..).zip(&self.0).map(|(slot, (asked, place))| (slot, asked, place.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_has_one_slot() {
        let mut slots = Slots::default();
        let locks = [
            "policy:numa",
            "fifo:spin=1",
            "policy:cal,bypass=8",
            "policy:numa,spin=0",
            "policy:cal,bypass=8,set.classes=3,spin=0",
        ];
        let locks = locks.map(|lock| slots.translated(lock, "").unwrap());
        assert_eq!(
            locks,
            [
                "programmed:slot=1",
                "fifo:spin=1",
                "programmed:slot=2,bypass=8",
                "programmed:slot=1,spin=0",
                "programmed:slot=3,bypass=8,spin=0"
            ]
        );
        let many = (0..SLOTS).map(|number| slots.add(&number.to_string()));
        assert!(many.collect::<Result<Vec<_>, _>>().is_err());
    }

    #[test]
    fn what_is_joined_is_split() {
        let settings =
            ["most_ns=1ms", "numa.most_passed=7"].map(|one| Setting::parse(one).unwrap());
        let lock = joined("numa+cal", &settings, Some("bypass=8,spin=0"));
        assert_eq!(lock, "policy:numa+cal,set.most_ns=1ms,set.numa.most_passed=7,bypass=8,spin=0");
        let asked = Asked { word: "numa+cal".to_owned(), settings: settings.to_vec() };
        assert_eq!(split(&lock).unwrap(), Some((asked, Some("bypass=8,spin=0".to_owned()))));
        assert_eq!(split("fifo:spin=1").unwrap(), None);
        assert!(split("policy:cal,set.classes=many").is_err());
        assert!(split("policy:cal,slot=2").is_err(), "it would ask another policy");
        let failure = split("policy:cal,bypas=8").unwrap_err();
        assert!(failure.message().ends_with("no option 'bypas', did you mean 'bypass'?"));
    }
}
