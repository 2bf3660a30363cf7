//! CSV: every measurement, and the summaries.

use super::cell::status;
use crate::measured::{Measured, Sample, Status};
use crate::plan::{Plan, point_of};
use crate::point::Point;
use crate::spec::{Answer, Percentiles};
use crate::subject::{Role, Subject};
use crate::summary::{Ceiling, Summary};
use anyhow::Result;
use lockwright_numbers::Spread;
use std::io::Write;

/// A column's name, and its cell for one line.
type Column<T> = (&'static str, fn(&T) -> String);

/// Writes a header, and a record for each of `lines`.
fn write<T>(to: impl Write, columns: &[Column<T>], lines: impl Iterator<Item = T>) -> Result<()> {
    let mut csv = csv::Writer::from_writer(to);
    csv.write_record(columns.iter().map(|(name, _)| name))?;
    for line in lines {
        csv.write_record(columns.iter().map(|(_, cell)| cell(&line)))?;
    }
    csv.flush()?;
    Ok(())
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

fn number(value: Option<f64>) -> String {
    text(value.map(|value| format!("{value:.4}")))
}

fn ended(how: Status) -> String {
    if how == Status::Ok { "ok".into() } else { status(how).into() }
}

fn role(role: Role) -> String {
    text(serde_json::to_value(role).ok().as_ref().and_then(|word| word.as_str()))
}

/// A measurement.
struct Raw<'a> {
    row: &'a Point,
    who: &'a Subject,
    point: Point,
    sample: &'a Sample,
    answer: Option<&'a Answer>,
}

impl Raw<'_> {
    fn text<T: ToString>(&self, of: fn(&Answer) -> Option<T>) -> String {
        text(self.answer.and_then(of))
    }

    fn number(&self, of: fn(&Answer) -> Option<f64>) -> String {
        number(self.answer.and_then(of))
    }
}

/// Writes every measurement, one per line.
pub(crate) fn raw(plan: &Plan, measured: &Measured, to: impl Write) -> Result<()> {
    let columns: &[Column<Raw<'_>>] = &[
        ("rep", |r| r.sample.rep.to_string()),
        ("workload", |r| r.point.workload().into()),
        ("point", |r| r.row.label()),
        ("lock", |r| r.who.name.clone()),
        ("role", |r| role(r.who.role)),
        ("threads", |r| r.point.threads_used().to_string()),
        ("cs_ns", |r| r.point.cs_ns.to_string()),
        ("gap_ns", |r| r.point.gap_ns.to_string()),
        ("pinned", |r| r.point.pin.to_string()),
        ("hogs", |r| r.point.hogs.to_string()),
        ("hogs_cpus", |r| number(r.sample.hogs_cpus)),
        ("status", |r| ended(r.sample.status)),
        ("kept", |r| r.sample.kept.to_string()),
        ("line_before_ns", |r| number(r.sample.line_ns.0)),
        ("line_after_ns", |r| number(r.sample.line_ns.1)),
        ("ops", |r| r.text(|a| Some(a.ops))),
        ("elapsed_ns", |r| r.text(|a| Some(a.elapsed_ns))),
        ("rate_per_s", |r| r.number(|a| Some(a.rate()))),
        ("cpu_ns_per_op", |r| r.number(|a| Some(a.cpu_per_op()))),
        ("joules", |r| r.text(|a| Some(format!("{:.6}", a.joules?)))),
        ("ops_per_joule", |r| r.number(Answer::per_joule)),
        ("joules_source", |r| r.text(|a| Some(a.joules_source.clone()))),
        ("failures", |r| r.text(|a| Some(a.failures))),
        ("wait_p50_ns", |r| r.number(|a| Some(a.wait?.p50))),
        ("wait_p90_ns", |r| r.number(|a| Some(a.wait?.p90))),
        ("wait_p99_ns", |r| r.number(|a| Some(a.wait?.p99))),
        ("wait_p999_ns", |r| r.number(|a| Some(a.wait?.p999))),
        ("wait_max_ns", |r| r.number(|a| Some(a.wait?.max))),
        ("hold_p50_ns", |r| r.number(|a| Some(a.hold?.p50))),
        ("hold_p99_ns", |r| r.number(|a| Some(a.hold?.p99))),
        ("hold_p999_ns", |r| r.number(|a| Some(a.hold?.p999))),
        ("hold_max_ns", |r| r.number(|a| Some(a.hold?.max))),
        ("jain", |r| r.number(Answer::jain)),
        ("cal", |r| r.number(Answer::cal)),
        ("bytes_per_lock", |r| r.number(|a| a.bytes_per_lock)),
        ("size_of", |r| r.text(|a| Some(a.size_of))),
        ("overtaken", |r| r.number(|a| a.overtaken)),
        ("overtaken_late", |r| r.number(|a| a.overtaken_late)),
        ("bypass_p999", |r| r.text(|a| a.bypass_p999)),
        ("longest_bypass", |r| r.text(|a| a.longest_bypass)),
        ("epoch_p50_ns", |r| r.number(|a| Some(a.latency?.p50))),
        ("epoch_p99_ns", |r| r.number(|a| Some(a.latency?.p99))),
        ("epoch_p999_ns", |r| r.number(|a| Some(a.latency?.p999))),
        ("epoch_max_ns", |r| r.number(|a| Some(a.latency?.max))),
        ("slowest_class_epoch_p50_ns", |r| r.number(|a| Some(a.slowest()?.p50))),
        ("slowest_class_epoch_p99_ns", |r| r.number(|a| Some(a.slowest()?.p99))),
        ("slowest_class_epoch_p999_ns", |r| r.number(|a| Some(a.slowest()?.p999))),
        ("slowest_class_epoch_max_ns", |r| r.number(|a| Some(a.slowest()?.max))),
        ("epoch_ticks", |r| r.number(|a| a.epoch_ticks)),
        ("bytes_per_epoch", |r| r.number(|a| a.bytes_per_epoch)),
        ("origin", |r| r.point.origin().into()),
    ];
    let lines = measured.samples.iter().map(|sample| {
        let (who, row) = (&plan.subjects[sample.subject], &plan.rows[sample.row].point);
        let answer = sample.answer.as_ref().filter(|_| sample.status == Status::Ok);
        Raw { row, who, point: point_of(who, row), sample, answer }
    });
    write(to, columns, lines)
}

