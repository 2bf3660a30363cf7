//! Notes that readers need to interpret a study's table: what was recorded, and which threads got nothing.

use super::plan::Plan;
use super::{SeedRuns, class, classes};
use lockwright_numbers::format::time;
use lockwright_numbers::units;
use lockwright_sim::{Outcome, Run};

/// The longest time that `--duration` accepts, ns.
const HOUR_NS: u64 = 3_600_000_000_000;

/// What a trace's program did, and a line for each lock under which a class of cores, or a thread, completed nothing.
pub(crate) fn notes(plan: &Plan, rows: &[SeedRuns<'_>]) -> Vec<String> {
    let locks = (0..plan.locks.len()).flat_map(|lock| of_lock(plan, rows, lock));
    plan.recorded.iter().cloned().chain(locks).collect()
}

fn of_lock(plan: &Plan, rows: &[SeedRuns<'_>], lock: usize) -> Vec<String> {
    let mine = rows.iter().filter(|row| row.at().lock == lock);
    let runs: Vec<(&Run, &Outcome)> = mine
        .flat_map(|row| row.runs().iter().zip(row.outcomes))
        .filter(|(_, outcome)| outcome.violation.is_none())
        .collect();
    let name = plan.locks[lock].name();
    let within = time(plan.duration_ns as f64);
    let of_runs = |count: usize| match count == runs.len() {
        true => String::new(),
        false => format!(" in {count} of {} runs", runs.len()),
    };
    let mut notes = Vec::new();
    for which in classes(plan) {
        let starved = runs.iter().filter(|(_, outcome)| is_starved(outcome, which));
        let starved: Vec<_> = starved.collect();
        if let Some((run, outcome)) = starved.first() {
            let whom = match outcome.classes.len() {
                1 => String::new(),
                _ => format!(" on a {which} core"),
            };
            let count = of_runs(starved.len());
            notes.push(format!(
                "{name}: no operation finished{whom} within {within}{count}{}",
                why(plan, run, outcome, which)
            ));
        }
    }
    // If a whole class got nothing, there is already a note about it.
    let idle = runs.iter().filter(|(_, outcome)| {
        outcome.classes.iter().all(|class| !is_starved(outcome, &class.class))
    });
    let idle = idle.map(|(run, outcome)| {
        let none = |number: &usize| outcome.threads[*number].operations == 0;
        let all = (0..outcome.threads.len()).filter(|number| takes_locks(plan, *number));
        (all.filter(none).count(), run.threads)
    });
    let idle: Vec<(usize, u32)> = idle.filter(|(count, _)| *count > 0).collect();
    if let Some((most, threads)) = idle.iter().max() {
        let count = of_runs(idle.len());
        let longer = units::word(longer(plan.duration_ns));
        notes.push(format!(
            "{name}: {most} of {threads} threads finished no operation within {within}{count}: --duration {longer} may \
             show more"
        ));
    }
    notes
}

/// Did threads of the class run without completing anything?
fn is_starved(outcome: &Outcome, which: &str) -> bool {
    class(outcome, which).is_some_and(|class| class.threads > 0 && class.operations == 0)
}

/// Does this thread of a run take any lock? Threads of a trace may not.
fn takes_locks(plan: &Plan, number: usize) -> bool {
    plan.locking.get(number % plan.locking.len().max(1)).copied().unwrap_or(true)
}

/// Why nothing completed on a class of cores, and what may show more. No thread there requested a lock, or it did so
/// too late. Or threads were overtaken for longer than the run, as can happen to slower cores.
fn why(plan: &Plan, run: &Run, outcome: &Outcome, which: &str) -> String {
    let end_ns = run.warmup_ns + run.duration_ns;
    let rank = outcome.classes.iter().position(|class| class.class == which).unwrap_or(0);
    let may_show = format!("--duration {} may show some", units::word(longer(run.duration_ns)));
    let Some(first_ns) = outcome.classes[rank].first_ns else {
        let silent = (0..outcome.threads.len()).filter(|n| outcome.threads[*n].first_ns.is_none());
        return match silent.into_iter().any(|number| takes_locks(plan, number)) {
            true => format!(": none started; {may_show}"),
            false => ": its threads take no lock in the trace".to_owned(),
        };
    };
    let left_ns = end_ns.saturating_sub(first_ns);
    if left_ns < run.duration_ns / 2 {
        return format!(": the first started {} before the end; {may_show}", time(left_ns as f64));
    }
    if rank == 0 {
        return format!(": {may_show}");
    }
    let chosen = run.params.get("window_us").filter(|us| **us >= 0.0);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at least 0, and small"
    )]
    let chosen = chosen.map(|us| (us * 1000.0) as u64);
    let window = run.lock.window_ns().map(|ns| chosen.unwrap_or(ns.into()));
    match window.filter(|ns| *ns > run.duration_ns) {
        Some(ns) => format!(
            ", as its window is up to {}: --duration {} shows them",
            units::word(ns),
            units::word(3 * ns)
        ),
        None => format!(": {may_show}"),
    }
}

/// Ten times as long, rounded to three digits so that users can type it.
fn longer(ns: u64) -> u64 {
    let ten = ns.saturating_mul(10).min(HOUR_NS);
    let digit = 10u64.pow(ten.checked_ilog10().unwrap_or(0).saturating_sub(2));
    ten.next_multiple_of(digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_duration_has_three_digits() {
        let said = [100_000, 400_000, 11_208_156, HOUR_NS].map(|ns| units::word(longer(ns)));
        assert_eq!(said, ["1ms", "4ms", "113ms", "3600s"]);
    }
}
