//! Who waits now, as text and as JSON.

use crate::output::{beside, shown};
use lockwright_numbers::format::time;
use lockwright_observer::standing::{Doing, HolderNow, Named, Standing, StandingWait};
use lockwright_symbols::Frame;
use serde_json::{Value, json as object};
use std::time::Duration;

/// Maximum number of waits in the text; JSON has all.
const TOLD: usize = 8;

/// The lines with which a report begins; empty: no thread has waited long.
pub(crate) fn text(standing: &Standing) -> String {
    let mut text = String::new();
    for circle in &standing.deadlocks {
        let many = circle.len();
        let head =
            format!("deadlock: {many} threads wait for each other, and none will ever go on");
        text += &beside("", &head);
        for &at in circle {
            text += &line(&standing.waits[at]);
        }
    }
    let is_in_circle = |at: &usize| standing.deadlocks.iter().flatten().any(|one| one == at);
    let others: Vec<&StandingWait> = (0..standing.waits.len())
        .filter(|at| !is_in_circle(at))
        .map(|at| &standing.waits[at])
        .collect();
    let (never, perhaps): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|wait| wait.is_for_ever());
    for (waits, head) in [(never, "waiting for ever"), (perhaps, "waiting now")] {
        text += &group(head, &waits);
    }
    if standing.in_line > 0 && !standing.waits.is_empty() {
        text += &beside("  ", &format!("and {} in line behind them", threads(standing.in_line)));
    }
    text
}

/// Waits under one heading.
fn group(head: &str, waits: &[&StandingWait]) -> String {
    let mut text = match waits.len() {
        0 => return String::new(),
        1 => format!("{head}: 1 thread\n"),
        many => format!("{head}: {many} threads\n"),
    };
    // Threads that wait alike are told together.
    let mut told: Vec<(&StandingWait, usize)> = Vec::new();
    for wait in waits {
        let is_alike = |(one, _): &&mut (&StandingWait, usize)| {
            (&one.lock, &one.at, &one.holder) == (&wait.lock, &wait.at, &wait.holder)
        };
        match told.iter_mut().find(is_alike) {
            Some((_, more)) => *more += 1,
            None => told.push((wait, 0)),
        }
    }
    for (wait, more) in told.iter().take(TOLD) {
        text += &line(wait);
        if *more > 0 {
            text += &beside("  ", &format!("and {} there for the same lock", threads(*more)));
        }
    }
    if told.len() > TOLD {
        text += &format!("  and others, in {} more ways: --format json\n", told.len() - TOLD);
    }
    text
}

fn threads(more: usize) -> String {
    if more == 1 { "1 more thread".to_owned() } else { format!("{more} more threads") }
}

fn line(wait: &StandingWait) -> String {
    let waits = match wait.since {
        Some(since) => format!("has waited {} for", told(since)),
        None => "waits for".to_owned(),
    };
    let until = if wait.has_deadline { ", with a deadline" } else { "" };
    let what = match wait.kind {
        "join" => format!("{}{until}", wait.lock),
        kind => format!("{} ({kind}{until})", wait.lock),
    };
    let line = format!(
        "thread {} {waits} {what}, in {}: {}",
        thread(&wait.thread),
        wait.at,
        held(&wait.holder, wait.kind)
    );
    beside("  ", &shown(&line))
}

fn told(since: Duration) -> String {
    time(since.as_nanos() as f64)
}

fn thread(thread: &Named) -> String {
    match &thread.scheduling {
        Some(scheduling) => format!("{} ({}, {scheduling})", thread.tid, thread.name),
        None => format!("{} ({})", thread.tid, thread.name),
    }
}

fn held(holder: &HolderNow, kind: &str) -> String {
    match holder {
        HolderNow::Thread(_, Doing::Waits) if kind == "join" => "it waits, too".to_owned(),
        HolderNow::Thread(_, what) if kind == "join" => doing(what).to_owned(),
        HolderNow::Thread(one, what) => format!("held by {}, {}", thread(one), doing(what)),
        HolderNow::Itself => "it holds that lock itself".to_owned(),
        HolderNow::Ended(tid) => {
            format!("held by thread {tid}, which has ended without releasing it")
        }
        HolderNow::NotCopied { thread: one, process, is_parent: true } => format!(
            "held by thread {} of the parent process {process}, which the fork didn't copy",
            thread(one)
        ),
        HolderNow::NotCopied { thread: one, process, .. } => format!(
            "held by thread {} of process {process}, an ancestor, which the forks didn't copy",
            thread(one)
        ),
        HolderNow::Elsewhere { thread: one, process } => {
            format!("held by thread {} of process {process}", thread(one))
        }
        HolderNow::AnotherProcess => "held by a thread of another process".to_owned(),
        HolderNow::Stranger(tid) => {
            format!("held by thread {tid}, which isn't a thread of this process")
        }
        HolderNow::Readers(1) => {
            "held by a reader, which the lock doesn't name: perhaps this thread itself".to_owned()
        }
        HolderNow::Readers(many) => format!("held by {many} readers, which the lock doesn't name"),
        HolderNow::Unknown => "its holder isn't recorded".to_owned(),
    }
}

fn doing(doing: &Doing) -> String {
    match doing {
        Doing::Runs => "which runs, or waits for a CPU".to_owned(),
        Doing::Sleeps { call, at } => format!("which sleeps in {call}, in {at}"),
        Doing::Waits => "which waits, too".to_owned(),
        Doing::AwaitsSignal { at } => format!("which waits for another thread's signal, in {at}"),
        Doing::Faults { at } => format!("which waits for a page of memory, in {at}"),
        Doing::Stopped => "which is stopped by a signal or a debugger".to_owned(),
    }
}

/// The same for programs.
pub(crate) fn json(standing: &Standing) -> Value {
    let place = |frame: &Frame| frame.to_string();
    let named =
        |one: &Named| object!({ "tid": one.tid, "name": one.name, "scheduling": one.scheduling });
    let wait = |wait: &StandingWait| {
        let (who, holder, what) = match &wait.holder {
            HolderNow::Thread(one, what) => ("thread", named(one), doing(what)),
            HolderNow::Itself => ("itself", Value::Null, String::new()),
            HolderNow::Ended(tid) => ("ended", object!({ "tid": tid }), String::new()),
            HolderNow::NotCopied { thread, .. } => ("not-copied", named(thread), String::new()),
            HolderNow::Elsewhere { thread, .. } => ("elsewhere", named(thread), String::new()),
            HolderNow::AnotherProcess => ("another-process", Value::Null, String::new()),
            HolderNow::Stranger(tid) => ("stranger", object!({ "tid": tid }), String::new()),
            HolderNow::Readers(many) => ("readers", object!({ "readers": many }), String::new()),
            HolderNow::Unknown => ("unknown", Value::Null, String::new()),
        };
        object!({
            "thread": named(&wait.thread),
            "lock": wait.lock,
            "kind": wait.kind,
            "has_deadline": wait.has_deadline,
            "since_ns": wait.since.map(|since| since.as_nanos() as u64),
            "at": place(&wait.at),
            "holder": { "who": who, "thread": holder, "doing": what },
        })
    };
    object!({
        "waits": standing.waits.iter().map(wait).collect::<Vec<_>>(),
        "deadlocks": standing.deadlocks,
        "in_line": standing.in_line,
    })
}
