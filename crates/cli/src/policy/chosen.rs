//! The policy that a command is about: one, or several as one (`numa+big-first`), and what the verifier says of it.

use super::named;
use super::settings::{self, Setting};
use super::unchecked::{From, Named, title};
use crate::hints::Failure;
use lockwright_contract::programs::image::NAME;
use lockwright_policy::compose::compose;
use lockwright_policy::object::Object;
use lockwright_policy::verify::{Rejected, Verified, verify};
use std::path::Path;

/// A policy that nobody has verified yet.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// Its name: of several, all with `+` between them.
    pub(crate) name: String,
    /// Its version in the store; 0: it isn't from there, or is several.
    pub(crate) version: u32,
    /// The policies of which it is made, in the order in which they are asked.
    pub(crate) parts: Vec<(Named, Object)>,
    object: Object,
    settings: Vec<Setting>,
}

/// The policies in a word: `numa+big-first`.
fn single(word: &str) -> Vec<&str> {
    // A file's name may have a plus.
    match Path::new(word).exists() {
        true => vec![word],
        false => word.split('+').collect(),
    }
}

impl Chosen {
    /// The policy that this word means.
    pub(crate) fn find(word: &str) -> Result<Self, Failure> {
        Self::with(&[word], &[])
    }

    /// These policies as one, with these values of their constants; each may itself be several.
    pub(crate) fn with<W: AsRef<str>>(words: &[W], settings: &[Setting]) -> Result<Self, Failure> {
        let mut parts = Vec::new();
        for word in words.iter().flat_map(|word| single(word.as_ref())) {
            let named = named::find(word)?;
            let object = named.read()?;
            parts.push((named, object));
        }
        let objects = parts.iter_mut().map(|(named, object)| (&*named.name, object));
        settings::apply(settings, objects)?;
        let pairs: Vec<_> =
            parts.iter().map(|(named, object)| (named.name.as_str(), object)).collect();
        let object = compose(&pairs).map_err(|why| {
            let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
            Failure::new(format!("cannot compose {}: {why}", words.join(", ")))
                .hint("for example: lockwright policy compose numa big-first")
        })?;
        let (name, version) = match &parts[..] {
            [(one, _)] => (one.name.clone(), one.version),
            many => {
                let titles = many.iter().map(|(named, _)| named.title());
                (titles.collect::<Vec<_>>().join("+"), 0)
            }
        };
        let name = match name.len() < NAME {
            true => name,
            false => format!("{}...", &name[..NAME - 4]),
        };
        Ok(Self { name, version, parts, object, settings: settings.to_vec() })
    }

    /// Its name, and its version if it has one.
    pub(crate) fn title(&self) -> String {
        title(&self.name, self.version)
    }

    /// The words that name it again on a command line.
    pub(crate) fn word(&self) -> String {
        let word = |(named, _): &(Named, Object)| match &named.from {
            From::File(path) => path.display().to_string(),
            From::Shipped | From::Stored => named.title(),
        };
        let words: Vec<_> = self.parts.iter().map(word).collect();
        let set = self.settings.iter().map(|setting| format!(" --set {}", setting.text()));
        let words = words.join("+") + &set.collect::<String>();
        crate::output::shown(&words).into_owned()
    }

    /// What the verifier says.
    pub(crate) fn verify(&self) -> Result<Verified, Rejected> {
        verify(self.object.clone())
    }

    /// The same, where a policy that is rejected ends the command.
    pub(crate) fn verified(&self) -> Result<Verified, Failure> {
        self.verify().map_err(|rejected| {
            let first = rejected.complaints().first();
            let why = first.map_or_else(String::new, |complaint| {
                let line = complaint.line.as_ref();
                let place = line.map_or_else(String::new, |line| {
                    format!(" ({}:{})", line.file.trim_start_matches("./"), line.number)
                });
                format!(": {} {}{place}", complaint.hook.name(), complaint.what)
            });
            Failure::no(format!("the verifier rejects {}{why}", self.title()))
                .hint(format!("lockwright policy check {}", self.word()))
        })
    }
}
