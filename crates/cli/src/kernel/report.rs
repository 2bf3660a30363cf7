//! The report of an observation, as text and JSON.

use crate::output::{self, shown};
use lockwright_contract::histogram;
use lockwright_kernel::{By, Cost, Group, Named, Profile, Sum, groups};
use lockwright_numbers::format::{thousands, time};
use serde_json::{Value, json};

/// Maximum number of callers of each lock in the table.
const PARTS: usize = 3;

/// The contents of the report.
pub(crate) struct Report<'a> {
    pub(crate) profile: &'a Profile,
    /// The waits that pass the filters.
    pub(crate) waits: &'a [Named],
    pub(crate) by: By,
    /// Number of groups in the table.
    pub(crate) top: usize,
    pub(crate) with_histograms: bool,
    /// Show whole chains of callers?
    pub(crate) with_stacks: bool,
    /// `kernel locks` or `futexes`.
    pub(crate) what: &'a str,
    /// A description of the scope: `of the whole machine`.
    pub(crate) whose: &'a str,
    /// Descriptions of the filters.
    pub(crate) filters: &'a [String],
    pub(crate) machine: &'a str,
}

impl Report<'_> {
    pub(crate) fn text(&self) -> String {
        let elapsed = time(self.profile.elapsed.as_nanos() as f64);
        let all = total(self.waits);
        let mut head = format!(
            "waits for {} {}, observed for {elapsed}: {}, {} in all (real, Linux {})\n",
            self.what,
            shown(self.whose),
            counted(all.count, "wait"),
            time(all.total_ns as f64),
            self.machine,
        );
        for filter in self.filters {
            head += &format!("only {}\n", shown(filter));
        }
        let mut text = output::wrapped(head.trim_end()) + "\n";
        let groups = groups(self.waits, self.by);
        if !groups.is_empty() {
            text += &format!("\n{}\n", self.table(&groups));
        }
        if groups.len() > self.top {
            let more = groups.len() - self.top;
            text += &format!(
                "and {more} more, with less waiting time (--top {}, or --format json)\n",
                groups.len()
            );
        }
        text + &self.notes()
    }

    fn table(&self, groups: &[Group]) -> String {
        let what = match self.by {
            By::Lock => "lock, callers",
            By::Caller => "caller, locks",
            By::Type => "type, locks",
        };
        let mut table = output::table(&["waits", "total", "P50", "P99", "max", "type", what])
            .least(&["type", "max", "P50", "P99"])
            .all_by("--format json");
        for group in groups.iter().take(self.top) {
            table.add_row(row(group, &shown(&group.name)));
            if self.with_histograms {
                table.line(bars(&group.sum).trim_end());
            }
            for part in group.parts.iter().take(PARTS) {
                table.add_row(row(part, &format!("\u{2514} {}", shown(&part.name))));
                if let Some(chain) = chain(part, self.with_stacks) {
                    table.line(&chain);
                }
            }
            if group.parts.len() > PARTS {
                table.line(&format!("{:8}and {} more", "", group.parts.len() - PARTS));
            }
        }
        output::plain(&table)
    }

    /// What is missing, and the cost of the observation.
    fn notes(&self) -> String {
        let (lost, unended) = (&self.profile.lost, &self.profile.unended);
        let mut notes = Vec::new();
        if unended.count > 0 {
            notes.push(format!(
                "not counted: {} still going on at the end, the longest for {}",
                counted(unended.count, "wait"),
                time(unended.longest_ns as f64)
            ));
        }
        if lost.waits > 0 {
            notes.push(format!(
                "lost: {}, {} in all (no room for more locks and callers)",
                counted(lost.waits, "wait"),
                time(lost.ns as f64)
            ));
        }
        if lost.stacks > 0 {
            notes.push(format!(
                "without a caller: {} (their stacks were lost)",
                counted(lost.stacks, "wait")
            ));
        }
        if lost.unseen > 0 {
            notes.push(format!(
                "not counted: {} whose start or end was missed",
                counted(lost.unseen, "wait")
            ));
        }
        if lost.waits + lost.stacks + lost.unseen == 0 {
            notes.push("nothing was lost".to_owned());
        }
        notes.push(cost(&self.profile.cost));
        notes.iter().map(|note| output::wrapped(note) + "\n").collect()
    }

    pub(crate) fn json(&self) -> Value {
        let (profile, lost) = (self.profile, &self.profile.lost);
        let groups: Vec<_> = groups(self.waits, self.by).iter().map(group_json).collect();
        json!({
            "what": self.what,
            "whose": self.whose,
            "only": self.filters,
            "machine": self.machine,
            "elapsed_ns": profile.elapsed.as_nanos() as u64,
            "all": sum_json(&total(self.waits)),
            "by": match self.by { By::Lock => "lock", By::Caller => "caller", By::Type => "type" },
            "groups": groups,
            "unended": { "count": profile.unended.count, "longest_ns": profile.unended.longest_ns },
            "lost": { "waits": lost.waits, "total_ns": lost.ns, "stacks": lost.stacks, "unseen": lost.unseen },
            "cost": { "begin": sum_json(&profile.cost.begin), "end": sum_json(&profile.cost.end) },
        })
    }
}

