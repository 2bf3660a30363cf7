//! What a figure is: how it is measured, and the numbers that its targets choose.

use crate::{Context, Error, Measured};
use lockwright_sim::profile::Profile;
use lockwright_sim::targets;
use std::sync::Arc;

/// How a figure is measured. Each family's file lists its own.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The figure's id, which is also that of its targets.
    pub id: &'static str,
    /// Runs it. A row's measurement has one value for each seed. Rows of locks that don't exist yet are left out.
    pub measure: fn(&Context<'_>) -> Result<Measured, Error>,
}

impl Experiment {
    /// Can it run on that machine? Plans the runs without making them.
    ///
    /// # Errors
    /// Why it can't.
    pub fn check(&self, profile: Arc<Profile>) -> Result<(), Error> {
        match (self.measure)(&Context { only_plan: true, ..Context::new(profile, 1) }) {
            Ok(_) | Err(Error::OnlyPlanned) => Ok(()),
            Err(why) => Err(why),
        }
    }
}

/// A number that the paper doesn't publish, and that `figure`'s targets choose.
///
/// # Errors
/// They choose none of that name.
pub fn chosen(figure: &str, key: &str) -> Result<f64, Error> {
    let number = targets::figure(figure)
        .and_then(|figure| figure.chosen.get(key).map(|chosen| chosen.value));
    number.ok_or_else(|| Error::NotChosen { figure: figure.to_owned(), key: key.to_owned() })
}
