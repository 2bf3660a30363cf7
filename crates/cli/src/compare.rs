//! `lockwright compare`: a program of the user's own under several locks, in turns, until the answer is clear.
//!
//! ```text
//!  settings ─► measure: rounds of runs ─► runs ─► outcome: ratios, findings ─► report
//!                 │   ▲                              │
//!                 │   └──── is it clear? ◄───────────┤
//!                 └ run: the program, or a server and its load; figure: what is read from them
//! ```

pub(crate) mod figure;
pub(crate) mod futexes;
pub(crate) mod measure;
pub(crate) mod outcome;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod server;

use serde::Serialize;

/// What a run is given.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Setting {
    /// As it was asked for.
    pub(crate) name: String,
    /// As the library is told; `None`: the program runs without it.
    pub(crate) lock: Option<String>,
}
