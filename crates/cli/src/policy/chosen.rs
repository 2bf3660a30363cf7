//! The policy that a command is about: one, or several as one (`numa+big-first`), and what the verifier says of it.

use super::named::{From, Named};
use crate::hints::Failure;
use lockwright_policy::compose::compose;
use lockwright_policy::object::Object;
use lockwright_policy::verify::{Rejected, Verified, verify};
use lockwright_programs::image::NAME;
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
}

impl Chosen {
    /// The policy that this word means.
    pub(crate) fn find(word: &str) -> Result<Self, Failure> {
        // A file's name may have a plus.
        let words: Vec<&str> = match Path::new(word).exists() {
            true => vec![word],
            false => word.split('+').collect(),
        };
        Self::of(&words)
    }

    /// These policies as one; each may itself be several.
    pub(crate) fn all<W: AsRef<str>>(words: &[W]) -> Result<Self, Failure> {
        match words {
            [one] => Self::find(one.as_ref()),
            many => Self::of(&many.iter().map(AsRef::as_ref).collect::<Vec<_>>()),
        }
    }

    fn of(words: &[&str]) -> Result<Self, Failure> {
        let mut parts = Vec::new();
        for word in words {
            let named = Named::find(word)?;
            let object = named.read()?;
            parts.push((named, object));
        }
        let pairs: Vec<_> =
            parts.iter().map(|(named, object)| (named.name.as_str(), object)).collect();
        let object = compose(&pairs).map_err(|why| {
            Failure::new(format!("cannot compose {}: {why}", words.join(", ")))
                .hint("lockwright policy compose numa big-first")
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
        Ok(Self { name, version, parts, object })
    }

    /// Its name, and its version if it has one.
    pub(crate) fn title(&self) -> String {
        match self.version {
            0 => self.name.clone(),
            version => format!("{}@{version}", self.name),
        }
    }

    /// The word that names it again on a command line.
    pub(crate) fn word(&self) -> String {
        let word = |(named, _): &(Named, Object)| match &named.from {
            From::File(path) => path.display().to_string(),
            From::Shipped | From::Stored => named.title(),
        };
        let words: Vec<_> = self.parts.iter().map(word).collect();
        crate::output::shown(&words.join("+")).into_owned()
    }

    pub(crate) fn object(&self) -> &Object {
        &self.object
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
