//! `lockwright policy`: locks that a user programs.
//!
//! ```text
//!   file, shipped, store ─► named ─► chosen ─► verified ─► check: what it is, what it costs
//!        ▲ clang: .c                             │
//!        skeleton: new       settings: --set     ├─► conflicts: several as one
//!                                                ├─► simulated: beside other locks
//!                                                └─► loading ─► remote: into a process, guarded; over: which locks ask it
//! ```

pub(crate) mod chosen;
pub(crate) mod clang;
pub(crate) mod compared;
pub(crate) mod conflicts;
pub(crate) mod drawn;
pub(crate) mod loading;
pub(crate) mod named;
pub(crate) mod over;
mod readers;
pub(crate) mod remote;
pub(crate) mod settings;
pub(crate) mod simulated;
pub(crate) mod skeleton;
pub(crate) mod slots;
pub(crate) mod started;
pub(crate) mod stats;
pub(crate) mod store;
pub(crate) mod tags;
pub(crate) mod unchecked;
pub(crate) mod verdict;
