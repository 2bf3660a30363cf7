//! `lockwright compare`: runs the user's own program under several locks, in rotation, until the result is clear.
//!
//! ```text
//!  settings ─► measure: rounds of runs ─► runs ─► outcome: ratios, findings ─► report
//!                 │   ▲                              │
//!                 │   └──── is it clear? ◄───────────┤
//!                 └ run: the program, or a server and its load; figure: what is read from them
//! ```

mod desk;
pub(crate) mod figure;
pub(crate) mod futexes;
pub(crate) mod measure;
pub(crate) mod outcome;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod server;
mod watch;

use serde::Serialize;

/// The conditions of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Setting {
    /// The lock as the user named it.
    pub(crate) name: String,
    /// The lock as the library is told; `None`: the program runs without the library.
    pub(crate) lock: Option<String>,
    /// Who goes first at readers-writer locks; `None`: as the program asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prefers: Option<&'static str>,
}
