//! A few quick comparisons. CI machines are noisy, so check only that each says what was done, not the results.

use lockwright_calibrate::Error;
use lockwright_calibrate::validate::{PassVerdict, validate};
use lockwright_sim::profile::builtin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[test]
fn each_pass_has_a_verdict_and_each_row_its_passes() {
    // These are another machine's figures, and it is no failure if this one differs from them. But the profile
    // must name this one.
    let mut profile = builtin("xeon-2cpu-vm").unwrap();
    let Err(Error::OtherMachine { cpu, cpus, .. }) = validate(&profile, true, &|_, _| {}) else {
        panic!("the built-in profile does not name its processor");
    };
    profile.title = format!("{cpu}, for a test");
    profile.cluster[0].cores = u32::try_from(cpus).unwrap();
    let steps = AtomicU64::new(0);
    let made = validate(&profile, true, &|done, total| {
        assert!(done <= total);
        steps.fetch_add(1, Relaxed);
    })
    .unwrap();
    let counts = |row: &lockwright_calibrate::validate::RealAndSimulated| {
        let same = made.raw.iter().filter(|raw| {
            (raw.lock, &raw.load, raw.threads) == (row.lock.as_str(), &row.load, row.threads)
        });
        same.filter(|raw| raw.verdict == PassVerdict::Counts).count()
    };
    for row in &made.rows {
        assert!(counts(row) >= 3, "{row:?}");
        assert!(row.simulated_ns > 0.0 && row.spread_ns.0 <= row.real_ns, "{row:?}");
    }
    let summary = made.summary;
    assert_eq!(summary.alone + summary.outside + summary.two, made.rows.len());
    assert!(made.raw.iter().all(|raw| raw.ns > 0.0));
    assert_eq!(made.count(PassVerdict::Counts) > 0, steps.into_inner() > 0);
    let threads = made.raw.iter().map(|raw| raw.threads).max();
    assert!(threads <= Some(2));
}
