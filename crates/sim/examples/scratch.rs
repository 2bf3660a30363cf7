use lockwright_sim::*;
use std::collections::BTreeMap;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let mut profile = profile::builtin(&args[1]).unwrap();
    for kv in std::env::var("SET").unwrap_or_default().split(',').filter(|s| !s.is_empty()) {
        let (k, v) = kv.split_once('=').unwrap();
        profile.set(k, v.parse().unwrap()).unwrap();
    }
    let workload = workload::find(&args[2]).unwrap();
    let mut params = BTreeMap::new();
    for kv in args[3].split(',').filter(|s| !s.is_empty()) {
        let (k, v) = kv.split_once('=').unwrap();
        params.insert(k.to_string(), v.parse().unwrap());
    }
    let seeds: u64 = std::env::var("SEEDS").map_or(3, |s| s.parse().unwrap());
    let ms: u64 = std::env::var("MS").map_or(20, |s| s.parse().unwrap());
    for threads in args[4].split(',') {
        for name in args[5].split(' ') {
            let lock = LockSpec::parse(name).unwrap();
            let start = std::time::Instant::now();
            let mut all: Vec<Outcome> = (0..seeds)
                .map(|seed| {
                    Run {
                        profile: &profile,
                        lock: &lock,
                        workload,
                        params: &params,
                        threads: threads.parse().unwrap(),
                        placement: if std::env::var("FREE").is_ok() {
                            Placement::Free
                        } else {
                            Placement::Pinned
                        },
                        seed,
                        warmup_ns: 1_000_000,
                        duration_ns: ms * 1_000_000,
                        samples: false,
                        timeline: None,
                    }
                    .outcome()
                })
                .collect();
            let took = start.elapsed().as_secs_f64() / seeds as f64;
            all.sort_by(|a, b| a.throughput.total_cmp(&b.throughput));
            let o = &all[all.len() / 2];
            let per: Vec<String> = o
                .classes
                .iter()
                .map(|c| {
                    format!(
                        "{} {} p99 {:.2}us viol {}",
                        c.class,
                        c.operations,
                        c.latency.p99_ns as f64 / 1e3,
                        c.violations
                    )
                })
                .collect();
            println!(
                "{threads:>3} {name:<14} {:8.3} M/s p99 {:9.2} us  {:.2} W [{}] ev {} sleeps {} over {} {took:.3} s {:?}",
                o.throughput / 1e6,
                o.latency.p99_ns as f64 / 1e3,
                o.watts,
                per.join(", "),
                o.events,
                o.sleeps,
                o.most_overtaken,
                o.violation
            );
        }
    }
}
