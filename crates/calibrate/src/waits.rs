//! How long spinning pays: MUTEXEE's parameters, computed from measurements.
//!
//! Falsafi, Guerraoui, Picorel & Trigonakis, *Unlocking Energy*, USENIX ATC 2016, section 5.1: a waiter spins for 8000
//! cycles, because a futex call and the wake-up after it cost 7000 or more. An unlock watches for 384 cycles, the
//! longest transfer of a line, whether another thread takes the lock. While spinning doesn't pay, these are 256 and
//! 128.

use lockwright_energy::Watts;
use lockwright_sim::profile::{ClassProfile, Origin, Power, Profile};
use serde::{Deserialize, Serialize};

/// The parameters of a class of cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waits {
    /// The class.
    pub name: String,
    /// How long a waiter spins, ns: the cost of a sleep and a wake-up.
    pub spin_ns: u32,
    /// How long an unlock watches whether another thread takes the lock, ns: the longest transfer of a line.
    pub wait_ns: u32,
    /// `spin_ns` while spinning doesn't pay.
    pub mutex_spin_ns: u32,
    /// `wait_ns` while spinning doesn't pay.
    pub mutex_wait_ns: u32,
}

/// The parameters of each class, the fastest first.
pub fn waits(profile: &Profile) -> Vec<Waits> {
    let kernel = &profile.kernel;
    let of_class = |class: &ClassProfile| {
        let rows = profile.cluster.iter().zip(&profile.memory.latency_ns);
        let own = rows.filter(|(cluster, _)| cluster.class == class.name);
        let line = own.flat_map(|(_, row)| row).fold(0.0, |most, ns| f64::max(most, *ns));
        // A class that computes more slowly is slower in the kernel, too.
        let spin = (kernel.sleep_ns + kernel.turnaround_ns) * class.compute;
        let (spin, wait) = (whole(spin / 100.0) * 100, whole(line * class.latency));
        let name = class.name.clone();
        Waits {
            name,
            spin_ns: spin,
            wait_ns: wait,
            mutex_spin_ns: spin * 256 / 8000,
            mutex_wait_ns: wait * 128 / 384,
        }
    };
    profile.class.iter().map(of_class).collect()
}

fn whole(number: f64) -> u32 {
    number.ceil().clamp(0.0, 1e7) as u32
}

/// The power that the machine draws in the model's states; `None`: not measured.
pub fn watts(profile: &Profile) -> Option<Watts> {
    let measured = |path: &str| {
        profile.provenance.get(path).is_some_and(|provenance| provenance.kind == Origin::Measured)
    };
    if !measured("kernel.package_w") {
        return None;
    }
    let cores = |name: &str| {
        let clusters = profile.cluster.iter().filter(|cluster| cluster.class == name);
        f64::from(clusters.map(|cluster| cluster.cores).sum::<u32>())
    };
    let all = profile.class.iter().map(|class| cores(&class.name)).sum::<f64>();
    let mean = |of: fn(&Power) -> f64| {
        profile.class.iter().map(|class| cores(&class.name) * of(&class.power)).sum::<f64>() / all
    };
    Some(Watts {
        active_w: mean(|power| power.active_w),
        idle_w: mean(|power| power.idle_w),
        package_w: profile.kernel.package_w,
        cpus: profile.cpus() as usize,
        from: "by lockwright sim --calibrate".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwright_sim::profile::builtin;

    #[test]
    fn the_papers_machine_has_the_papers_parameters() {
        let xeon = builtin("xeon-2x10").unwrap();
        let [of] = &waits(&xeon)[..] else { panic!("one class") };
        // 8000 cycles at 2.8 GHz, within 20 %, and 384.
        assert!((f64::from(of.spin_ns) * 2.8 / 8000.0 - 1.0).abs() < 0.2, "{of:?}");
        assert!((f64::from(of.wait_ns) * 2.8 - 384.0).abs() < 3.0, "{of:?}");
        assert_eq!((of.mutex_spin_ns, of.mutex_wait_ns), (of.spin_ns * 4 / 125, of.wait_ns / 3));
        assert!(f64::from(of.spin_ns) >= xeon.kernel.turnaround_ns, "never below the turnaround");
    }

    #[test]
    fn slower_cores_have_more_time() {
        let m1 = builtin("m1").unwrap();
        let [big, little] = &waits(&m1)[..] else { panic!("two classes") };
        assert!(
            little.spin_ns > big.spin_ns && little.wait_ns >= big.wait_ns,
            "{big:?} {little:?}"
        );
        assert_eq!(watts(&m1), None, "nobody measured it");
    }
}
