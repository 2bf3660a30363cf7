//! What the policies of a process have done so far, and what their maps have.

use super::over;
use super::remote::{KnownPolicy, Remote, RemotePlace, title};
use super::verdict::kind_name;
use crate::ctl::target;
use crate::hints::Failure;
use crate::output::{plain, shown, table};
use lockwright_contract::programs::maps::{MapKind, View};
use lockwright_numbers::format::{si, time};
use lockwright_observer::counts::live::now_ns;
use lockwright_observer::mailbox;
use lockwright_observer::process::Process;
use lockwright_policy::control::{AskedHook, Boosts, InSlot};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// A process's policies at one moment.
pub(crate) struct Stats {
    pid: libc::pid_t,
    name: String,
    policies: Vec<Loaded>,
    /// What the process will have when a thread waits for a mutex.
    later: Vec<KnownPolicy>,
    /// What it has until then.
    leaving: Vec<KnownPolicy>,
    boosts: Boosts,
}

struct Loaded {
    seen: InSlot,
    /// Whose locks ask it.
    whose: Vec<String>,
    /// The slot of a policy for all mutexes that was loaded later: they ask that one.
    hidden_by: Option<u32>,
    age_ns: u64,
    maps: Vec<Map>,
}

/// A map's contents, as far as they are shown.
struct Map {
    name: String,
    kind: MapKind,
    /// Entries that it has; of a ring, records that are still there.
    len: usize,
    /// Entries that it can have; of a ring, bytes.
    max: usize,
    lost: u64,
    entries: Vec<(String, Vec<u64>)>,
}

impl Stats {
    /// Looks at a process. `most`: how many entries of each map.
    pub(crate) fn look(pid: libc::pid_t, most: usize) -> Result<Self, Failure> {
        let process = Process::open(pid)?;
        let programs = RemotePlace::find(&process)?.open(&process)?;
        let table = mailbox::Remote::find(&process)?.table()?;
        let whose = target::whose(&process, &table);
        let now = now_ns();
        let mut policies = Vec::new();
        for seen in programs.slots()? {
            let hidden_by = over::hidden_by(&table, seen.slot);
            let own = table.rules.iter().zip(&whose);
            let own = own.filter(|(rule, _)| over::slot(&rule.lock) == Some(seen.slot));
            let mut whose: Vec<String> = own.map(|(_, whose)| whose.clone()).collect();
            if over::slot(&table.default) == Some(seen.slot) {
                whose.push("all other mutexes".to_owned());
            }
            let maps = maps(&programs, &seen, most)?;
            let age_ns = now.saturating_sub(seen.since_ns);
            policies.push(Loaded { seen, whose, hidden_by, age_ns, maps });
        }
        let has = |known: &KnownPolicy| {
            let same = |loaded: &Loaded| {
                loaded.seen.slot == known.slot && title(&loaded.seen) == known.title
            };
            policies.iter().any(same)
        };
        let later = programs.known()?.into_iter().filter(|known| !has(known)).collect();
        let leaving = programs.leaving()?.into_iter().filter(has).collect();
        let boosts = programs.control.boosts()?;
        Ok(Self { pid: process.pid, name: process.name(), policies, later, leaving, boosts })
    }

    /// For `list`: a line for each policy.
    pub(crate) fn lines(&self) -> String {
        let mut text = String::new();
        for Loaded { seen, whose, hidden_by, .. } in &self.policies {
            let mut whose = match whose.is_empty() {
                true => "no lock asks it".to_owned(),
                false => whose.join(", "),
            };
            if let Some(slot) = hidden_by {
                let _ = write!(whose, "; hidden by slot {slot}");
            }
            let off = if seen.too_slow.is_some() { ", taken off" } else { "" };
            let _ = writeln!(text, "  slot {}: {}{off}: {whose}", seen.slot, shown(&title(seen)));
        }
        text += &self.waiting();
        match text.is_empty() {
            true => format!("{} ({}) has no policy\n", self.pid, self.name),
            false => format!("{} ({}):\n{text}", self.pid, self.name),
        }
    }

