//! Converts the command line to a plan: which locks, at which points.

use crate::args::{Args, Pin, SuiteName, Workload};
use crate::names::split;
use crate::plan::{self, Plan, Row};
use crate::point::{Call, Point, Work};
use crate::subject::Subject;
use crate::suite::{self, Suite};
use crate::system;
use anyhow::{Error, Result, bail};
use std::path::Path;

/// The SLO of epochs without an explicit one.
const DEFAULT_SLO_NS: u64 = 100_000;
/// Number of mutexes of the workload `calls`.
const DEFAULT_MUTEXES: u32 = 6;

/// The plan for `args`, and the suite if they name one.
pub(crate) fn plan(args: &Args, library: Result<&Path, &str>) -> Result<(Plan, Option<Suite>)> {
    if let Some(spec) = &args.emulate {
        system::check_emulation(spec)?;
    }
    let points = points(args)?;
    let mut chosen = Vec::new();
    for name in &args.locks.iter().flat_map(|locks| split(locks)).collect::<Vec<_>>() {
        match name.as_str() {
            "all" => chosen.extend(Subject::all(library)?),
            _ => chosen.push(Subject::parse(name, library)?),
        }
    }
    for peer in &args.peers {
        chosen.push(Subject::parse_peer(peer)?);
    }
    let finish = |mut subjects, rows: Vec<Row>| Plan {
        ceilings: match args.no_ceiling {
            true => vec![Vec::new(); rows.len()],
            false => plan::ceilings(&rows, system::cpus().len(), library.ok(), &mut subjects),
        },
        subjects,
        rows,
        reps: args.reps,
        time_s: args.time_s(),
        limit_s: args.limit,
        seed: args.seed,
    };
    if args.suite.is_some() {
        if args.no_latency {
            bail!("the bars need the latency pass\nhint: leave out --no-latency");
        }
        if args.no_ceiling && args.suite == Some(SuiteName::Bars) {
            bail!("the bars need the ceilings\nhint: leave out --no-ceiling");
        }
        let library = library.map_err(|why| Error::msg(why.to_owned()))?;
        let mut suite = match args.suite {
            Some(SuiteName::Asl) => suite::asl(library)?,
            _ => suite::bars(library, &chosen)?,
        };
        let plan = finish(std::mem::take(&mut suite.subjects), std::mem::take(&mut suite.rows));
        return Ok((plan, Some(suite)));
    }
    if args.locks.is_empty() {
        let defaults = Subject::defaults(library)?.into_iter();
        chosen.splice(0..0, defaults.filter(|s| args.emulate.is_none() || s.preload.is_some()));
    }
    let mut subjects = vec![Subject::glibc()];
    if args.emulate.is_some() {
        if let Some(free) = chosen.iter().find(|s| s.preload.is_none()) {
            bail!(
                "'{}' can't be emulated: only locks through the preload are slowed\nhint: --lock fifo asl",
                free.name
            );
        }
        let library = library.map_err(|why| Error::msg(why.to_owned()))?;
        subjects = vec![Subject::glibc_emulated(library)];
    }
    for subject in chosen {
        if subjects.iter().all(|s| s.name != subject.name) {
            subjects.push(subject);
        }
    }
    let everybody: Vec<usize> = (0..subjects.len()).collect();
    let rows = points.into_iter().map(|point| Row { point, subjects: everybody.clone() }).collect();
    Ok((finish(subjects, rows), None))
}

/// The grid: workloads x threads x critical sections x gaps x pinned or not x hogs.
fn points(args: &Args) -> Result<Vec<Point>> {
    let pins: &[bool] = match args.pin {
        Pin::No => &[false],
        Pin::Yes => &[true],
        Pin::Both => &[false, true],
    };
    let mut pairs = Vec::new();
    for text in &args.pairs {
        let pair = text.split_once(':').and_then(|(p, c)| Some((p.parse().ok()?, c.parse().ok()?)));
        match pair {
            Some((p, c)) if (1..=512).contains(&p) && (1..=512).contains(&c) => pairs.push((p, c)),
            _ => bail!("'{text}' is not producers:consumers\nhint: --pairs 1:1,4:4"),
        }
    }
    let epochs = args.workloads.contains(&Workload::Epoch);
    for (given, flag, what) in [
        (!args.slo.is_empty(), "--slo", "an SLO"),
        (args.locks_per_epoch.is_some(), "--locks-per-epoch", "epochs"),
    ] {
        if given && !epochs {
            bail!("{flag}: none of these workloads has {what}\nhint: --workload epoch");
        }
    }
    for (given, flag) in
        [(!args.calls.is_empty(), "--calls"), (args.mutexes.is_some(), "--mutexes")]
    {
        if given && !args.workloads.contains(&Workload::Calls) {
            bail!("{flag}: none of these workloads draws any\nhint: --workload calls");
        }
    }
    let calls = if args.calls.is_empty() { &Call::ALL } else { &args.calls[..] };
    let slos = if args.slo.is_empty() { &[DEFAULT_SLO_NS] } else { &args.slo[..] };
    let mut points = Vec::new();
    for workload in &args.workloads {
        for (&pin, &hogs) in
            pins.iter().flat_map(|pin| args.hogs.iter().map(move |hogs| (pin, hogs)))
        {
            let point = |work, threads, cs_ns, gap_ns| Point {
                work,
                threads,
                cs_ns,
                gap_ns,
                length: args.length,
                lines: args.lines,
                pin,
                hogs,
                latency: false,
                emulate: args.emulate.clone(),
            };
            let mut grid = |work: Work, latency: bool| {
                for &threads in &args.threads {
                    for &cs in &args.cs {
                        for &gap in &args.gap {
                            let latency = latency && !args.no_latency;
                            points.push(Point { latency, ..point(work.clone(), threads, cs, gap) });
                        }
                    }
                }
            };
            match workload {
                Workload::Mutex => grid(Work::Mutex, true),
                Workload::Trylock => grid(Work::Trylock, false),
                Workload::Timedlock => grid(Work::Timedlock { timeout_us: args.timeout }, true),
                Workload::Calls => {
                    let mutexes = args.mutexes.unwrap_or(DEFAULT_MUTEXES);
                    let (calls, timeout_us) = (calls.to_vec(), args.timeout);
                    grid(Work::Calls { calls, mutexes, timeout_us }, true);
                }
                Workload::Rwlock => {
                    for &reads in &args.reads {
                        grid(Work::Rwlock { reads }, true);
                    }
                }
                Workload::Order => grid(Work::Order { grace_ns: 1000 }, false),
                Workload::Epoch => {
                    let locks = args.locks_per_epoch.unwrap_or(2);
                    for &slo_ns in slos {
                        grid(Work::Epoch { slo_ns, locks }, false);
                    }
                }
                Workload::Uncontended => points.extend(
                    [true, false]
                        .map(|second_thread| point(Work::Uncontended { second_thread }, 1, 0, 0)),
                ),
                Workload::Queue => {
                    points.extend(pairs.iter().flat_map(|&(producers, consumers)| {
                        let work = Work::Queue { producers, consumers };
                        args.gap
                            .iter()
                            .map(move |&gap| point(work.clone(), producers + consumers, 0, gap))
                    }))
                }
                Workload::Barrier => points.extend(args.threads.iter().flat_map(|&threads| {
                    args.gap.iter().map(move |&gap| point(Work::Barrier, threads, 0, gap))
                })),
                Workload::Memory => points.extend([false, true].map(|contended| {
                    point(Work::Memory { locks: args.count, contended }, 2, 0, 0)
                })),
            }
        }
    }
    Ok(points)
}