/// A point and lock.
struct Sum<'a> {
    point: &'a Point,
    lock: &'a str,
    ceiling: Option<f64>,
    slowest: Option<Percentiles>,
    of: &'a Summary,
}

fn median(spread: Option<Spread>) -> String {
    number(spread.map(|spread| spread.median))
}

/// Writes the summaries, one point and lock per line.
pub(crate) fn sums(
    plan: &Plan,
    summaries: &[Summary],
    ceilings: &[Ceiling],
    to: impl Write,
) -> Result<()> {
    let columns: &[Column<Sum<'_>>] = &[
        ("workload", |s| s.point.workload().into()),
        ("point", |s| s.point.label()),
        ("lock", |s| s.lock.into()),
        ("hogs", |s| s.point.hogs.to_string()),
        ("hogs_cpus", |s| median(s.of.hogs_cpus)),
        ("status", |s| ended(s.of.status)),
        ("n", |s| s.of.rate.or(s.of.bytes_per_lock).map_or(0, |r| r.n).to_string()),
        ("rate_per_s", |s| median(s.of.rate)),
        ("ratio", |s| median(s.of.ratio)),
        ("ratio_min", |s| number(s.of.ratio.map(|r| r.min))),
        ("ratio_q1", |s| number(s.of.ratio.map(|r| r.q1))),
        ("ratio_q3", |s| number(s.of.ratio.map(|r| r.q3))),
        ("ratio_max", |s| number(s.of.ratio.map(|r| r.max))),
        ("of_ceiling", |s| median(s.of.of_ceiling)),
        ("ceiling_per_s", |s| number(s.ceiling)),
        ("cpu_ns_per_op", |s| median(s.of.cpu_ns)),
        ("cpu_ratio", |s| median(s.of.cpu_ratio)),
        ("ops_per_joule", |s| median(s.of.tpp)),
        ("ops_per_joule_ratio", |s| median(s.of.tpp_ratio)),
        ("joules_per_op", |s| text(s.of.epo.map(|e| format!("{:e}", e.median)))),
        ("joules_source", |s| text(s.of.joules_source.as_ref())),
        ("wait_p50_ns", |s| number(s.of.wait.map(|w| w.p50))),
        ("wait_p99_ns", |s| number(s.of.wait.map(|w| w.p99))),
        ("wait_p999_ns", |s| number(s.of.wait.map(|w| w.p999))),
        ("wait_max_ns", |s| number(s.of.wait.map(|w| w.max))),
        ("wait_max_ratio", |s| median(s.of.wait_max_ratio)),
        ("epoch_p50_ns", |s| number(s.of.latency.map(|l| l.p50))),
        ("epoch_p99_ns", |s| number(s.of.latency.map(|l| l.p99))),
        ("epoch_p999_ns", |s| number(s.of.latency.map(|l| l.p999))),
        ("epoch_max_ns", |s| number(s.of.latency.map(|l| l.max))),
        ("slowest_class_epoch_p50_ns", |s| number(s.slowest.map(|l| l.p50))),
        ("slowest_class_epoch_p99_ns", |s| number(s.slowest.map(|l| l.p99))),
        ("slowest_class_epoch_p999_ns", |s| number(s.slowest.map(|l| l.p999))),
        ("slowest_class_epoch_max_ns", |s| number(s.slowest.map(|l| l.max))),
        ("jain", |s| number(s.of.jain)),
        ("cal", |s| number(s.of.cal)),
        ("bytes_per_lock", |s| median(s.of.bytes_per_lock)),
        ("overtaken", |s| number(s.of.overtaken.map(|o| o.0))),
        ("longest_bypass", |s| text(s.of.bypass.map(|b| b.1))),
        ("origin", |s| s.point.origin().into()),
    ];
    let lines = summaries.iter().map(|of| Sum {
        point: &plan.rows[of.row].point,
        lock: &plan.subjects[of.subject].name,
        ceiling: ceilings.iter().find(|c| c.row == of.row).map(|c| c.rate.median),
        slowest: of.epochs.iter().max_by_key(|class| class.class).map(|class| class.latency),
        of,
    });
    write(to, columns, lines)
}
