//! The profile's figures for each class of cores.

use crate::alone::{self, Measure};
use crate::layout::Layout;
use crate::ledger::{Ledger, Probe};
use crate::memory::Lines;
use crate::stats::{Estimate, Sample};
use crate::together::on;
use crate::{Effort, Error, power, repeat, sched};
use lockwright_bench::turns_per_ns;
use lockwright_sim::profile::ClassProfile;

/// The classes, and the time that the fastest class takes to get a line from memory.
pub(crate) fn measure(
    layout: &Layout,
    lines: &Lines,
    ledger: &mut Ledger,
    effort: Effort,
) -> Result<(Vec<ClassProfile>, Estimate), Error> {
    let mut classes = Vec::new();
    let mut cold = None;
    let fastest = computing(layout.core_of(0), effort)?;
    for class in 0..layout.classes.len() {
        let cpu = layout.core_of(class);
        let mut samples = vec![Vec::new(); Measure::ALL.len()];
        repeat(effort.rounds, effort.time, || {
            for (all, sample) in samples.iter_mut().zip(alone::round(cpu)) {
                all.push(sample);
            }
        })?;
        let estimates: Vec<_> = samples.iter().map(|samples| settled(samples)).collect();
        let compute = match class {
            0 => fastest,
            _ => computing(cpu, effort)?.map(|turn| turn / fastest.median),
        };
        cold = cold.or(Some(estimates[Measure::Cold as usize]));
        classes.push(one(layout, lines, ledger, effort, class, &estimates, &compute)?);
    }
    Ok((classes, cold.expect("a machine has at least one class")))
}

/// The estimate from the samples of one core.
fn settled(samples: &[Sample]) -> Estimate {
    Estimate::of(samples, None).expect("each measure was repeated")
}

/// How long a turn of the bench's compute loop takes on that CPU.
fn computing(cpu: usize, effort: Effort) -> Result<Estimate, Error> {
    let mut samples = Vec::new();
    repeat(5, effort.time, || {
        samples.push(on(cpu, || {
            let before = alone::cycle();
            let value = 1.0 / turns_per_ns();
            Sample { before, value, after: alone::cycle() }
        }));
    })?;
    Ok(settled(&samples))
}

fn one(
    layout: &Layout,
    lines: &Lines,
    ledger: &mut Ledger,
    effort: Effort,
    class: usize,
    estimates: &[Estimate],
    compute: &Estimate,
) -> Result<ClassProfile, Error> {
    const ONE_CLASS: &str = "one class of cores: no other class to compare with";
    let name = layout.classes[class].name.clone();
    let path = |figure: &str| format!("class.{name}.{figure}");
    let of = |what: Measure| estimates[what as usize];
    let mut measured = |figure: &str, estimate: &Estimate, how: &str| {
        ledger.measured(&path(figure), estimate, Probe::Cycle, how)
    };
    let ghz = measured(
        "ghz",
        &of(Measure::Cycle).map(|ns| 1.0 / ns),
        "a chain of additions, each of which needs the one before: one a cycle",
    );
    let nop_ns = measured("nop_ns", &of(Measure::Nop), "a long run of NOPs");
    let store = of(Measure::Store).median;
    let load_ns = measured(
        "load_ns",
        &of(Measure::Load).map(|load| f64::midpoint(load, store)),
        "the mean of a load in a run of loads and of a store in a run of stores",
    );
    let atomic = of(Measure::Atomic).median;
    let atomic_ns = measured(
        "atomic_ns",
        &of(Measure::Atomic),
        "a run of atomic additions, exchanges, comparisons and exchanges of one word: the mean of the three",
    );
    let drain_ns = measured(
        "drain_ns",
        &of(Measure::AtomicStore).map(|both| (both - atomic).max(0.0)),
        "the same, with a store to the word after each, less atomic_ns",
    );
    let line_ns = measured(
        "line_ns",
        &of(Measure::Line),
        "64 lines in the own cache, read, changed and written one after the other, with a barrier at the end",
    );
    let pause_ns = measured("pause_ns", &of(Measure::Pause), "a run of pause instructions");
    let clock_ns =
        measured("clock_ns", &of(Measure::Clock), "a run of clock_gettime(CLOCK_MONOTONIC)");
    let compute = match class {
        0 => ledger.told(&path("compute"), 1.0, "the fastest class, by definition"),
        _ => measured(
            "compute",
            compute,
            "the bench's loop of dependent multiplications, to the fastest class's",
        ),
    };
    let latency = match class {
        0 => ledger.told(&path("latency"), 1.0, "the fastest class, by definition"),
        _ => ledger.or_assumed(
            &path("latency"),
            lines.latency_of(layout, class).as_ref(),
            Probe::Line,
            "transfers between a core of it and one of the fastest class: to it, by those from it",
            (1.0, "no transfer could be measured"),
        ),
    };
    let weight_back_to_back = ledger.or_assumed(
        &path("weight_back_to_back"),
        lines.back_to_back[class].as_ref(),
        Probe::Line,
        "all cores swap one word as fast as they can: a core's share, to one of the slowest class",
        (1.0, ONE_CLASS),
    );
    let weight_spaced = ledger.or_assumed(
        &path("weight_spaced"),
        lines.spaced[class].as_ref(),
        Probe::Line,
        "the same, with 32 pause instructions between",
        (1.0, ONE_CLASS),
    );
    let told = format!("the kernel's topology (classes: {})", layout.classes_from);
    let smt = ledger.told(&path("smt"), f64::from(layout.classes[class].smt), &told);
    let smt_speed = siblings(layout, ledger, effort, class, &path("smt_speed"))?;
    let cores: Vec<_> =
        layout.clusters.iter().filter(|c| c.class == class).flat_map(|c| &c.cores).collect();
    let cores: Vec<_> = cores.into_iter().map(|core| core[0]).collect();
    let power = power::of_class(ledger, &layout.classes[class], &cores, effort.time / 8);
    Ok(ClassProfile {
        name,
        ghz,
        nop_ns,
        compute,
        load_ns,
        atomic_ns,
        drain_ns,
        line_ns,
        latency,
        pause_ns,
        clock_ns,
        weight_spaced,
        weight_back_to_back,
        smt: smt as u32,
        smt_speed,
        fences: false, // this project's locks spin with pause instructions
        power,
    })
}

fn siblings(
    layout: &Layout,
    ledger: &mut Ledger,
    effort: Effort,
    class: usize,
    path: &str,
) -> Result<f64, Error> {
    let mut cores = layout.clusters.iter().filter(|c| c.class == class).flat_map(|c| &c.cores);
    let Some(&[one, other, ..]) = cores.next().map(Vec::as_slice) else {
        return Ok(ledger.told(path, 1.0, "one hardware thread a core"));
    };
    let mut samples = Vec::new();
    repeat(5, effort.time, || {
        let before = on(one, alone::cycle);
        let value = sched::siblings(one, other).clamp(0.05, 1.0);
        samples.push(Sample { before, value, after: on(one, alone::cycle) });
    })?;
    let how = "the bench's loop on both threads of a core, to its speed on one alone";
    Ok(ledger.measured(path, &settled(&samples), Probe::Cycle, how))
}
