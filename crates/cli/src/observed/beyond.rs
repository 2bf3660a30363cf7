//! What only some locks have, in words: the sides of a readers-writer lock, and tries in vain.

use crate::output::{beside, shown};
use crate::profile::words::duration;
use lockwright_numbers::format::count;
use lockwright_observer::counts::beyond::{Beyond, Prefers, Side, Sides};
use lockwright_observer::counts::observation::{Ranked, Site};

/// Number of places shown for each.
pub(super) const PLACES: usize = 3;

/// Readers and writers of a readers-writer lock.
pub(super) fn sides(sides: &Sides) -> String {
    let Sides { prefer, readers, writers } = sides;
    let side = |(who, side): (&str, &Side)| {
        let Side { waits, wait_ns, max_ns, .. } = side;
        let times = format!("{}, longest {}", duration(*wait_ns), duration(*max_ns));
        let waits_of =
            if *waits == 1 { "a wait".to_owned() } else { format!("{} waits", count(*waits)) };
        (*waits > 0).then(|| format!("{who}: {waits_of}, {times}"))
    };
    let parts: Vec<String> =
        [("readers", readers), ("writers", writers)].into_iter().filter_map(side).collect();
    let who = match parts.is_empty() {
        true => String::new(),
        false => beside("   who waits ", &parts.join("; ")),
    };
    who + &beside("   prefers   ", preferred(*prefer))
}

/// Whom a readers-writer lock prefers.
fn preferred(prefer: Prefers) -> &'static str {
    match prefer {
        Prefers::Readers => "readers: they go in past a waiting writer",
        Prefers::Writers => "writers when a writer leaves",
        Prefers::WritersStrictly => "writers",
        Prefers::Patient => "neither: readers let a waiting writer go first for a while",
    }
}

/// Failed tries; empty: there were none.
pub(super) fn tries(lock: &Ranked) -> String {
    let Beyond { failed_tries, triers, tried_holders, .. } = &lock.beyond;
    if *failed_tries == 0 {
        return String::new();
    }
    let places = |sites: &[Site]| {
        let places = sites.iter().take(PLACES).map(|site| match site.place.as_str() {
            "" => site.function.clone(),
            place => format!("{} ({place})", site.function),
        });
        places.collect::<Vec<_>>().join(", ")
    };
    let mut line = format!("{} failed trylocks, in {}", count(*failed_tries), places(triers));
    if !tried_holders.is_empty() {
        line += &format!("; held meanwhile by {}", places(tried_holders));
    }
    beside("   tried     ", &shown(&line))
}
