//! What the whole-system tests share: child processes that cannot outlive their time limit, the
//! places of things (the preloaded library, the C sources, the build folder), and which locks have their turn.

mod child;
mod place;
mod turn;

pub use child::{Child, End, Outcome, Running};
pub use place::{compile, executable, library, preload_list, scratch, source_dir, target_dir};
pub use turn::{SOAK, first_and_in_turn, in_turn, is_soak};
