//! What was seen of threads that wait and of holders, in words: what reports by counts and by samples have in common.

use crate::output::{beside, shown};
use lockwright_numbers::format::{count, time};
use lockwright_observer::counts::observation::Site;
use lockwright_observer::findings::{Cause, Holding};
use lockwright_observer::findings::{OwnLock, WaitSite};

/// Maximum number of sites of a lock in a report; JSON has all.
const SITES: usize = 4;
/// Number of callers shown for a function.
const CALLERS: usize = 3;
/// Shares below this are noise, and are left out if there are others.
pub(crate) const NOISE: f64 = 0.005;

/// Who waits for a lock that isn't one of pthread's, in one line.
pub(crate) fn own_brief(lock: &OwnLock, threads: usize) -> String {
    let of = if threads == 0 { String::new() } else { format!(" of {threads}") };
    format!("{}: {:.1}{of} threads waited on average", lock.name, lock.waiting)
}

/// A lock that isn't one of pthread's.
pub(crate) fn own(lock: &OwnLock, threads: usize) -> String {
    let mut text = beside("*   ", &shown(&own_brief(lock, threads)));
    text += "    waited in\n";
    text += &sites(&lock.waiters);
    text += &beside("    advice   ", &shown(&lock.advice));
    text
}

pub(crate) fn sites(all: &[WaitSite]) -> String {
    let mut text = String::new();
    let is_shown = |(number, site): &(usize, &WaitSite)| {
        *number == 0 || (*number < SITES && site.share >= NOISE)
    };
    for (_, site) in all.iter().enumerate().filter(is_shown) {
        text += &beside(&format!("    {:>7}  ", percent(site.share)), &shown(&place(site)));
    }
    text
}

/// `update (server.c:42), running, called by work < main`
pub(crate) fn place(site: &WaitSite) -> String {
    let Some(function) = &site.function else {
        return site.state.unwrap_or("unknown").to_owned();
    };
    let short = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let place = match (&site.file, site.line) {
        (Some(file), Some(line)) => format!(" ({}:{line})", short(file)),
        _ => String::new(),
    };
    let state = site.state.map_or_else(String::new, |state| format!(", {state}"));
    let mut callers = site.callers.iter().take(CALLERS).cloned().collect::<Vec<_>>().join(" < ");
    if !callers.is_empty() {
        callers.insert_str(0, ", called by ");
    }
    format!("{function}{place}{state}{callers}")
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// What a lock's holders did while others waited: `slept in fsync 83 %, ran 12 %`.
pub(crate) fn meanwhile(holding: &Holding) -> String {
    let part = |(cause, share): &(Cause, f64)| {
        (*share >= LEAST).then(|| format!("{} {:.0} %", did(cause), 100.0 * share))
    };
    let mut parts: Vec<String> = holding.causes.iter().filter_map(part).collect();
    if let [classes @ .., slowest] = &holding.classes[..]
        && *slowest >= LEAST
    {
        parts.push(format!("on cores of class {} {:.0} %", classes.len(), 100.0 * slowest));
    }
    parts.join(", ")
}

/// Fewer samples of holders say nothing.
pub(crate) const FEW: u64 = 5;
/// Smaller shares of what holders did are left out.
const LEAST: f64 = 0.03;

/// In the past tense.
fn did(cause: &Cause) -> String {
    match cause {
        Cause::Running => "ran".into(),
        Cause::PageFaults => "got memory by page faults".into(),
        Cause::Paging => "waited for memory from a disk".into(),
        Cause::Preempted => "had no CPU".into(),
        Cause::Throttled => "had no CPU, as the quota was used up,".into(),
        Cause::Asleep(call) => format!("slept in {call}"),
        Cause::Lock => "waited for another lock".into(),
        Cause::Signal => "waited for a signal".into(),
        Cause::Stopped => "was stopped".into(),
    }
}

/// How often, and the longest time.
pub(crate) fn times(site: &Site) -> String {
    let (entered, longest) = (count(site.count), duration(site.max_ns));
    match site.samples {
        None => format!("{entered} times, longest {longest}"),
        Some(samples) if site.max_ns == 0 => {
            format!("about {entered} times, by {} samples", count(samples))
        }
        Some(samples) => {
            let samples = count(samples);
            format!("about {entered} times, longest seen {longest}, by {samples} samples")
        }
    }
}

/// A time, ns, in words.
pub(crate) fn duration(ns: u64) -> String {
    time(ns as f64)
}
