//! The end of section 4.2: other platforms, with critical sections that compute.

use super::common::ASL;
use crate::{Context, Error, Load, Measured, Plan, chosen, ratio};
use lockwright_sim::profile;

const MACHINES: [&str; 2] = ["hikey970", "intel-dvfs"];

/// LibASL without an SLO, relative to MCS.
pub(super) fn platforms(context: &Context<'_>) -> Result<Measured, Error> {
    let mut plan = Plan::new();
    let mut pairs = Vec::new();
    for machine in MACHINES {
        let cpus = profile::builtin(machine).expect("it comes with the program").cpus();
        let mut on = |lock| -> Result<_, Error> {
            let mut load = Load::new("bench", lock).with("exponential", 1.0);
            for key in ["cs", "lines", "gap"] {
                load = load.with(key, chosen("libasl-platforms", key)?);
            }
            // A little core stands by for 100 ms.
            Ok(plan.add(load.machine(machine).threads(cpus).lasting(100.0, 300.0)))
        };
        pairs.push((machine, on(ASL)?, on("mcs")?));
    }
    let results = plan.run(context)?;
    let mut measured = Measured::new();
    for (machine, asl, mcs) in pairs {
        let row = ratio(&results.throughput(asl), &results.throughput(mcs));
        measured.row(format!("{machine} asl-max/mcs"), row);
    }
    Ok(measured)
}
