//! Charts as SVG and pages as HTML. Each file is self-contained: no network, no scripts, no fonts. The same data gives
//! the same bytes.
//!
//! ```text
//!   page (maud)     curves  rows  heat  terminal      what callers describe
//!                      └─────┼─────┘
//!                   head   axis                       titles, keys, scales
//!                      canvas                         plotters, text that is measured, ink for light and dark
//! ```
//!
//! Callers describe the content: panels of curves over axes ([`Curves`]), rows of marks beside names ([`Rows`]),
//! coloured fields ([`Heat`]). The layout is computed here from the width of the text, so that nothing overlaps.

mod axis;
mod canvas;
mod curves;
mod head;
mod heat;
pub mod page;
mod rows;
mod terminal;

pub use axis::{Axis, Show, far_apart};
pub use canvas::Ink;
pub use curves::{Curves, Note, Panel, Range, Series};
pub use head::{Head, Look, Style};
pub use heat::{ColourStep, Field, Heat, HeatBlock};
pub use rows::{Block, Cell, Column, ColumnLine, Group, Mark, Row, Rows};
pub use terminal::terminal;
