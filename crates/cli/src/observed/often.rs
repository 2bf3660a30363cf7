//! Locks that are taken too often without waiting, in words.

use crate::output::{beside, shown};
use lockwright_numbers::format::{count, time};
use lockwright_observer::findings::{OftenSite, TakenOften};

/// Number of places shown.
const PLACES: usize = 3;

/// The functions that take locks so often that it is worth telling; empty: none does.
/// `is_said`: the report has begun with how much that is, and what to do.
pub(crate) fn text(often: &TakenOften, is_said: bool) -> String {
    if often.sites.is_empty() {
        return String::new();
    }
    let mut text = match is_said {
        true => "taken often:\n".to_owned(),
        false => beside("taken often: ", &head(often)),
    };
    for site in often.sites.iter().take(PLACES) {
        text += &beside("  ", &shown(&self::site(site)));
    }
    if often.sites.len() > PLACES {
        text += &format!("  {} more places: --format json\n", often.sites.len() - PLACES);
    }
    if let Some(why) = &often.uncounted {
        text += &beside("  ", &format!("how often isn't known: {why}"));
    }
    match is_said {
        true => text,
        false => text + &beside("  advice  ", &advice(often)),
    }
}

/// How much it is.
pub(super) fn head(often: &TakenOften) -> String {
    let waited = if waits(often) == 0 { "nobody waits" } else { "hardly anybody waits" };
    let samples = often.sites.iter().map(|site| site.samples).sum();
    format!(
        "{:.0} % of the CPU time goes into locks that {waited} for, from {} of {} samples",
        100.0 * often.told(),
        count(samples),
        count(often.of)
    )
}

/// One of the functions.
pub(super) fn site(site: &OftenSite) -> String {
    let place = if site.place.is_empty() { String::new() } else { format!(" ({})", site.place) };
    let who = match &site.caller {
        Some(caller) => format!("{}, called by {caller}{place}", site.function),
        None => format!("{}{place}", site.function),
    };
    let what = || match (&site.lock, site.locks) {
        // One in the heap has no name.
        (Some(lock), _) if !lock.contains(' ') => format!("takes {lock}"),
        (Some(_), _) | (None, 0 | 1) => "takes its lock".to_owned(),
        (None, many) => format!("takes {many} locks or more"),
    };
    let rate = match site.at_least {
        Some(rate) => format!(", {} at least {} times a second", what(), count(rate as u64)),
        None if site.is_too_often => format!(", {}, too often to be counted", what()),
        None => String::new(),
    };
    format!("{who}: {:.0} %{rate}", 100.0 * site.share)
}

/// What to do.
pub(super) fn advice(often: &TakenOften) -> String {
    let wait_ns = often.sites.iter().map(|site| site.wait_ns).sum::<u64>();
    let waited = match waits(often) {
        0 => "never waited for".to_owned(),
        1 => format!("seldom waited for (a wait, {})", time(wait_ns as f64)),
        many => {
            format!("seldom waited for ({} waits, {} in all)", count(many), time(wait_ns as f64))
        }
    };
    let what = match often.sites.first() {
        Some(site) => match (&site.caller, site.place.as_str()) {
            (Some(caller), "") => format!("call {} less often in {caller}", site.function),
            (Some(caller), place) => {
                format!("call {} less often in {caller} ({place})", site.function)
            }
            (None, _) => format!("call {} less often", site.function),
        },
        None => "take them less often".to_owned(),
    };
    format!(
        "{what}: keep the result, or do more with the lock once it is taken. Another lock won't help, since it is {waited}"
    )
}

fn waits(often: &TakenOften) -> u64 {
    often.sites.iter().map(|site| site.waits).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn often() -> TakenOften {
        let fetch = OftenSite {
            function: "EVP_MD_fetch".into(),
            caller: Some("work".into()),
            place: "crypt.c:8".into(),
            share: 0.38,
            samples: 380,
            at_least: Some(912_000.0),
            locks: 3,
            ..OftenSite::default()
        };
        TakenOften {
            share: 0.41,
            samples: 410,
            of: 1000,
            sites: vec![fetch],
            ..TakenOften::default()
        }
    }

    #[test]
    fn it_says_where_how_much_and_how_often() {
        let text = text(&often(), false);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.starts_with(
                "taken often: 38 % of the CPU time goes into locks that nobody waits for, from 380 of 1.00 k samples \
                 EVP_MD_fetch, called by work (crypt.c:8): 38 %, takes 3 locks or more at least 912 k times a second \
                 advice call EVP_MD_fetch less often in work (crypt.c:8): keep the result"
            ),
            "{words}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let mut often = often();
        (often.sites[0].at_least, often.sites[0].is_too_often) = (None, true);
        assert!(site(&often.sites[0]).ends_with("takes 3 locks or more, too often to be counted"));
    }

    #[test]
    fn what_isnt_known_is_left_out() {
        let mut often = often();
        often.sites[0] = OftenSite {
            function: "poll".into(),
            share: 0.1,
            waits: 2,
            wait_ns: 3000,
            ..OftenSite::default()
        };
        often.uncounted = Some("a debugger uses the CPU's breakpoints".into());
        let text = text(&often, false);
        assert!(
            text.contains("\n  poll: 10 %\n") && text.contains("hardly anybody waits"),
            "{text}"
        );
        assert!(
            text.contains("seldom waited for (2") && text.contains("how often isn't known: "),
            "{text}"
        );
        often.sites.clear();
        assert_eq!(super::text(&often, false), "");
    }
}
