//! The report: one self-contained HTML page, without network or scripts.

use super::chart::{bars, cdf, colour, tails};
use super::cores::FACTOR;
use super::picture;
use super::stats::{self, Figure, Group, Panel, RULE, Summary};
use super::words;
use super::{DemoResults, GLIBC, LOOKS};
use anyhow::{Result, ensure};
use lockwright_numbers::format::{self, ns, si, time};
use lockwright_plot::page;
use lockwright_tests::{Child, End};
use maud::{Markup, html};
use std::{fs, thread};

pub(super) fn report(results: &DemoResults, command: &str) -> Result<String> {
    let date = date()?;
    let mut sentences = words::verdict(&results.panels);
    sentences.push(words::next(&results.next));
    let body = html! {
        h1 { "lockwright demo" }
        p.lead {
            "An unmodified database program under glibc’s lock and under ours: on this machine as it is, and on a big \
            core and a little one."
        }
        @if let Some(warning) = stats::disturbed(results.disturbance) {
            (page::warning(format!("Warning: {warning}.")))
        }
        @for sentence in &sentences {
            @let (what, rest) = sentence.split_once(": ").unwrap_or((sentence, ""));
            p { b { (what) ":" } " " (page::marked(rest)) }
        }
        (page::figure(&picture::svg(results, &machine(&results.libc)), ""))
        @for panel in &results.panels { (section(panel, results)) }
        (method(results, command, &date))
    };
    Ok(page::page("lockwright demo", &body))
}

fn section(panel: &Panel, results: &DemoResults) -> Markup {
    let (title, tag) = match panel.cores {
        None if panel.is_busy() => (
            "This machine, busy ",
            page::tag("real", "measured on the machine named below, beside other processes"),
        ),
        None => {
            ("This machine ", page::tag("real", "measured on the machine named below, as it is"))
        }
        Some(_) => (
            "Big and little cores ",
            page::tag(
                "emulated",
                "measured on the machine named below, one of whose cores is made slower",
            ),
        ),
    };
    html! {
        h2 { (title) (tag) }
        @match &panel.cores {
            None if panel.is_busy() => p {
                "The same, while one or two hogs compute all the time: other processes, each in a session of its own, on \
                any CPU, with the same priority. A lock whose threads sleep more leaves them more of the CPUs."
            },
            None => p { "glibc is the C library’s own, nothing preloaded." },
            Some(cores) => p {
                "Two threads, one on a big core and one on a little one: what a thread computes on CPU " (cores.little)
                " takes " (FACTOR) " times as long (" code { "LOCKWRIGHT_EMULATE=" (cores.spec) } "; \
                docs/emulation.md). Each operation is an epoch; those locks that know epochs are run with an SLO, the P99 \
                that glibc has on the little core in " (LOOKS) " first runs, and without one. All latencies are the little \
                core’s. glibc is its algorithm, run by our library, which makes the little core slow."
            },
        }
        @for (database, engine) in &results.engines {
            @let own: Vec<_> = panel.groups.iter().filter(|group| group.setting.database == *database).collect();
            @if !own.is_empty() { (one_database(panel, database, engine, &own)) }
        }
    }
}

fn one_database(panel: &Panel, database: &str, engine: &str, own: &[&Group]) -> Markup {
    let label = |group: &Group| match panel.cores {
        None => group.setting.load(),
        Some(_) => "big + little".into(),
    };
    let groups: Vec<_> = own.iter().map(|group| (label(group), &group.summaries[..])).collect();
    let second = match own {
        [Group { slo_ns: Some(slo_ns), .. }] => tails(engine, own[0], *slo_ns),
        _ => cdf(engine, &groups),
    };
    html! {
        h3 { (engine) }
        @if panel.cores.is_none() && !panel.is_busy() { p {
            @if database == "sqlite" {
                "Threads share one in-memory connection in SQLite’s serialized mode; the contended lock is the \
                connection’s own recursive " code { "pthread_mutex_t" } ". Each operation is a DEFERRED transaction: ⅓ \
                insert, ⅓ point query on an indexed column, ⅓ range query with a filter on a column without index."
            } @else {
                "50 % put (an update), 50 % get, each a transaction. LMDB’s own mutexes are shared between processes and \
                stay glibc’s, so the program opens LMDB with " code { "MDB_NOLOCK" } " and locks by itself: a "
                code { "pthread_mutex_t" } " around write transactions and one over the reader slots."
            }
        } }
        (page::figure(&bars(engine, &groups), html! {
            "Bars: median of the rounds. Dots: the rounds. Behind them: times glibc’s, median of the ratios within a \
            round. All of it " (panel.origin()) "."
        }))
        (page::figure(&second, ""))
        (table(panel, own))
    }
}

