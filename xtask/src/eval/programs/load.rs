//! Parses the output of load generators.

use anyhow::{Context, Result, ensure};
use lockwright_numbers::Times;
use serde::{Deserialize, Serialize};

/// Latencies of one run's operations, ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Tails {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) longest: f64,
}

/// A load generator's report on one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Load {
    /// Operations per second.
    pub(super) rate: f64,
    pub(super) operations: f64,
    pub(super) tails: Tails,
}

const US: f64 = 1e3;
const MS: f64 = 1e6;

impl Tails {
    pub(super) fn of(latency: &Times, longest: f64) -> Tails {
        let at = |share| latency.quantile(share) as f64;
        Tails { p50: at(0.5), p99: at(0.99), p999: at(0.999), longest }
    }
}

/// The number after the first occurrence of `label`.
fn number(text: &str, label: &str) -> Result<f64> {
    let found = text.find(label).map(|at| &text[at + label.len()..]);
    let word = found.and_then(|rest| rest.split_whitespace().next());
    let word = word.map(|word| word.trim_end_matches([',', ';', ')', 's', '%']));
    word.and_then(|word| word.trim_start_matches('(').parse().ok())
        .with_context(|| format!("no number after '{label}'"))
}

/// memcaslap counts latencies in powers of two: bucket n holds 2^(n-1) to 2^n us. We interpolate geometrically within a
/// bucket. So percentiles change with the counts, but are not more precise than that.
pub(super) fn memcaslap(text: &str) -> Result<Load> {
    let total = text.rfind("Total Statistics (").context("no 'Total Statistics'")?;
    let total = &text[total..];
    let (lowest, longest) = (number(total, "Min:")?, number(total, "Max:")?);
    let mut counts = Vec::new();
    for line in total.lines().skip_while(|line| !line.contains("Log2 Dist:")).skip(1) {
        let Some((first, cells)) = line.split_once(':') else { break };
        let Ok(first) = first.trim().parse::<i32>() else { break };
        for (n, cell) in cells.split_whitespace().enumerate() {
            counts
                .push((first + n as i32, cell.parse::<f64>().context("a count is not a number")?));
        }
    }
    let all: f64 = counts.iter().map(|(_, count)| count).sum();
    ensure!(all > 0.0, "no latencies");
    let at = |share: f64| {
        let mut below = 0.0;
        for &(place, count) in &counts {
            if below + count >= share * all {
                let within = (share * all - below) / count;
                return 2_f64.powf(f64::from(place - 1) + within).clamp(lowest, longest) * US;
            }
            below += count;
        }
        longest * US
    };
    Ok(Load {
        rate: number(text, "TPS: ")?,
        operations: number(text, " Ops: ")?,
        tails: Tails { p50: at(0.5), p99: at(0.99), p999: at(0.999), longest: longest * US },
    })
}

/// For P99.9 we use the next percentile in redis-benchmark's list: 99.902 %.
pub(super) fn redis_benchmark(text: &str) -> Result<Load> {
    let header = "p50       p95       p99       max";
    let summary = text.find(header).map(|at| &text[at + header.len()..]);
    let cells: Vec<f64> =
        summary.unwrap_or_default().split_whitespace().take(6).flat_map(str::parse).collect();
    let [_, _, p50, _, p99, longest] = cells[..] else {
        anyhow::bail!("no latency summary");
    };
    let list = text.split("Latency by percentile distribution:").nth(1).unwrap_or_default();
    let steps = list.lines().filter_map(|line| {
        let (share, rest) = line.split_once("% <= ")?;
        Some((share.parse::<f64>().ok()?, rest.split(' ').next()?.parse::<f64>().ok()?))
    });
    let mut p999 = steps.skip_while(|(share, _)| *share < 99.9).map(|(_, ms)| ms);
    Ok(Load {
        rate: number(text, "throughput summary:")?,
        operations: text
            .split(" requests completed")
            .next()
            .and_then(|before| before.split_whitespace().last()?.parse().ok())
            .context("no number of requests")?,
        tails: Tails {
            p50: p50 * MS,
            p99: p99 * MS,
            p999: p999.next().context("no 99.9 %")? * MS,
            longest: longest * MS,
        },
    })
}

/// A script for wrk, whose own report lacks P99.9.
pub(super) const WRK_SCRIPT: &str = r#"done = function(summary, latency)
  local e = summary.errors
  io.write(string.format("requests: %d\nduration: %d\n", summary.requests, summary.duration))
  io.write(string.format("errors: %d\n", e.connect + e.read + e.write + e.status + e.timeout))
  for _, p in pairs({ 50, 99, 99.9 }) do
    io.write(string.format("p%s: %d\n", p, latency:percentile(p)))
  end
  io.write(string.format("longest: %d\n", latency.max))
end
"#;

pub(super) fn wrk(text: &str) -> Result<Load> {
    let errors = number(text, "errors:")?;
    ensure!(errors == 0.0, "{errors} requests failed");
    let operations = number(text, "requests:")?;
    let us = |label| Ok::<_, anyhow::Error>(number(text, label)? * US);
    Ok(Load {
        rate: operations * 1e6 / number(text, "duration:")?,
        operations,
        tails: Tails {
            p50: us("p50:")?,
            p99: us("p99:")?,
            p999: us("p99.9:")?,
            longest: us("longest:")?,
        },
    })
}

