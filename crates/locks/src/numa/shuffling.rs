//! The orders into which shfllock (shfllock.rs) puts its waiters.

use lockwright_platform::Place;

/// The order into which waiters are put.
pub trait Policy: Send + Sync + 'static {
    /// A waiter's group, which decides its place.
    fn group(place: Place) -> u32;
    /// The number of a head that nobody has placed; `last` is the last head's number.
    fn first(last: u32, group: u32) -> u32;
    /// May a waiter of group `next` follow one of `group` with this number? If so, returns its own number.
    fn follow(group: u32, number: u32, next: u32) -> Option<u32>;
}

/// A cluster's waiters together, up to [`TURN`] of them.
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

/// A little core after ten big ones. The number is 1 plus how many big ones have had their turns since.
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