fn table(panel: &Panel, own: &[&Group]) -> Markup {
    let (first, last) = match panel.cores {
        None if panel.is_busy() => ("threads, hogs", "hogs’ CPUs"),
        None => ("threads", "CPU/operation"),
        Some(_) => ("SLO", "P99 of SLO"),
    };
    let header = [
        first,
        "lock",
        "operations/s",
        "of glibc",
        "spread",
        "P50",
        "P99",
        "P99.9",
        "longest",
        last,
    ];
    let row = |group: &Group, n: usize, summary: &Summary| {
        let ratio = summary.ratio(Figure::Throughput).spread;
        let at = |share| ns(summary.latency.quantile(share));
        let lead = match (panel.cores.is_some(), n) {
            (false, 0) if panel.is_busy() => group.setting.load(),
            (false, 0) => group.setting.threads.to_string(),
            (false, _) => String::new(),
            (true, _) => summary.subject.slo_ns.map_or("none".into(), ns),
        };
        let spread = match n {
            0 => String::new(),
            _ => format!("{} to {}", format::ratio(ratio.min), format::ratio(ratio.max)),
        };
        let last = match group.slo_ns {
            Some(slo_ns) => format::ratio(summary.of_slo(slo_ns)),
            None if panel.is_busy() => format::ratio(summary.hogs_cpus.median),
            None => time(summary.cpu_ns.median),
        };
        let cells = [
            lead,
            String::new(),
            si(summary.rate.median),
            format::ratio(ratio.median),
            spread,
            at(0.5),
            at(0.99),
            at(0.999),
            ns(summary.latency.max()),
            last,
        ];
        let mut row = page::TableRow { first: n == 0, ..page::TableRow::of(cells) };
        row.cells[1] = html! { (page::chip(&colour(n).css())) (summary.subject.lock) };
        row
    };
    let rows = own.iter().flat_map(|group| {
        group.summaries.iter().enumerate().map(move |(n, summary)| row(group, n, summary))
    });
    page::table(header, 2, false, rows)
}

fn method(results: &DemoResults, command: &str, date: &str) -> Markup {
    let (rounds, seconds) = (results.rounds, results.seconds);
    html! {
        h2 { "How this was measured" }
        (page::terms([
            ("Machine", html! { (machine(&results.libc)) }),
            ("Date", html! { (date) }),
            ("Command", page::command(command.trim())),
            ("Rounds", html! { (rounds) " (beside hogs " (results.busy_rounds()) "), of " (seconds) " s a run (on big and little cores the first third of it is \
                not counted). Every round runs every lock once, in an order that rotates; a lock is compared with "
                (GLIBC) " in the same round. Latencies are of all rounds together and include the wait for the lock." }),
            ("Verdicts", html! { (RULE) "." }),
            ("Other load", html! { "other programs, hogs not counted, used " (format!("{:.1}", results.disturbance * 100.0))
                " % of the CPUs during the measurement." }),
            ("Correctness", html! { "the program checked every answer and, at the end, the whole database: all runs \
                were right (else there would be no report)." }),
            ("Our locks", html! { "the same binary, with " code { "LD_PRELOAD=liblockwright.so" } " and "
                code { "LOCKWRIGHT_LOCK" } " set to the lock’s name." }),
            ("real", html! { "measured on the machine named here, as it is." }),
            ("emulated", html! { "measured there too, while the library makes one core slow. Caches and memory are \
                the real machine’s. Nothing on this page is simulated." }),
        ]))
    }
}

/// One line about the machine and its software.
pub(crate) fn machine(libc: &str) -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let model = field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    // The kernel sets this flag for guests of a hypervisor.
    let guest = field("flags").is_some_and(|flags| flags.split(' ').any(|f| f == "hypervisor"));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{model}, {cpus} CPU{} usable{}, Linux {}, {libc}",
        if cpus == 1 { "" } else { "s" },
        if guest { " (a virtual machine)" } else { "" },
        kernel.trim()
    )
}

pub(crate) fn date() -> Result<String> {
    let outcome = Child::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).limit(5).run()?;
    ensure!(outcome.end == End::Code(0), "date: {}", outcome.end);
    Ok(outcome.text().trim().to_owned())
}
