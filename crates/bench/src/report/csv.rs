//! CSV: every measurement, and the summaries.

use super::cell::status;
use crate::measured::{Measured, Status};
use crate::plan::{Plan, point_of};
use crate::spec::Answer;
use crate::summary::{Ceiling, Summary};
use anyhow::Result;
use std::io::Write;

/// Writes every measurement, one per line.
pub(crate) fn raw(plan: &Plan, measured: &Measured, to: impl Write) -> Result<()> {
    let mut csv = csv::Writer::from_writer(to);
    csv.write_record([
        "rep",
        "workload",
        "point",
        "lock",
        "role",
        "threads",
        "cs_ns",
        "gap_ns",
        "pinned",
        "status",
        "kept",
        "line_before_ns",
        "line_after_ns",
        "ops",
        "elapsed_ns",
        "rate_per_s",
        "cpu_ns_per_op",
        "joules",
        "ops_per_joule",
        "joules_source",
        "failures",
        "wait_p50_ns",
        "wait_p90_ns",
        "wait_p99_ns",
        "wait_p999_ns",
        "wait_max_ns",
        "hold_p50_ns",
        "hold_p99_ns",
        "hold_p999_ns",
        "hold_max_ns",
        "jain",
        "cal",
        "bytes_per_lock",
        "size_of",
        "overtaken",
        "overtaken_late",
        "bypass_p999",
        "longest_bypass",
        "epoch_p50_ns",
        "epoch_p99_ns",
        "epoch_p999_ns",
        "epoch_max_ns",
        "slowest_class_epoch_p50_ns",
        "slowest_class_epoch_p99_ns",
        "slowest_class_epoch_p999_ns",
        "slowest_class_epoch_max_ns",
        "epoch_ticks",
        "bytes_per_epoch",
        "origin",
    ])?;
    let number = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.4}"));
    for s in &measured.samples {
        let who = &plan.subjects[s.subject];
        let point = &point_of(who, &plan.rows[s.row].point);
        let answer = s.answer.as_ref().filter(|_| s.status == Status::Ok);
        let get = |f: &dyn Fn(&Answer) -> Option<f64>| number(answer.and_then(f));
        csv.write_record([
            s.rep.to_string(),
            point.workload().into(),
            plan.rows[s.row].point.label(),
            who.name.clone(),
            serde_json::to_value(who.role)?.as_str().unwrap_or_default().into(),
            point.threads_used().to_string(),
            point.cs_ns.to_string(),
            point.gap_ns.to_string(),
            point.pin.to_string(),
            if s.status == Status::Ok { "ok" } else { status(s.status) }.into(),
            s.kept.to_string(),
            number(s.line_ns.0),
            number(s.line_ns.1),
            answer.map_or(String::new(), |a| a.ops.to_string()),
            answer.map_or(String::new(), |a| a.elapsed_ns.to_string()),
            get(&|a| Some(a.rate())),
            get(&|a| Some(a.cpu_per_op())),
            answer.and_then(|a| a.joules).map_or(String::new(), |joules| format!("{joules:.6}")),
            get(&Answer::per_joule),
            answer.map_or(String::new(), |a| a.joules_source.clone()),
            answer.map_or(String::new(), |a| a.failures.to_string()),
            get(&|a| Some(a.wait?.p50)),
            get(&|a| Some(a.wait?.p90)),
            get(&|a| Some(a.wait?.p99)),
            get(&|a| Some(a.wait?.p999)),
            get(&|a| Some(a.wait?.max)),
            get(&|a| Some(a.hold?.p50)),
            get(&|a| Some(a.hold?.p99)),
            get(&|a| Some(a.hold?.p999)),
            get(&|a| Some(a.hold?.max)),
            get(&|a| a.jain()),
            get(&|a| a.cal()),
            get(&|a| a.bytes_per_lock),
            answer.map_or(String::new(), |a| a.size_of.to_string()),
            get(&|a| a.overtaken),
            get(&|a| a.overtaken_late),
            answer.and_then(|a| a.bypass_p999).map_or(String::new(), |b| b.to_string()),
            answer.and_then(|a| a.longest_bypass).map_or(String::new(), |b| b.to_string()),
            get(&|a| Some(a.latency?.p50)),
            get(&|a| Some(a.latency?.p99)),
            get(&|a| Some(a.latency?.p999)),
            get(&|a| Some(a.latency?.max)),
            get(&|a| Some(a.slowest()?.p50)),
            get(&|a| Some(a.slowest()?.p99)),
            get(&|a| Some(a.slowest()?.p999)),
            get(&|a| Some(a.slowest()?.max)),
            get(&|a| a.epoch_ticks),
            get(&|a| a.bytes_per_epoch),
            point.origin().into(),
        ])?;
    }
    csv.flush()?;
    Ok(())
}

