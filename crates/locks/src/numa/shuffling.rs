//! The orders into which shfllock (shfllock.rs) puts its waiters.

use lockwright_platform::Place;

/// In which order waiters are put.
pub trait Policy: Send + Sync + 'static {
    /// What matters of a waiter.
    fn group(place: Place) -> u32;
    /// The number of a head that nobody has placed; the last head's is `last`.
    fn first(last: u32, group: u32) -> u32;
    /// May one of `next` follow one of `group` that has this number? Then with which number.
    fn follow(group: u32, number: u32, next: u32) -> Option<u32>;
}

/// A cluster's waiters together, up to so many.
#[derive(Debug)]
pub struct Clusters;
const TURN: u32 = 1024;

impl Policy for Clusters {
    fn group(place: Place) -> u32 {
        place.domain.into()
    }

    fn first(_last: u32, _group: u32) -> u32 {
        1
    }

    fn follow(group: u32, number: u32, next: u32) -> Option<u32> {
        (next == group && number < TURN).then_some(number + 1)
    }
}

/// A little core after ten big ones. The number is how many big ones have had their turns since, and one more.
#[derive(Debug)]
pub struct Proportion;
pub(super) const BIG: u32 = 10;

impl Policy for Proportion {
    fn group(place: Place) -> u32 {
        u32::from(!place.class.is_big())
    }

    fn first(last: u32, group: u32) -> u32 {
        if group == 0 { (last + 1).clamp(2, BIG + 1) } else { 1 }
    }

    fn follow(_: u32, number: u32, next: u32) -> Option<u32> {
        match (number <= BIG, next) {
            (true, 0) => Some(number + 1),
            (false, 1..) => Some(1),
            _ => None,
        }
    }
}