/// The cost of the observation, in medians: single runs of our program may be preempted or interrupted.
fn cost(Cost { begin, end }: &Cost) -> String {
    if begin.count.min(end.count) == 0 {
        return "cost of a contended event: too few events to tell".to_owned();
    }
    let median = |sum: &Sum| sum.quantile(0.5);
    format!(
        "each contended event cost {} of observation: {} when the wait began, {} when it ended (P50 of {})",
        time((median(begin) + median(end)) as f64),
        time(median(begin) as f64),
        time(median(end) as f64),
        counted(begin.count + end.count, "sample"),
    )
}

fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", thousands(count), if count == 1 { "" } else { "s" })
}

fn total(waits: &[Named]) -> Sum {
    let mut all = Sum::default();
    waits.iter().for_each(|wait| all.merge(&wait.sum));
    all
}

fn row(group: &Group, name: &str) -> Vec<String> {
    let sum = &group.sum;
    vec![
        thousands(sum.count),
        time(sum.total_ns as f64),
        time(sum.quantile(0.5) as f64),
        time(sum.quantile(0.99) as f64),
        time(sum.max_ns as f64),
        kinds(group),
        name.to_owned(),
    ]
}

/// `rwsem` for both reads and writes; `rwsem:W` for one kind.
fn kinds(group: &Group) -> String {
    let mut names: Vec<_> = group.kinds.iter().map(|kind| kind.name()).collect();
    names.dedup();
    match (&group.kinds[..], &names[..]) {
        ([kind], _) => kind.to_string(),
        (_, [name]) => (*name).to_owned(),
        _ => "several".to_owned(),
    }
}

/// The callers of the first caller: one line, or the `whole` chain if requested.
fn chain(part: &Group, whole: bool) -> Option<String> {
    const INDENT: usize = 8;
    let above: Vec<_> = part.callers.iter().skip(1).map(|name| shown(name)).collect();
    let words = above.join(" \u{2190} ");
    if above.is_empty() {
        return None;
    }
    let text = output::beside(&" ".repeat(INDENT), &format!("\u{2190} {words}"));
    let text = text.trim_end();
    Some(match text.split_once('\n') {
        Some((line, _)) if !whole => {
            let kept = line.rsplit_once(" \u{2190}").filter(|(kept, _)| kept.len() > INDENT);
            format!("{} \u{2190} ..", kept.map_or(line, |(kept, _)| kept))
        }
        _ => text.to_owned(),
    })
}

/// A histogram with one bar for each doubling.
fn bars(sum: &Sum) -> String {
    const LENGTH: u64 = 40;
    let mut doublings = std::collections::BTreeMap::<u32, u64>::new();
    for (ns, count) in sum.times.counts() {
        *doublings.entry(ns.max(1).ilog2()).or_default() += count;
    }
    let most = doublings.values().copied().max().unwrap_or(1);
    let (first, last) = (doublings.keys().min().copied(), doublings.keys().max().copied());
    let line = |log: u32| {
        let count = doublings.get(&log).copied().unwrap_or_default();
        let bar = "#".repeat((count * LENGTH).div_ceil(most) as usize);
        let line =
            format!("    from {:>7} {:>10} {bar}", time((1u64 << log) as f64), thousands(count));
        line.trim_end().to_owned() + "\n"
    };
    match (first, last) {
        (Some(first), Some(last)) => (first..=last).map(line).collect(),
        _ => String::new(),
    }
}

fn sum_json(sum: &Sum) -> Value {
    json!({
        "count": sum.count,
        "total_ns": sum.total_ns,
        "p50_ns": sum.quantile(0.5),
        "p99_ns": sum.quantile(0.99),
        "max_ns": sum.max_ns,
    })
}

fn group_json(group: &Group) -> Value {
    let mut value = sum_json(&group.sum);
    let bucket = |(ns, count)| {
        let (low, width) = histogram::range(histogram::bucket(ns));
        json!({ "from_ns": low, "to_ns": low + width, "count": count })
    };
    let histogram: Vec<_> = group.sum.times.counts().map(bucket).collect();
    value["name"] = json!(group.name);
    value["types"] = group.kinds.iter().map(ToString::to_string).collect();
    value["addresses"] = group.locks.iter().map(|at| format!("{at:#x}")).collect();
    value["histogram"] = json!(histogram);
    if !group.callers.is_empty() {
        value["callers"] = json!(group.callers);
    }
    if !group.parts.is_empty() {
        value["parts"] = group.parts.iter().map(group_json).collect();
    }
    value
}