/// Writes the summaries, one point and lock per line.
pub(crate) fn sums(
    plan: &Plan,
    summaries: &[Summary],
    ceilings: &[Ceiling],
    to: impl Write,
) -> Result<()> {
    let mut csv = csv::Writer::from_writer(to);
    csv.write_record([
        "workload",
        "point",
        "lock",
        "status",
        "n",
        "rate_per_s",
        "ratio",
        "ratio_min",
        "ratio_q1",
        "ratio_q3",
        "ratio_max",
        "of_ceiling",
        "ceiling_per_s",
        "cpu_ns_per_op",
        "cpu_ratio",
        "ops_per_joule",
        "ops_per_joule_ratio",
        "joules_per_op",
        "joules_source",
        "wait_p50_ns",
        "wait_p99_ns",
        "wait_p999_ns",
        "wait_max_ns",
        "wait_max_ratio",
        "epoch_p50_ns",
        "epoch_p99_ns",
        "epoch_p999_ns",
        "epoch_max_ns",
        "slowest_class_epoch_p50_ns",
        "slowest_class_epoch_p99_ns",
        "slowest_class_epoch_p999_ns",
        "slowest_class_epoch_max_ns",
        "jain",
        "cal",
        "bytes_per_lock",
        "overtaken",
        "longest_bypass",
        "origin",
    ])?;
    let number = |v: Option<f64>| v.map_or(String::new(), |v| format!("{v:.4}"));
    for s in summaries {
        let point = &plan.rows[s.row].point;
        let slowest = s.epochs.iter().max_by_key(|class| class.class).map(|class| class.latency);
        csv.write_record([
            point.workload().into(),
            point.label(),
            plan.subjects[s.subject].name.clone(),
            if s.status == Status::Ok { "ok" } else { status(s.status) }.into(),
            s.rate.or(s.bytes_per_lock).map_or(0, |r| r.n).to_string(),
            number(s.rate.map(|r| r.median)),
            number(s.ratio.map(|r| r.median)),
            number(s.ratio.map(|r| r.min)),
            number(s.ratio.map(|r| r.q1)),
            number(s.ratio.map(|r| r.q3)),
            number(s.ratio.map(|r| r.max)),
            number(s.of_ceiling.map(|c| c.median)),
            number(ceilings.iter().find(|c| c.row == s.row).map(|c| c.rate.median)),
            number(s.cpu_ns.map(|c| c.median)),
            number(s.cpu_ratio.map(|c| c.median)),
            number(s.tpp.map(|t| t.median)),
            number(s.tpp_ratio.map(|t| t.median)),
            s.epo.map_or(String::new(), |e| format!("{:e}", e.median)),
            s.joules_source.clone().unwrap_or_default(),
            number(s.wait.map(|w| w.p50)),
            number(s.wait.map(|w| w.p99)),
            number(s.wait.map(|w| w.p999)),
            number(s.wait.map(|w| w.max)),
            number(s.wait_max_ratio.map(|w| w.median)),
            number(s.latency.map(|l| l.p50)),
            number(s.latency.map(|l| l.p99)),
            number(s.latency.map(|l| l.p999)),
            number(s.latency.map(|l| l.max)),
            number(slowest.map(|l| l.p50)),
            number(slowest.map(|l| l.p99)),
            number(slowest.map(|l| l.p999)),
            number(slowest.map(|l| l.max)),
            number(s.jain),
            number(s.cal),
            number(s.bytes_per_lock.map(|b| b.median)),
            number(s.overtaken.map(|o| o.0)),
            s.bypass.map_or(String::new(), |b| b.1.to_string()),
            point.origin().into(),
        ])?;
    }
    csv.flush()?;
    Ok(())
}
