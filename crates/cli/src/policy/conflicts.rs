//! `lockwright policy compose`: who decides, and an example of each conflict.

use super::chosen::Chosen;
use super::compared::{Compared, Conflict, STATES, Voice, compare};
use crate::hints::Failure;
use crate::output::{plain, table};
use lockwright_numbers::format::time;
use lockwright_platform::hooks::{ASLEEP, Context, Hook, IN_EPOCH, Node, OFF_CPU};
use lockwright_policy::loaded::{Engine, Loaded};
use lockwright_policy::verify::verify;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// What policies that are composed do to each other.
pub(crate) struct Conflicts {
    title: String,
    word: String,
    names: Vec<String>,
    hooks: Vec<Compared>,
}

impl Conflicts {
    /// Asks the parts of a composition in the same situations.
    pub(crate) fn find(chosen: &Chosen) -> Result<Self, Failure> {
        let mut policies = Vec::new();
        for (named, object) in &chosen.parts {
            // They are parts of what was verified as a whole; each by itself is another object.
            let verified = verify(object.clone()).map_err(|_| {
                Failure::no(format!("the verifier rejects {}", named.title()))
                    .hint(format!("lockwright policy check {}", named.title()))
            })?;
            let loaded = Loaded::new(&verified, Engine::Interpreter)
                .map_err(|error| Failure::new(format!("cannot run {}: {error}", named.title())))?;
            policies.push(loaded);
        }
        let names = chosen.parts.iter().map(|(named, _)| named.title()).collect();
        let hooks = compare(&policies);
        Ok(Self { title: chosen.title(), word: chosen.word(), names, hooks })
    }

    pub(crate) fn text(&self) -> String {
        let mut drawn = table(&["hook", "policy", "decides", "counts", "overruled"]);
        drawn = drawn.all_by("--format json");
        for row in &self.hooks {
            for (number, voice) in row.voices.iter().enumerate() {
                let hook = if number == 0 { row.hook.name() } else { "" };
                let Voice { policy, decides, counts, overruled } = *voice;
                let cells = [share(decides), share(counts), share(overruled)];
                let [decides, counts, overruled] = cells;
                drawn.add_row([
                    hook.to_owned(),
                    self.names[policy].clone(),
                    decides,
                    counts,
                    overruled,
                ]);
            }
        }
        let mut text =
            format!("{}: in this order, the first answer that isn't 0 counts\n\n", self.title);
        text += &plain(&drawn);
        let _ = write!(
            text,
            "\ndecides: answers something other than 0; counts: and is the first to do so;\n  \
             overruled: an earlier answer counts, and this one would have been another.\n  \
             Of {STATES} situations a hook, drawn by chance.\n"
        );
        for row in &self.hooks {
            if let Some(conflict) = &row.conflict {
                text += &self.example(row.hook, conflict);
            }
        }
        if self.hooks.iter().all(|row| row.conflict.is_none()) {
            text += "\nno conflict\n";
        }
        text + &format!("\nlockwright policy check {}\n", self.word)
    }

    fn example(&self, hook: Hook, conflict: &Conflict) -> String {
        let Conflict { context, counts, overruled } = conflict;
        let says = |(policy, answer): (usize, u64)| {
            format!("{} says '{}'", self.names[policy], meaning(hook, answer))
        };
        let (counts, overruled) = (says(*counts), says(*overruled));
        let mut text = format!("\n{}: {counts}, and that counts; {overruled}\n", hook.name());
        let mut nodes = vec![("own", &context.own)];
        if hook == Hook::CmpNode {
            nodes.extend([("best", &context.best), ("curr", &context.curr)]);
        }
        for (name, node) in nodes {
            let _ = writeln!(text, "  {name:<4}  {}", described(node));
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        let voice = |voice: &Voice| {
            json!({
                "policy": self.names[voice.policy], "decides": voice.decides,
                "counts": voice.counts, "overruled": voice.overruled,
            })
        };
        let conflict = |conflict: &Conflict| {
            let side = |(policy, answer): (usize, u64)| json!({ "policy": self.names[policy], "answer": answer });
            json!({
                "counts": side(conflict.counts), "overruled": side(conflict.overruled),
                "context": context(&conflict.context),
            })
        };
        let row = |row: &Compared| {
            json!({
                "hook": row.hook.name(), "states": STATES,
                "policies": row.voices.iter().map(voice).collect::<Value>(),
                "conflict": row.conflict.as_ref().map(conflict),
            })
        };
        json!({ "policy": self.title, "hooks": self.hooks.iter().map(row).collect::<Value>() })
    }
}

fn share(count: u32) -> String {
    match 100.0 * f64::from(count) / f64::from(STATES) {
        0.0 => "never".to_owned(),
        percent => format!("{percent:.1} %"),
    }
}

/// An answer, in words.
pub(crate) fn meaning(hook: Hook, answer: u64) -> String {
    let words = match (hook, answer) {
        (Hook::CmpNode, 0) => "no",
        (Hook::CmpNode, 1) => "next",
        (Hook::CmpNode, 2) => "better",
        (Hook::CmpNode, 3) => "to the front",
        (Hook::SkipShuffle, 0) => "go on",
        (Hook::SkipShuffle, 1) => "leave the order",
        (Hook::ScheduleWaiter | Hook::LockAcquire | Hook::RwBias, 0) => "as the lock does",
        (Hook::ScheduleWaiter, 1) => "sleep",
        (Hook::ScheduleWaiter, 2) => "wake early",
        (Hook::ScheduleWaiter, 3) => "boost",
        (Hook::LockAcquire, 1) => "past the line",
        (Hook::LockContended, ns) => return time(ns as f64),
        (Hook::RwBias, 1) => "distributed",
        (Hook::RwBias, 2) => "neutral",
        (Hook::RwBias, Hook::NOT_FOR_IT) => "not for this lock",
        _ => return answer.to_string(),
    };
    words.to_owned()
}

/// A thread, on one line.
fn described(node: &Node) -> String {
    let mut text = format!(
        "class {}, node {}, CPU {}, prio {}, waits {}",
        node.core_class,
        node.numa,
        node.cpu,
        node.prio,
        time(node.wait_ns as f64)
    );
    let flags = [(ASLEEP, "asleep"), (OFF_CPU, "off CPU"), (IN_EPOCH, "in epoch")];
    for (_, word) in flags.iter().filter(|(flag, _)| node.flags & flag != 0) {
        let _ = write!(text, ", {word}");
    }
    for (name, value) in [("holds", u64::from(node.held_locks)), ("tag", node.tag)] {
        if value > 0 {
            let _ = write!(text, ", {name} {value}");
        }
    }
    text
}

fn context(context: &Context) -> Value {
    json!({
        "lock_id": context.lock_id, "lock_kind": context.lock_kind, "round": context.round,
        "batch": context.batch, "nwaiters": context.nwaiters, "now_ns": context.now_ns,
        "avg_cs_ns": context.avg_cs_ns, "own": node(&context.own), "best": node(&context.best),
        "curr": node(&context.curr),
    })
}

fn node(node: &Node) -> Value {
    json!({
        "tid": node.tid, "cpu": node.cpu, "numa": node.numa, "core_class": node.core_class,
        "prio": node.prio, "flags": node.flags, "speed": node.speed, "passed": node.passed,
        "wait_ns": node.wait_ns, "cs_ns": node.cs_ns, "cs_total_ns": node.cs_total_ns,
        "held_locks": node.held_locks, "window_ns": node.window_ns, "slo_ns": node.slo_ns,
        "tag": node.tag,
    })
}
