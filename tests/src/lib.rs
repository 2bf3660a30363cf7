//! What the whole-system tests share: child processes that cannot outlive their time limit, and the
//! places of things (the preloaded library, the C sources, the build folder).

mod child;
mod place;

pub use child::{Child, End, Outcome, Running};
pub use place::{compile, library, preload_list, scratch, source_dir, target_dir};