/// sysbench with `--histogram=on`: buckets are 2 % wide.
pub(super) fn sysbench(text: &str) -> Result<Load> {
    let mut latency = Times::default();
    let list = text.lines().skip_while(|line| !line.contains("- distribution -")).skip(1);
    for line in list.take_while(|line| line.contains('|')) {
        let (ms, rest) = line.split_once('|').context("a line without '|'")?;
        let count = rest.split_whitespace().last().context("a line without a count")?;
        latency.add((ms.trim().parse::<f64>()? * MS) as u64, count.parse()?);
    }
    let operations = number(text, "total number of events:")?;
    ensure!(operations > 0.0 && latency.max() > 0, "no events");
    Ok(Load {
        rate: operations / number(text, "total time:")?,
        operations,
        tails: Tails::of(&latency, number(text, "max:")? * MS),
    })
}

/// The report of RocksDB's `db_bench --histogram` on `load`. Each bucket is 1.5 times the one before; we interpolate
/// linearly. The longest latency is exact.
pub(super) fn db_bench(text: &str, load: &str) -> Result<Load> {
    let report = text.find(&format!("\n{load} ")).map(|at| &text[at..]);
    let report = report.with_context(|| format!("no report of '{load}'"))?;
    let line = report.trim_start().lines().next().unwrap_or_default();
    let before = |unit: &str| -> Result<f64> {
        let word = line.split(unit).next().and_then(|before| before.split_whitespace().last());
        word.and_then(|word| word.parse().ok())
            .with_context(|| format!("no number before '{unit}'"))
    };
    Ok(Load {
        rate: before(" ops/sec")?,
        operations: before(" operations")?,
        tails: Tails {
            p50: number(report, "P50:")? * US,
            p99: number(report, "P99:")? * US,
            p999: number(report, "P99.9:")? * US,
            longest: number(report, "Max:")? * US,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memcaslap_is_read() {
        let text = "Get Statistics (9 events)\n   Max:  1\n\nTotal Statistics (1000 events)\n   Min:        11\n   \
                    Max:     12224\n   Log2 Dist:\n       4:     500      400\n       8:       90       10\n\n\
                    cmd_get: 5\n\nRun time: 3.0s Ops: 1000 TPS: 333 Net_rate: 18.2M/s";
        let load = memcaslap(text).unwrap();
        assert_eq!((load.rate, load.operations), (333.0, 1000.0));
        assert_eq!((load.tails.p50, load.tails.longest), (16_000.0, 12_224_000.0));
        assert_eq!(load.tails.p99, 256_000.0);
        assert_eq!(load.tails.p999.round(), (2_f64.powf(8.9) * 1e3).round());
        assert!(memcaslap("Total Statistics (0 events)\n Min: 1\n Max: 1\n").is_err());
    }

    #[test]
    fn redis_benchmark_is_read() {
        let text = "====== SET ======\n  200000 requests completed in 2.17 seconds\n\nLatency by percentile \
                    distribution:\n50.000% <= 52.031 milliseconds (cumulative count 100140)\n\
                    99.805% <= 143.743 milliseconds (cumulative count 199615)\n\
                    99.902% <= 156.927 milliseconds (cumulative count 199805)\n\nCumulative distribution of latencies:\n\
                    99.999% <= 1.0 milliseconds (cumulative count 1)\nSummary:\n  throughput summary: 92165.89 requests \
                    per second\n  latency summary (msec):\n          avg       min       p50       p95       p99       max\n\
                    54.180     4.032    52.031    92.159   116.223   292.351\n";
        let load = redis_benchmark(text).unwrap();
        assert_eq!((load.rate, load.operations), (92_165.89, 200_000.0));
        assert_eq!((load.tails.p999, load.tails.longest), (156_927_000.0, 292_351_000.0));
        assert!(redis_benchmark("Could not connect").is_err());
    }

    #[test]
    fn wrk_is_read_and_its_errors_are() {
        let text = "requests: 200\nduration: 2000000\nerrors: 0\np50: 10\np99: 20\np99.9: 30\nlongest: 31\n";
        let load = wrk(text).unwrap();
        assert_eq!((load.rate, load.tails.p99, load.tails.longest), (100.0, 20_000.0, 31_000.0));
        assert_eq!(load.tails.p999, 30_000.0);
        let failed = wrk(&text.replace("errors: 0", "errors: 3")).unwrap_err();
        assert_eq!(failed.to_string(), "3 requests failed");
    }

    #[test]
    fn sysbench_is_read() {
        let text = "Latency histogram (values are in milliseconds)\n       value  ------------- distribution \
                    ------------- count\n       1.000 |****  99\n       5.000 |*   1\n \nGeneral statistics:\n    \
                    total time:                          2.0000s\n    total number of events:              100\n\n\
                    Latency (ms):\n         min: 1.00\n         max:      5.10\n";
        let load = sysbench(text).unwrap();
        assert_eq!((load.rate, load.tails.p99, load.tails.p999), (50.0, 1e6, 5e6));
        assert_eq!(load.tails.longest, 5_100_000.0);
        assert!(sysbench("FATAL: unable to connect").is_err());
    }

    #[test]
    fn db_bench_is_read() {
        let text = "DB path: [x]\nfillrandom   :   2.391 micros/op 536952 ops/sec 0.149 seconds 80000 operations; (0 of \
                    20000 found)\nMicroseconds per write:\nCount: 80000 Average: 3.6970  StdDev: 427.49\nMin: 0  Median: \
                    0.5020  Max: 80070\nPercentiles: P50: 0.50 P75: 0.75 P99: 0.99 P99.9: 2.00 P99.99: 76.00\n";
        let load = db_bench(text, "fillrandom").unwrap();
        assert_eq!((load.rate, load.operations), (536_952.0, 80_000.0));
        assert_eq!(
            (load.tails.p50, load.tails.p999, load.tails.longest),
            (500.0, 2_000.0, 8.007e7)
        );
        assert!(db_bench(text, "readrandom").is_err());
    }
}
