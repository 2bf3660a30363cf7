//! The model for machines where nothing measures: watts of each state, as in the simulator's profiles, times the time
//! spent in it.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a machine draws.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watts {
    /// A CPU that computes or spins; the two differ little.
    pub active_w: f64,
    /// A CPU that sleeps.
    pub idle_w: f64,
    /// What the machine draws in addition to its CPUs.
    pub package_w: f64,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Whose figures these are.
    pub from: String,
}

impl Watts {
    /// For when nothing was measured: what `lockwright sim --calibrate` also assumes for a server core, after the Xeon of
    /// MUTEXEE (20 cores from 4 to 96 W, packages from 30 W).
    pub fn assumed() -> Self {
        Self {
            active_w: 4.6,
            idle_w: 0.2,
            package_w: 15.0,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            from: "assumed".into(),
        }
    }

    /// In words.
    pub(crate) fn words(&self) -> String {
        let Self { active_w, idle_w, package_w, cpus, from } = self;
        let each = if *cpus == 1 { "1 CPU".to_owned() } else { format!("each of {cpus} CPUs") };
        format!("{active_w} W busy, {idle_w} W idle for {each}, {package_w} W beside them ({from})")
    }

    /// Joules for a time, and the CPU time spent in it.
    pub(crate) fn joules(&self, elapsed: Duration, cpu: Duration) -> f64 {
        let (elapsed, busy) = (elapsed.as_secs_f64(), cpu.as_secs_f64());
        let idle = (self.cpus as f64 * elapsed - busy).max(0.0);
        self.active_w * busy + self.idle_w * idle + self.package_w * elapsed
    }
}

/// Why the model is used: no source that measures was found.
pub(crate) fn why_nothing_measures() -> &'static str {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = cpus.lines().find(|line| line.starts_with("flags"));
    if flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor")) {
        return "nothing measures here: a virtual machine sees no energy counter";
    }
    match cfg!(target_arch = "x86_64") {
        true => "nothing measures here; for a counter: sudo modprobe intel_rapl_msr",
        false => "nothing measures here: the kernel shows no energy counter",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_adds_up_states() {
        let watts =
            Watts { active_w: 4.0, idle_w: 0.5, package_w: 10.0, cpus: 4, from: String::new() };
        let joules =
            |elapsed, cpu| watts.joules(Duration::from_secs(elapsed), Duration::from_secs(cpu));
        // 3 CPU seconds of 8 were busy.
        assert!((joules(2, 3) - (12.0 + 2.5 + 20.0)).abs() < 1e-9);
        // CPU time is counted in ticks, so it may exceed the elapsed time.
        assert!((joules(1, 5) - 30.0).abs() < 1e-9);
    }
}
