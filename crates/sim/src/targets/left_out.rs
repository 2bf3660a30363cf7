//! What is not run.

use serde::Deserialize;

/// A figure, or a family of figures, that is not run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// Which one, named like the others.
    pub figure: String,
    /// The paper, its venue and year.
    pub paper: String,
    /// What it shows, in a few words.
    pub what: String,
    /// Why it is not run, and what there is instead.
    pub reason: String,
}

/// The papers' figures with locks' results that are not run.
///
/// # Panics
/// Never: the file comes with the program, and is tested.
pub fn left_out() -> Vec<LeftOut> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct All {
        figure: Vec<LeftOut>,
    }
    let all: All = toml::from_str(include_str!("../../targets/left-out.toml")).expect("tested");
    all.figure
}
