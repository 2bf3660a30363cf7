//! Statistics of samples ([`Spread`], [`median`], [`Times`]), and numbers and times as people write ([`format`]) and
//! read them ([`units`]). One definition of each, for all commands.

pub mod format;
mod spread;
mod times;
pub mod units;

pub use spread::{Spread, median, quantile};
pub use times::{Times, recorder};
