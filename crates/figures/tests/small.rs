//! On a machine of two equal CPUs a figure runs, or says beforehand why it can't.

use lockwright_figures::{Context, Error, experiments};
use lockwright_sim::profile;
use std::sync::Arc;

const SMALL: &str = "xeon-2cpu-vm";

#[test]
fn a_figure_runs_on_the_smallest_machine_or_says_beforehand_why_not() {
    let machine = Arc::new(profile::builtin(SMALL).unwrap());
    let mut refused = Vec::new();
    for experiment in experiments() {
        match experiment.check(machine.clone()) {
            Ok(()) => {
                let context = Context { length: 0.002, ..Context::new(machine.clone(), 1) };
                if let Err(why) = (experiment.measure)(&context) {
                    panic!("{}: {why}", experiment.id);
                }
            }
            Err(Error::NoCpu { cpu: 6, last: 1, .. }) => refused.push(experiment.id),
            Err(why) => panic!("{}: {why}", experiment.id),
        }
    }
    assert_eq!(refused, ["cal-3", "cal-7", "cal-8", "cal-9"]);
}
