//! Statistics of samples ([`Spread`], [`median`], [`Times`]), and the formatting ([`format`]) and parsing ([`units`])
//! of numbers and times. All commands use these definitions. And how long a program may take ([`patience`]).

pub mod format;
pub mod patience;
mod spread;
mod times;
pub mod units;

pub use spread::{Spread, median, median_interval, quantile};
pub use times::{Times, recorder};
