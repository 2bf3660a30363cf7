//! The report: one HTML page that needs nothing else, no network and no script.

use super::chart::{bars, cdf, colour, dash, escape};
use super::measure::Setting;
use super::stats::{self, RULE, Summary, thousands, time};
use super::{GLIBC, Results};
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
         <header>\n<h1>lockwright demo <span class=\"tag\" title=\"measured on the machine named below, \
         not simulated\">real</span></h1>\n\
         <p class=\"lead\">An unmodified database program under glibc’s lock and under ours, on this \
         machine.</p>\n"
    );
    for sentence in stats::headline(&results.summaries).lines() {
        let _ = writeln!(page, "<p class=\"headline\">{}</p>", escape(sentence));
    }
    if let Some(warning) = stats::disturbed(results.disturbance) {
        let _ = writeln!(page, "<p class=\"warning\">Warning: {}.</p>", escape(&warning));
    }
    page.push_str("</header>\n");
    legend(&mut page, &results.summaries[0].1);
    for (database, engine) in &results.engines {
        let own: Vec<_> =
            results.summaries.iter().filter(|(setting, _)| setting.database == *database).collect();
        section(&mut page, database, engine, &own);
    }
    method(&mut page, results, command)?;
    page.push_str("</main>\n</body>\n</html>\n");
    Ok(page)
}

fn legend(page: &mut String, summaries: &[Summary]) {
    page.push_str("<p class=\"legend\">");
    for (n, summary) in summaries.iter().enumerate() {
        let what = if n == 0 { " (the C library’s own, nothing preloaded)" } else { "" };
        let _ = write!(
            page,
            "<span><svg viewBox=\"0 0 34 12\" width=\"34\" height=\"12\" aria-hidden=\"true\">\
             <line x1=\"1\" y1=\"6\" x2=\"33\" y2=\"6\" stroke=\"{}\" stroke-width=\"3\" \
             stroke-dasharray=\"{}\"/></svg> {}{what}</span>",
            colour(n),
            dash(n),
            escape(&summary.lock)
        );
    }
    page.push_str("</p>\n");
}

fn section(page: &mut String, database: &str, engine: &str, own: &[&(Setting, Vec<Summary>)]) {
    let workload = if database == "sqlite" {
        "Threads share one in-memory connection in SQLite’s serialized mode; the contended lock is the \
         connection’s own recursive <code>pthread_mutex_t</code>. Each operation is a DEFERRED transaction: \
         ⅓ insert, ⅓ point query on an indexed column, ⅓ range query with a filter on a column without index."
    } else {
        "50 % put (an update), 50 % get, each a transaction. LMDB’s own mutexes are shared between \
         processes and stay glibc’s, so the program opens LMDB with <code>MDB_NOLOCK</code> and locks by itself: \
         a <code>pthread_mutex_t</code> around write transactions and one over the reader slots."
    };
    let _ = writeln!(page, "<section>\n<h2>{}</h2>\n<p>{workload}</p>", escape(engine));
    page.push_str("<h3>Throughput</h3>\n<ul>\n");
    for (setting, summaries) in own {
        for summary in &summaries[1..] {
            let sentence = stats::sentence(*setting, &summaries[0], summary);
            let _ = writeln!(page, "<li>{}</li>", escape(&sentence).replace('\'', "’"));
        }
    }
    page.push_str("</ul>\n<figure>");
    let groups: Vec<_> =
        own.iter().map(|(s, summaries)| (stats::threads(s.threads), &summaries[..])).collect();
    page.push_str(&bars(engine, &groups));
    page.push_str(
        "<figcaption>Bars: median of the rounds. Dots: the rounds. In brackets: times glibc’s, median of \
         the ratios within a round.</figcaption></figure>\n<h3>Latency</h3>\n<div class=\"pair\">\n",
    );
    for (setting, summaries) in own {
        let label = stats::threads(setting.threads);
        let _ = writeln!(page, "<figure>{}</figure>", cdf(&label, summaries));
    }
    page.push_str("</div>\n");
    table(page, own);
    page.push_str("</section>\n");
}

fn table(page: &mut String, own: &[&(Setting, Vec<Summary>)]) {
    page.push_str(
        "<div class=\"scroll\"><table>\n<thead><tr><th>threads</th><th>lock</th><th>operations/s</th>\
         <th>of glibc</th><th>spread</th><th>P50</th><th>P99</th><th>P99.9</th><th>max</th>\
         <th>CPU/operation</th></tr></thead>\n<tbody>\n",
    );
    for (setting, summaries) in own {
        for (n, summary) in summaries.iter().enumerate() {
            let ratio = summary.ratio;
            let (threads, spread) = match n {
                0 => (setting.threads.to_string(), String::new()),
                _ => (String::new(), format!("{:.2} to {:.2}", ratio.min, ratio.max)),
            };
            let _ = writeln!(
                page,
                "<tr{}><td>{threads}</td><td><i style=\"background:{}\"></i>{}</td><td>{}</td>\
                 <td>{:.2}</td><td>{spread}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                if n == 0 { " class=\"first\"" } else { "" },
                colour(n),
                escape(&summary.lock),
                thousands(summary.rate.median),
                ratio.median,
                time(summary.latency.quantile(0.5)),
                time(summary.latency.quantile(0.99)),
                time(summary.latency.quantile(0.999)),
                time(summary.latency.max()),
                time(summary.cpu_ns.median as u64),
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
         <dt>Rounds</dt><dd>{rounds}, of {} s a run. Every round runs every lock once, in an order that \
         rotates; a lock is compared with {GLIBC} in the same round. Latencies are of all rounds together and \
         include the wait for the lock.</dd>\n\
         <dt>Verdicts</dt><dd>{RULE}.</dd>\n\
         <dt>Other load</dt><dd>other programs used {:.1} % of the CPUs meanwhile.</dd>\n\
         <dt>Correctness</dt><dd>the program checked every answer and, at the end, the whole database: all \
         runs were right (else there would be no report).</dd>\n\
         <dt>Our locks</dt><dd>the same binary, with <code>LD_PRELOAD=liblockwright.so</code> and \
         <code>LOCKWRIGHT_LOCK</code> set to the lock’s name.</dd>\n\
         <dt>real</dt><dd>measured on the machine named here; nothing on this page is simulated.</dd>\n\
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
