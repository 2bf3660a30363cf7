//! Fixture trees of four kinds of machines, and what we read from them.

use super::*;
use std::{format, fs, ops::Range, path::PathBuf, string::String, vec::Vec};

/// A machine as sysfs would show it.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str, cpus: usize) -> Self {
        let folder = format!("lockwright-topology-{name}-{}", std::process::id());
        let machine = Self(std::env::temp_dir().join(folder));
        let all = format!("0-{}\n", cpus - 1);
        machine.file("devices/system/cpu/online", &all).file("devices/system/cpu/present", &all)
    }

    fn file(self, path: &str, text: impl AsRef<str>) -> Self {
        self.write(path, text.as_ref());
        self
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The same text for each of these CPUs.
    fn cpus(self, cpus: Range<usize>, name: &str, text: &str) -> Self {
        for cpu in cpus {
            self.write(&format!("devices/system/cpu/cpu{cpu}/{name}"), text);
        }
        self
    }

    fn read(&self) -> Topology {
        let mut topology = Topology::new();
        topology.read(self.0.to_str().unwrap().as_bytes());
        topology
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The classes of all CPUs in one string: `00001111`.
fn classes(topology: &Topology) -> String {
    topology.online().map(|(_, cpu)| char::from(b'0' + cpu.class.0)).collect()
}

fn capacities(topology: &Topology) -> Vec<u16> {
    topology.online().map(|(_, cpu)| cpu.capacity).collect()
}

/// Two big cores with two threads each, two little cores.
fn intel(name: &str) -> Machine {
    Machine::new(name, 6)
        .file("devices/cpu_core/cpus", "0-3\n")
        .file("devices/cpu_atom/cpus", "4-5\n")
        .file("devices/system/cpu/smt/active", "1\n")
        .cpus(0..2, "topology/thread_siblings_list", "0-1\n")
        .cpus(2..4, "topology/thread_siblings_list", "2-3\n")
        .cpus(4..5, "topology/thread_siblings_list", "4\n")
        .cpus(5..6, "topology/thread_siblings_list", "5\n")
        .cpus(0..6, "cache/index3/shared_cpu_list", "0-5\n")
        .cpus(0..2, "cpufreq/cpuinfo_max_freq", "5200000\n")
        .cpus(2..4, "cpufreq/cpuinfo_max_freq", "5100000\n")
        .cpus(4..6, "cpufreq/cpuinfo_max_freq", "3900000\n")
}

fn plain(name: &str, cpus: usize) -> Machine {
    Machine::new(name, cpus)
}

#[test]
fn intel_hybrid_is_told_by_its_counters() {
    let topology = intel("intel").read();
    assert_eq!(classes(&topology), "000011");
    assert_eq!(capacities(&topology), [1024, 1024, 1004, 1004, 768, 768]);
    let cpu = topology.cpu(4).unwrap();
    assert_eq!(
        (cpu.class_source, cpu.capacity_source),
        (Source::HybridCounters, Source::MaxFrequency)
    );
    assert_eq!((cpu.domain, cpu.domain_source), (0, DomainSource::LastLevelCache));
    let siblings: Vec<_> = topology.online().map(|(_, cpu)| cpu.sibling).collect();
    assert_eq!(siblings, [1, 0, 3, 2, 4, 5]);
    assert_eq!(["big", "little"], [0, 1].map(|rank| topology.class_name(Class(rank))));
}

#[test]
fn arm_with_three_classes_is_told_by_capacity() {
    let topology = plain("arm", 8)
        .cpus(0..4, "cpu_capacity", "325\n")
        .cpus(4..7, "cpu_capacity", "844\n")
        .cpus(7..8, "cpu_capacity", "1024\n")
        .cpus(0..8, "cache/index2/shared_cpu_list", "0-7\n")
        .read();
    assert_eq!(classes(&topology), "22221110");
    assert_eq!(capacities(&topology)[3..], [325, 844, 844, 844, 1024]);
    assert!(topology.online().all(|(_, cpu)| cpu.class_source == Source::CpuCapacity));
    assert_eq!(topology.class_name(Class(1)), "mid");
    assert!(topology.is_hybrid());
}

#[test]
fn apple_clusters_are_domains() {
    let topology = plain("apple", 8)
        .cpus(0..4, "cpu_capacity", "459\n")
        .cpus(4..8, "cpu_capacity", "1024\n")
        .cpus(0..4, "cache/index2/shared_cpu_list", "0-3\n")
        .cpus(4..8, "cache/index2/shared_cpu_list", "4-7\n")
        .read();
    assert_eq!(classes(&topology), "11110000");
    let domains: Vec<_> = topology.online().map(|(_, cpu)| cpu.domain).collect();
    assert_eq!(domains, [0, 0, 0, 0, 1, 1, 1, 1]);
}

#[test]
fn dense_cores_are_told_by_firmware_and_favoured_cores_are_no_class() {
    let topology = plain("cppc", 4)
        .cpus(0..4, "cpu_capacity", "1024\n")
        .cpus(0..1, "acpi_cppc/highest_perf", "196\n")
        .cpus(1..2, "acpi_cppc/highest_perf", "181\n")
        .cpus(2..4, "acpi_cppc/highest_perf", "132\n")
        .read();
    assert_eq!(classes(&topology), "0011");
    assert_eq!(topology.cpu(3).unwrap().class_source, Source::Cppc);
    assert_eq!(capacities(&topology), [1024, 945, 689, 689]);
}

#[test]
fn frequency_is_the_last_resort() {
    let topology = plain("frequency", 4)
        .cpus(0..2, "cpufreq/cpuinfo_max_freq", "2000000\n")
        .cpus(2..4, "cpufreq/cpuinfo_max_freq", "3000000\n")
        .read();
    assert_eq!(classes(&topology), "1100");
    assert_eq!(topology.cpu(0).unwrap().class_source, Source::MaxFrequency);
}

#[test]
fn plain_machine_has_one_class_and_nodes_for_domains() {
    let topology = plain("plain", 4)
        .file("devices/system/node/online", "0-1\n")
        .file("devices/system/node/node0/cpulist", "0,2\n")
        .file("devices/system/node/node1/cpulist", "1,3\n")
        .read();
    assert_eq!(classes(&topology), "0000");
    assert_eq!(topology.classes(), 1);
    let cpu = topology.cpu(3).unwrap();
    assert_eq!((cpu.node, cpu.domain, cpu.domain_source), (1, 1, DomainSource::Node));
    assert_eq!(cpu.class_source, Source::AllEqual);
}

#[test]
fn one_cpu_without_a_figure_makes_the_source_useless() {
    let topology = plain("gap", 2).cpus(0..1, "cpu_capacity", "512\n").read();
    assert_eq!(classes(&topology), "00");
    assert_eq!(capacities(&topology), [1024, 1024]);
}

#[test]
fn cpus_that_are_off_are_left_out() {
    let machine = plain("offline", 4).file("devices/system/cpu/online", "0,2-3\n");
    let topology = machine.read();
    assert_eq!(topology.online().map(|(cpu, _)| cpu).collect::<Vec<_>>(), [0, 2, 3]);
    assert_eq!(topology.cpu(1), None);
}

#[test]
fn machine_without_sysfs_has_one_cpu() {
    let mut topology = Topology::new();
    topology.read(b"/nonexistent");
    assert_eq!(classes(&topology), "0");
}

#[test]
fn nothing_is_guessed_without_descriptors() {
    let mut topology = Topology::new();
    let refused = || !topology.read(b"/sys") && online_hash().is_none();
    assert!(crate::file::without_descriptors(refused));
}

#[test]
fn this_machine_can_be_read() {
    let mut topology = Topology::new();
    assert!(topology.read(b"/sys"));
    let parallelism = std::thread::available_parallelism().unwrap().get();
    assert!(topology.online().count() >= parallelism);
    assert!(topology.online().any(|(_, cpu)| cpu.capacity == FULL_CAPACITY));
    assert!(topology.online().all(|(_, cpu)| usize::from(cpu.class.0) < topology.classes()));
}

#[test]
fn user_may_override_the_classes() {
    let mut topology = intel("override").read();
    topology.set("fast:0-1, mid:2-3,slow:4,5").unwrap();
    assert_eq!(classes(&topology), "001122");
    assert_eq!(["fast", "mid", "slow"], [0, 1, 2].map(|rank| topology.class_name(Class(rank))));
    let cpu = topology.cpu(5).unwrap();
    assert_eq!((cpu.class_source, cpu.capacity_source), (Source::User, Source::MaxFrequency));
    topology.set("big:0-5").unwrap();
    assert_eq!((topology.classes(), topology.class_name(Class(1))), (1, "mid1"));
}

#[test]
fn bad_override_names_its_piece_and_changes_nothing() {
    use SpecProblem as P;
    let mut topology = intel("bad").read();
    let before = classes(&topology);
    let cases: &[(&str, &str, SpecProblem)] = &[
        ("", "", P::Empty),
        ("0-5", "0-5", P::NoClass),
        (":0-5", ":0-5", P::NoName),
        ("b!g:0-5", "b!g", P::BadName),
        ("sixteen-letters-:0-5", "sixteen-letters-", P::BadName),
        ("big:0,little:1,big:2-5", "big", P::NameTwice),
        ("a:0,b:1,c:2,d:3,e:4,f:5,g:5,h:5,i:5", "g:5", P::CpuTwice(5)),
        ("little:0-3,big:4-5", "big", P::WrongOrder),
        ("big:,little:0-5", "big:", P::NotACpu),
        ("big:0-3,little:4-x", "little:4-x", P::NotACpu),
        ("big:0-3,little:4-1024", "little:4-1024", P::NotACpu),
        ("big:3-0,little:4-5", "big:3-0", P::Backwards),
        ("big:0-3,little:4-7", "little:4-7", P::UnknownCpu(6)),
        ("big:0-3,little:3-5", "little:3-5", P::CpuTwice(3)),
        ("big:0-3,little:4", "big:0-3,little:4", P::CpuMissing(5)),
    ];
    for &(spec, piece, problem) in cases {
        assert_eq!(topology.set(spec), Err(SpecError { piece, problem }), "{spec}");
        assert_eq!(classes(&topology), before);
    }
    let error = topology.set("big:0-3,little:4-7").unwrap_err();
    assert_eq!(format!("{error}"), "'little:4-7': this machine has no cpu 6");
}

#[test]
fn emulated_classes_have_factors() {
    let mut topology = intel("factors").read();
    let factors = topology.set_emulated("big:0-1,mid:2-3x1.8,little:4x3.75,5").unwrap();
    assert_eq!(
        factors[..4].iter().map(|f| f.thousandths()).collect::<Vec<_>>(),
        [1000, 1800, 3750, 1000]
    );
    assert_eq!(classes(&topology), "001122");
    let shown: Vec<_> = factors[..3].iter().map(|factor| format!("{factor}")).collect();
    assert_eq!(shown, ["1", "1.8", "3.75"]);
    assert_eq!(
        topology.set_emulated("a:0-5x1.005").map(|f| format!("{}", f[0])),
        Ok("1.005".into())
    );
    assert!(topology.set_emulated("big:0-3x1,little:4-5x100").is_ok());
}

#[test]
fn bad_factor_names_its_piece_and_changes_nothing() {
    use SpecProblem as P;
    let mut topology = intel("bad-factor").read();
    let before = classes(&topology);
    for factor in
        ["", "0", "0.9", "101", "100.001", "2.", ".5", "2.0001", "-2", "+2", "2x2", "1e1", "x"]
    {
        let spec = format!("big:0-3,little:4-5x{factor}");
        let error = topology.set_emulated(&spec).unwrap_err();
        assert_eq!(error.problem, P::BadFactor, "{factor}");
        assert_eq!(error.piece, format!("little:4-5x{factor}"));
    }
    let cases: &[(&str, &str, SpecProblem)] = &[
        ("big:0-3x2,little:4-5x3", "big:0-3x2", P::BigIsSlowed),
        ("big:0-3,little:4x3,5x2", "5x2", P::FactorTwice),
        ("a:0-1x2,b:2-5", "a:0-1x2,b:2-5", P::FactorFalls),
        ("big:0-3,little:x3", "little:x3", P::NotACpu),
        ("big:0-3,little:4-7x3", "little:4-7x3", P::UnknownCpu(6)),
    ];
    for &(spec, piece, problem) in cases {
        assert_eq!(topology.set_emulated(spec), Err(SpecError { piece, problem }), "{spec}");
    }
    let unwanted = SpecError { piece: "little:4-5x3", problem: P::FactorUnwanted };
    assert_eq!(topology.set("big:0-3,little:4-5x3"), Err(unwanted));
    assert_eq!(classes(&topology), before);
}

#[test]
fn more_classes_than_the_table_holds_are_refused() {
    let mut topology = plain("nine", 9).read();
    let error = topology.set("a:0,b:1,c:2,d:3,e:4,f:5,g:6,h:7,i:8").unwrap_err();
    assert_eq!((error.piece, error.problem), ("i", SpecProblem::TooManyClasses));
}

#[test]
fn lists_are_the_kernels() {
    let list =
        |text: &str| CpuSet::parse(text.as_bytes()).map(|set| set.iter().collect::<Vec<_>>());
    assert_eq!(list("0-2,5\n").unwrap(), [0, 1, 2, 5]);
    assert_eq!(list("\n").unwrap(), [0; 0]);
    assert_eq!(list("1022-4000000000\n").unwrap(), [1022, 1023]);
    for bad in ["x", "3-1", "1,,2", "-1"] {
        assert_eq!(list(bad), None, "{bad}");
    }
}
