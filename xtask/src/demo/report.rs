//! The report: one HTML page that needs nothing else, no network and no script.

use super::chart::{bars, cdf, colour, dash, escape, tails};
use super::cores::FACTOR;
use super::picture;
use super::stats::{self, Figure, Group, Panel, RULE, Summary, thousands, time};
use super::words;
use super::{GLIBC, LOOKS, Results};
use anyhow::{Result, ensure};
use lockwright_tests::{Child, End};
use std::fmt::Write as _;
use std::{fs, thread};

pub(crate) const STYLE: &str = include_str!("report.css");

pub(super) fn page(results: &Results, command: &str) -> Result<String> {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>lockwright demo</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <header>\n<h1>lockwright demo</h1>\n\
         <p class=\"lead\">An unmodified database program under glibc’s lock and under ours: on this machine as it \
         is, and on a big core and a little one.</p>\n"
    );
    if let Some(warning) = stats::disturbed(results.disturbance) {
        let _ = writeln!(page, "<p class=\"warning\">Warning: {}.</p>", escape(&warning));
    }
    for sentence in words::sentences(&results.panels, &results.next) {
        let (what, rest) = sentence.split_once(": ").unwrap_or((&sentence, ""));
        let _ = writeln!(page, "<p class=\"said\"><b>{what}:</b> {}</p>", marked(rest));
    }
    let _ = writeln!(
        page,
        "<figure>{}</figure>\n</header>",
        picture::svg(results, &machine(&results.libc))
    );
    for panel in &results.panels {
        section(&mut page, panel, results);
    }
    method(&mut page, results, command)?;
    page.push_str("</main>\n</body>\n</html>\n");
    Ok(page)
}

/// A sentence in HTML: what stands between backticks is code.
fn marked(sentence: &str) -> String {
    let mut html = String::new();
    for (n, piece) in sentence.split('`').enumerate() {
        let piece = escape(piece);
        match n % 2 {
            0 => html += &piece.replace('\'', "’"),
            _ => html += &format!("<code>{piece}</code>"),
        }
    }
    html
}

fn legend(page: &mut String, summaries: &[Summary], glibc: &str) {
    page.push_str("<p class=\"legend\">");
    for (n, summary) in summaries.iter().enumerate() {
        let what = if n == 0 { format!(" ({glibc})") } else { String::new() };
        // Objectives differ from database to database.
        let slo = if summary.subject.slo_ns.is_some() { ", with an SLO" } else { "" };
        let _ = write!(
            page,
            "<span><svg viewBox=\"0 0 34 12\" width=\"34\" height=\"12\" aria-hidden=\"true\">\
             <line x1=\"1\" y1=\"6\" x2=\"33\" y2=\"6\" stroke=\"{}\" stroke-width=\"3\" \
             stroke-dasharray=\"{}\"/></svg> {}{slo}{what}</span>",
            colour(n),
            dash(n),
            escape(&summary.subject.lock)
        );
    }
    page.push_str("</p>\n");
}

fn section(page: &mut String, panel: &Panel, results: &Results) {
    let tag = match panel.cores {
        None => {
            "<span class=\"tag\" title=\"measured on the machine named below, as it is\">real</span>"
        }
        Some(_) => {
            "<span class=\"tag emulated\" title=\"measured on the machine named below, one of whose cores is made \
             slower\">emulated</span>"
        }
    };
    let (title, glibc) = match &panel.cores {
        None => ("This machine", "the C library’s own, nothing preloaded"),
        Some(_) => (
            "Big and little cores",
            "its algorithm, run by our library, which makes the little core slow",
        ),
    };
    let _ = writeln!(page, "<section>\n<h2>{title} {tag}</h2>");
    if let Some(cores) = &panel.cores {
        let _ = writeln!(
            page,
            "<p>Two threads, one on a big core and one on a little one: what a thread computes on CPU {} takes {FACTOR} \
             times as long (<code>LOCKWRIGHT_EMULATE={}</code>; docs/emulation.md). Each operation is an epoch; those \
             locks that know epochs are run with an SLO, the P99 that glibc has on the little core in {LOOKS} first runs, and without \
             one. All latencies are the little core’s.</p>",
            cores.little,
            escape(&cores.spec)
        );
    }
    if let Some(group) = panel.groups.first() {
        legend(page, &group.summaries, glibc);
    }
    for (database, engine) in &results.engines {
        let own: Vec<_> =
            panel.groups.iter().filter(|group| group.setting.database == *database).collect();
        if !own.is_empty() {
            one_database(page, panel, database, engine, &own);
        }
    }
    page.push_str("</section>\n");
}