    /// A line for each request that no thread has taken up.
    fn waiting(&self) -> String {
        let line = |KnownPolicy { slot, title, .. }: &KnownPolicy, what: &str| {
            let title = shown(title);
            format!("  slot {slot}: {title} will be {what} when a thread next waits for a mutex\n")
        };
        let leaving = self.leaving.iter().map(|one| line(one, "unloaded"));
        leaving.chain(self.later.iter().map(|one| line(one, "loaded"))).collect()
    }

    pub(crate) fn text(&self) -> String {
        if self.policies.is_empty() {
            return self.lines();
        }
        let policies: Vec<String> = self.policies.iter().map(Loaded::text).collect();
        let mut text = format!("{} ({})\n\n{}", self.pid, self.name, policies.join("\n"));
        let waiting = self.waiting();
        if !waiting.is_empty() {
            let _ = write!(text, "\nnot taken up yet:\n{waiting}");
        }
        let Boosts { given, refused, now } = self.boosts;
        if given + refused > 0 {
            let _ = writeln!(
                text,
                "\nholders boosted: {given} times, {now} now; should have been, but were not: {refused}"
            );
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        let policies: Value = self.policies.iter().map(Loaded::json).collect();
        let one = |known: &KnownPolicy, change: &str| {
            let KnownPolicy { slot, name, .. } = known;
            json!({ "slot": slot, "policy": name, "change": change })
        };
        let leaving = self.leaving.iter().map(|policy| one(policy, "unload"));
        let later = self.later.iter().map(|policy| one(policy, "load"));
        let later: Value = leaving.chain(later).collect();
        let Boosts { given, refused, now } = self.boosts;
        json!({
            "pid": self.pid, "name": self.name, "policies": policies, "later": later,
            "boosts": { "given": given, "refused": refused, "now": now },
        })
    }
}

impl Loaded {
    fn text(&self) -> String {
        let Self { seen, whose, hidden_by, age_ns, maps } = self;
        let title = shown(&title(seen)).into_owned();
        let mut text =
            format!("slot {}: {title}, loaded {} ago\n", seen.slot, time(*age_ns as f64));
        for one in whose {
            let _ = writeln!(text, "  {one}");
        }
        if whose.is_empty() {
            text += "  no lock asks it\n";
        }
        if let Some(slot) = hidden_by {
            let _ = writeln!(text, "  hidden by slot {slot}, which all mutexes ask");
        }
        if let Some(why) = taken_off(seen) {
            let _ = writeln!(text, "{why}");
        }
        let mut drawn = table(&["hook", "asked", "a second", "each"]).all_by("--format json");
        for AskedHook { hook, asked, mean_ns } in &seen.hooks {
            drawn.add_row([
                hook.name().to_owned(),
                si(*asked as f64),
                si(*asked as f64 / (*age_ns as f64 / 1e9).max(1e-9)),
                mean_ns.map_or("-".to_owned(), time),
            ]);
        }
        text += &plain(&drawn);
        if seen.unasked > 0 {
            let _ = writeln!(
                text,
                "not asked, since the thread was in a hook: {}",
                si(seen.unasked as f64)
            );
        }
        for map in maps {
            text += &map.text();
        }
        text
    }

    fn json(&self) -> Value {
        let Self { seen, whose, hidden_by, age_ns, maps } = self;
        let hooks = seen.hooks.iter().map(|AskedHook { hook, asked, mean_ns }| {
            json!({ "hook": hook.name(), "asked": asked, "mean_ns": mean_ns })
        });
        json!({
            "slot": seen.slot, "policy": seen.name, "version": seen.version, "locks": whose,
            "hidden_by": hidden_by,
            "age_ns": age_ns, "budget_ns": seen.budget_ns,
            "taken_off": seen.too_slow.map(|(hook, ns)| json!({ "hook": hook.name(), "ns": ns })),
            "hooks": hooks.collect::<Value>(), "unasked": seen.unasked,
            "maps": maps.iter().map(Map::json).collect::<Value>(),
        })
    }
}

impl Map {
    fn text(&self) -> String {
        let Self { name, kind, len, max, lost, entries } = self;
        let what = match kind {
            MapKind::Ring => format!("{len} records, {lost} lost"),
            MapKind::Hash => format!("{len} of {max} entries"),
            MapKind::Array | MapKind::PerCpuArray => format!("{len} of {max} entries aren't 0"),
        };
        let mut text = format!("\n{} ({}): {what}\n", shown(name), kind_name(*kind));
        for (key, value) in entries {
            let value: Vec<String> = value.iter().map(u64::to_string).collect();
            let _ = writeln!(text, "  {key}: {}", value.join(" "));
        }
        if *len > entries.len() {
            let _ = writeln!(text, "  ... and {} more: --top {len}", len - entries.len());
        }
        text
    }

