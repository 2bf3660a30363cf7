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
    own_without_advice(lock, threads) + &beside("   advice    ", &shown(&lock.advice))
}

/// The same, for a report that has begun with the advice.
pub(crate) fn own_without_advice(lock: &OwnLock, threads: usize) -> String {
    beside("*  ", &shown(&own_brief(lock, threads))) + &sites("   waited in ", &lock.waiters)
}

/// Places, each behind this word.
pub(crate) fn sites(verb: &str, all: &[WaitSite]) -> String {
    let mut text = String::new();
    let is_shown = |(number, site): &(usize, &WaitSite)| {
        *number == 0 || (*number < SITES && site.share >= NOISE)
    };
    for (_, site) in all.iter().enumerate().filter(is_shown) {
        text += &beside(verb, &shown(&format!("{:.0} % {}", 100.0 * site.share, place(site))));
    }
    text
}

/// A place in the user's program: `update (server.c:42)`.
pub(crate) fn called(site: &Site) -> String {
    match site.place.as_str() {
        "" => site.function.clone(),
        place => format!("{} ({place})", site.function),
    }
}

/// `update (server.c:42)`; `None`: not known.
pub(crate) fn place_of(site: &WaitSite) -> Option<String> {
    let short = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let function = site.function.as_ref()?;
    Some(match (&site.file, site.line) {
        (Some(file), Some(line)) => format!("{function} ({}:{line})", short(file)),
        _ => function.clone(),
    })
}

/// `update (server.c:42), running, called by work < main`
pub(crate) fn place(site: &WaitSite) -> String {
    let Some(place) = place_of(site) else {
        return site.state.unwrap_or("unknown").to_owned();
    };
    let state = site.state.map_or_else(String::new, |state| format!(", {state}"));
    let mut callers = site.callers.iter().take(CALLERS).cloned().collect::<Vec<_>>().join(" < ");
    if !callers.is_empty() {
        callers.insert_str(0, ", called by ");
    }
    format!("{place}{state}{callers}")
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
const LEAST: f64 = 0.05;

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

/// Longer names lose the arguments of their templates.
const NAME: usize = 40;
/// Functions of libraries in which every thread begins.
const BEGINNINGS: [&str; 7] = [
    "start_thread",
    "clone",
    "clone3",
    "_start",
    "__libc_start_main",
    "__libc_start_call_main",
    "__libc_start_main_impl",
];

/// How names of functions begin that only pass a call on, between a thread's beginning and the program.
const MACHINERY: [&str; 9] = [
    "operator()",
    "libstdc++.so",
    "_M_invoke",
    "_M_run",
    "__invoke",
    "std::__invoke",
    "std::thread::",
    "std::sys::",
    "core::ops::function::",
];

/// Who called this function, by a stack, the innermost function first: `, called by work < main`; empty: that isn't known. Between them may lie
/// functions that the report passes by, such as a guard's.
pub(crate) fn callers(function: &str, stack: &[String]) -> String {
    let name = |frame: &String| frame.split(" (").next().unwrap_or_default().to_owned();
    let is_own = |name: &String| {
        let name = name.split('@').next().unwrap_or_default();
        let is_library = MACHINERY.iter().any(|begin| name.starts_with(begin));
        !BEGINNINGS.contains(&name) && !is_library
    };
    let all: Vec<String> = stack.iter().map(name).collect();
    let inner = all.iter().rposition(|name| name == function).map_or(1, |at| at + 1);
    let names = all.iter().skip(inner).filter(|name| is_own(name)).take(CALLERS);
    let names: Vec<String> = names.map(|name| short(name)).collect();
    if names.is_empty() { String::new() } else { format!(", called by {}", names.join(" < ")) }
}

/// A function's name without what makes it too long to read: the arguments of templates.
fn short(name: &str) -> String {
    if name.chars().count() <= NAME {
        return name.to_owned();
    }
    let (mut short, mut depth) = (String::new(), 0_usize);
    for letter in name.chars() {
        match letter {
            '<' => {
                if depth == 0 {
                    short.push_str("<...");
                }
                depth += 1;
            }
            '>' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    short.push('>');
                }
            }
            _ if depth == 0 => short.push(letter),
            _ => {}
        }
    }
    short
}

/// A share (0 to 1), as precise as people need it.
pub(crate) fn part(share: f64) -> String {
    match 100.0 * share {
        percent if percent >= 99.5 => "all".to_owned(),
        percent if percent >= 10.0 => format!("{percent:.0} %"),
        percent if percent >= 0.1 => format!("{percent:.1} %"),
        _ => "less than 0.1 %".to_owned(),
    }
}

/// How often, and the longest time.
pub(crate) fn times(site: &Site) -> String {
    let (entered, longest) = (often(site.count), duration(site.max_ns));
    match site.samples {
        None => format!("{entered}, longest {longest}"),
        Some(samples) if site.max_ns == 0 => {
            format!("about {entered}, from {} samples", count(samples))
        }
        Some(samples) => {
            let samples = count(samples);
            format!("about {entered}, longest seen {longest}, from {samples} samples")
        }
    }
}

/// How often others waited for a thread in this section, and the longest time.
pub(crate) fn kept_waiting(site: &Site) -> String {
    format!("others waited {}", times(site))
}

/// The same, for a lock that readers hold together: the last one that leaves it is known.
pub(crate) fn left_last(site: &Site) -> String {
    format!("it left last, others waited {}", times(site))
}

/// `once`, or `1.20 k times`.
fn often(many: u64) -> String {
    if many == 1 { "once".to_owned() } else { format!("{} times", count(many)) }
}

/// A time, ns, in words.
pub(crate) fn duration(ns: u64) -> String {
    time(ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_begin_behind_the_function_that_is_named() {
        let stack =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let plain = stack(&[
            "put (a.c:1)",
            "work (a.c:9)",
            "start_thread (pthread_create.c:442)",
            "clone3",
        ]);
        assert_eq!(callers("put", &plain), ", called by work");
        let guarded = stack(&[
            "std::mutex::unlock",
            "std::scoped_lock<std::mutex>::~scoped_lock",
            "put",
            "work",
            "main",
        ]);
        assert_eq!(callers("put", &guarded), ", called by work < main");
        assert_eq!(callers("put", &stack(&["put"])), "");
        let long = "std::map<std::string, std::vector<int>>::emplace_back_or_so<int, int>";
        assert_eq!(
            callers("x", &stack(&["x", long])),
            ", called by std::map<...>::emplace_back_or_so<...>"
        );
    }

    #[test]
    fn a_share_is_as_precise_as_people_need_it() {
        assert_eq!(
            [0.999, 0.42, 0.0123, 0.00001].map(part),
            ["all", "42 %", "1.2 %", "less than 0.1 %"]
        );
    }
}