fn one_database(page: &mut String, panel: &Panel, database: &str, engine: &str, own: &[&Group]) {
    let workload = if database == "sqlite" {
        "Threads share one in-memory connection in SQLite’s serialized mode; the contended lock is the \
         connection’s own recursive <code>pthread_mutex_t</code>. Each operation is a DEFERRED transaction: \
         ⅓ insert, ⅓ point query on an indexed column, ⅓ range query with a filter on a column without index."
    } else {
        "50 % put (an update), 50 % get, each a transaction. LMDB’s own mutexes are shared between \
         processes and stay glibc’s, so the program opens LMDB with <code>MDB_NOLOCK</code> and locks by itself: \
         a <code>pthread_mutex_t</code> around write transactions and one over the reader slots."
    };
    let _ = writeln!(page, "<h3>{}</h3>", escape(engine));
    if panel.cores.is_none() {
        let _ = writeln!(page, "<p>{workload}</p>");
    }
    let label = |group: &Group| match panel.cores {
        None => stats::threads(group.setting.threads),
        Some(_) => "big + little".into(),
    };
    let groups: Vec<_> = own.iter().map(|group| (label(group), &group.summaries[..])).collect();
    let _ = writeln!(
        page,
        "<figure>{}<figcaption>Bars: median of the rounds. Dots: the rounds. In brackets: times glibc’s, median of \
         the ratios within a round. All of it {}.</figcaption></figure>",
        bars(engine, &groups),
        panel.origin()
    );
    match own {
        [group] if group.slo_ns.is_some() => {
            let slo_ns = group.slo_ns.unwrap_or(1);
            let _ = writeln!(page, "<figure>{}</figure>", tails(engine, &group.summaries, slo_ns));
        }
        _ => {
            page.push_str("<div class=\"pair\">\n");
            for group in own {
                let _ = writeln!(page, "<figure>{}</figure>", cdf(&label(group), &group.summaries));
            }
            page.push_str("</div>\n");
        }
    }
    table(page, panel, own);
}

fn table(page: &mut String, panel: &Panel, own: &[&Group]) {
    let (first, last) = match panel.cores {
        None => ("threads", "CPU/operation"),
        Some(_) => ("SLO", "P99 of SLO"),
    };
    let _ = write!(
        page,
        "<div class=\"scroll\"><table>\n<thead><tr><th>{first}</th><th>lock</th><th>operations/s</th>\
         <th>of glibc</th><th>spread</th><th>P50</th><th>P99</th><th>P99.9</th><th>longest</th>\
         <th>{last}</th></tr></thead>\n<tbody>\n",
    );
    for group in own {
        for (n, summary) in group.summaries.iter().enumerate() {
            let ratio = summary.ratio(Figure::Throughput).spread;
            let spread = match n {
                0 => String::new(),
                _ => format!("{:.2} to {:.2}", ratio.min, ratio.max),
            };
            let first = match (panel.cores.is_some(), n) {
                (false, 0) => group.setting.threads.to_string(),
                (false, _) => String::new(),
                (true, _) => summary.subject.slo_ns.map_or("none".into(), time),
            };
            let last = match group.slo_ns {
                Some(slo_ns) => format!("{:.2}", summary.of_slo(slo_ns)),
                None => time(summary.cpu_ns.median as u64),
            };
            let _ = writeln!(
                page,
                "<tr{}><td>{first}</td><td><i style=\"background:{}\"></i>{}</td><td>{}</td>\
                 <td>{:.2}</td><td>{spread}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{last}</td></tr>",
                if n == 0 { " class=\"first\"" } else { "" },
                colour(n),
                escape(&summary.subject.lock),
                thousands(summary.rate.median),
                ratio.median,
                time(summary.latency.quantile(0.5)),
                time(summary.latency.quantile(0.99)),
                time(summary.latency.quantile(0.999)),
                time(summary.latency.max()),
            );
        }
    }
    page.push_str("</tbody>\n</table></div>\n");
}

fn method(page: &mut String, results: &Results, command: &str) -> Result<()> {
    let rounds = results.rounds;
    let _ = writeln!(
        page,
        "<section class=\"method\">\n<h2>How this was measured</h2>\n<dl>\n\
         <dt>Machine</dt><dd>{}</dd>\n<dt>Date</dt><dd>{}</dd>\n\
         <dt>Command</dt><dd><code>{}</code></dd>\n\
         <dt>Rounds</dt><dd>{rounds}, of {} s a run (on big and little cores the first third of it is not counted). Every \
         round runs every lock once, in an order that rotates; a lock is compared with {GLIBC} in the same round. \
         Latencies are of all rounds together and include the wait for the lock.</dd>\n\
         <dt>Verdicts</dt><dd>{RULE}.</dd>\n\
         <dt>Other load</dt><dd>other programs used {:.1} % of the CPUs meanwhile.</dd>\n\
         <dt>Correctness</dt><dd>the program checked every answer and, at the end, the whole database: all \
         runs were right (else there would be no report).</dd>\n\
         <dt>Our locks</dt><dd>the same binary, with <code>LD_PRELOAD=liblockwright.so</code> and \
         <code>LOCKWRIGHT_LOCK</code> set to the lock’s name.</dd>\n\
         <dt>real</dt><dd>measured on the machine named here, as it is.</dd>\n\
         <dt>emulated</dt><dd>measured there too, while the library makes one core slow. Caches and memory are the real \
         machine’s. Nothing on this page is simulated.</dd>\n\
         </dl>\n</section>",
        escape(&machine(&results.libc)),
        escape(&date()?),
        escape(command.trim()),
        results.seconds,
        results.disturbance * 100.0,
    );
    Ok(())
}

/// One line on the machine: what it is and what runs on it.
pub(crate) fn machine(libc: &str) -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let model = field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    // The kernel shows this flag to the guests of a hypervisor.
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