    fn json(&self) -> Value {
        let entries = self.entries.iter().map(|(key, value)| json!({ "key": key, "value": value }));
        json!({
            "name": self.name, "kind": kind_name(self.kind), "entries": self.len, "max": self.max,
            "lost": self.lost, "shown": entries.collect::<Value>(),
        })
    }
}

fn maps(programs: &Remote<'_>, seen: &InSlot, most: usize) -> Result<Vec<Map>, Failure> {
    // A record that is overwritten while we read shows by its difference.
    let [before, during, after] = [0, 1, 2].map(|_| programs.control.data(seen));
    let copies = [before?, during?, after?];
    let [before, during, after] = copies.each_ref().map(|copy| View::all(copy).collect::<Vec<_>>());
    let all = during.iter().zip(&before).zip(&after);
    Ok(all.map(|((now, before), after)| map(now, before, after, most)).collect())
}

fn map<'a>(now: &View<'a>, before: &'a View<'a>, after: &'a View<'a>, most: usize) -> Map {
    let is_set = |value: &&[u8]| value.iter().any(|byte| *byte != 0);
    let mut entries: Vec<(String, Vec<u64>)> = match now.kind {
        MapKind::Hash => {
            now.entries().map(|(key, value)| (key_text(key), numbers(value))).collect()
        }
        MapKind::Array => (0..now.max_entries)
            .filter_map(|at| Some((at.to_string(), numbers(now.value(at, 0).filter(is_set)?))))
            .collect(),
        MapKind::PerCpuArray => (0..now.max_entries)
            .filter_map(|at| {
                // The sum over all CPUs, number by number.
                let rows = (0..now.rows).filter_map(|row| now.value(at, row));
                let sum = rows.map(numbers).reduce(|sum, row| {
                    sum.iter().zip(&row).map(|(sum, more)| sum.wrapping_add(*more)).collect()
                })?;
                sum.iter().any(|number| *number != 0).then(|| (at.to_string(), sum))
            })
            .collect(),
        MapKind::Ring => now
            .records(before, after, 0)
            .map(|record| (record.number.to_string(), numbers(record.bytes())))
            .collect(),
    };
    let len = entries.len();
    if now.kind == MapKind::Ring {
        // The newest say most.
        entries.drain(..len.saturating_sub(most));
    }
    entries.truncate(most);
    let name = String::from_utf8_lossy(now.name()).into_owned();
    Map { name, kind: now.kind, len, max: now.max_entries, lost: now.lost, entries }
}

/// A key: a number if it has the size of one, else its bytes.
fn key_text(key: &[u8]) -> String {
    match key.len() {
        1 | 2 | 4 | 8 => number(key).to_string(),
        _ => key.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn number(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}

/// A value as numbers: of 8 bytes, or of 4 if it has 4 only.
fn numbers(value: &[u8]) -> Vec<u64> {
    value.chunks(8).map(number).collect()
}

/// Why the process has taken a policy off, if it has.
pub(super) fn taken_off(seen: &InSlot) -> Option<String> {
    let (hook, ns) = seen.too_slow?;
    let (hook, ns, budget) = (hook.name(), time(ns as f64), time(f64::from(seen.budget_ns)));
    Some(format!("taken off: {hook} took {ns} on average, and its budget is {budget}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_numbers() {
        assert_eq!(key_text(&7_u32.to_le_bytes()), "7");
        assert_eq!(key_text(&[1, 2, 3]), "010203");
        assert_eq!(numbers(&[1, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0]), [1, 258]);
    }
}
