//! The CPUs that we may use, as the simulator groups them.

use crate::Error;
use lockwright_native::topology::Topology;

/// The variable that says which cores are big, as everywhere in this project.
const VARIABLE: &str = "LOCKWRIGHT_TOPOLOGY";
/// The simulator's limit.
const MOST: usize = 128;

/// A class of cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) name: String,
    /// Hardware threads of each of its cores.
    pub(crate) smt: u32,
}

/// Cores of one class that share a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cluster {
    /// Index of the class.
    pub(crate) class: usize,
    /// NUMA node.
    pub(crate) node: u16,
    /// The hardware threads of each core.
    pub(crate) cores: Vec<Vec<usize>>,
}

/// The machine, as far as we may use it. Cores of the fastest class come first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) classes: Vec<Class>,
    pub(crate) clusters: Vec<Cluster>,
    /// The source of the classes.
    pub(crate) classes_from: String,
    /// The source of the information which cores share a cache.
    pub(crate) clusters_from: String,
}

impl Layout {
    /// The layout of this machine.
    pub(crate) fn here() -> Result<Self, Error> {
        let mut topology = Box::new(Topology::new());
        topology.read(b"/sys");
        topology.ask_each_cpu();
        if let Some(spec) = std::env::var(VARIABLE).ok().filter(|spec| !spec.is_empty()) {
            topology
                .set(&spec)
                .map_err(|why| Error::Topology { why: why.to_string(), spec: spec.clone() })?;
        }
        Self::of(&topology, &lockwright_bench::cpus())
    }

    fn of(topology: &Topology, cpus: &[usize]) -> Result<Self, Error> {
        if cpus.len() > MOST {
            return Err(Error::TooManyCpus { cpus: cpus.len(), most: MOST });
        }
        let mut clusters = Vec::<(Cluster, u16)>::new();
        let mut sources = ("all equal", "all equal");
        let known = |&cpu: &usize| Some((cpu, topology.cpu(cpu)?));
        for (number, cpu) in cpus.iter().filter_map(known) {
            sources = (cpu.class_source.name(), cpu.domain_source.name());
            let class = usize::from(cpu.class.0);
            let of_cpu = |(cluster, domain): &&mut (Cluster, u16)| {
                cluster.class == class && *domain == cpu.domain
            };
            let cluster = match clusters.iter_mut().find(of_cpu) {
                Some((cluster, _)) => cluster,
                None => {
                    clusters
                        .push((Cluster { class, node: cpu.node, cores: Vec::new() }, cpu.domain));
                    &mut clusters.last_mut().expect("just pushed").0
                }
            };
            let core = cluster
                .cores
                .iter_mut()
                .find(|core| core.iter().any(|&thread| are_siblings(topology, thread, number)));
            match core {
                Some(core) => core.push(number),
                None => cluster.cores.push(vec![number]),
            }
        }
        clusters.sort_by_key(|(cluster, domain)| (cluster.class, *domain));
        let mut clusters: Vec<_> = clusters.into_iter().map(|(cluster, _)| cluster).collect();
        // Classes that none of our CPUs belongs to don't count.
        let mut ranks: Vec<_> = clusters.iter().map(|cluster| cluster.class).collect();
        ranks.dedup();
        let mut classes = Vec::new();
        for (number, &rank) in ranks.iter().enumerate() {
            let members = || clusters.iter().filter(move |cluster| cluster.class == rank);
            let smt = members().flat_map(|cluster| &cluster.cores).map(Vec::len).min().unwrap_or(1);
            let name =
                topology.class_name(lockwright_native::topology::Class(rank as u8)).to_owned();
            classes.push(Class { name, smt: smt as u32 });
            for cluster in clusters.iter_mut().filter(|cluster| cluster.class == rank) {
                cluster.cores.iter_mut().for_each(|core| core.truncate(smt));
                cluster.class = number;
            }
        }
        if clusters.is_empty() {
            return Err(Error::NoCpu);
        }
        let (class, cluster) = sources;
        Ok(Self { classes, clusters, classes_from: class.into(), clusters_from: cluster.into() })
    }

    /// One hardware thread of each core.
    pub(crate) fn cores(&self) -> Vec<usize> {
        self.clusters.iter().flat_map(|cluster| cluster.cores.iter().map(|core| core[0])).collect()
    }

    /// The core that stands for a class.
    pub(crate) fn core_of(&self, class: usize) -> usize {
        let cluster = self.clusters.iter().find(|cluster| cluster.class == class);
        cluster.map_or(0, |cluster| cluster.cores[0][0])
    }

    /// The two CPUs that stand for a pair of clusters: the one that asks, and the one that has the line. `None` for a
    /// cluster of one core with itself.
    pub(crate) fn pair(&self, to: usize, from: usize) -> Option<(usize, usize)> {
        let first = self.clusters[to].cores.first()?[0];
        let last = self.clusters[from].cores.last()?[0];
        (first != last).then_some((first, last))
    }

    /// The two CPUs for most measurements: two cores near each other, or else two threads of one core, or else none.
    pub(crate) fn main_pair(&self) -> Option<(usize, usize)> {
        self.pair(0, 0)
            .or_else(|| self.pair(0, self.clusters.len() - 1))
            .or_else(|| self.siblings())
    }

    /// Two hardware threads of a core.
    pub(crate) fn siblings(&self) -> Option<(usize, usize)> {
        let mut cores = self.clusters.iter().flat_map(|cluster| &cluster.cores);
        cores.find_map(|core| core.get(1).map(|&other| (core[0], other)))
    }
}

fn are_siblings(topology: &Topology, one: usize, other: usize) -> bool {
    let mut at = one;
    // In rotation, at most once through all threads of a core.
    for _ in 0..8 {
        at = topology.cpu(at).map_or(one, |cpu| usize::from(cpu.sibling));
        if at == other {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Two cores of two threads each and four small cores, as the files of an Intel hybrid processor say it.
    fn hybrid(cpus: &[usize]) -> Layout {
        let sysfs = tempfile::tempdir().unwrap();
        let write = |path: String, text: &str| {
            let path = sysfs.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("devices/system/cpu/online".into(), "0-7\n");
        write("devices/cpu_core/cpus".into(), "0-3\n");
        write("devices/cpu_atom/cpus".into(), "4-7\n");
        for cpu in 0..8 {
            let siblings = ["0-1", "0-1", "2-3", "2-3", "4", "5", "6", "7"][cpu];
            let folder = format!("devices/system/cpu/cpu{cpu}");
            write(format!("{folder}/topology/thread_siblings_list"), siblings);
            write(format!("{folder}/cache/index3/shared_cpu_list"), "0-7");
        }
        let mut topology = Box::new(Topology::new());
        topology.read(sysfs.path().to_str().unwrap().as_bytes());
        Layout::of(&topology, cpus).unwrap()
    }

    #[test]
    fn a_hybrid_has_a_cluster_for_each_class() {
        let layout = hybrid(&[0, 1, 2, 3, 4, 5, 6, 7]);
        let class = |name: &str, smt| Class { name: name.into(), smt };
        assert_eq!(layout.classes, [class("big", 2), class("little", 1)]);
        assert_eq!(layout.clusters[0].cores, [[0, 1], [2, 3]]);
        assert_eq!(layout.clusters[1].cores, [[4], [5], [6], [7]]);
        assert_eq!((layout.core_of(0), layout.core_of(1)), (0, 4));
        assert_eq!(layout.cores(), [0, 2, 4, 5, 6, 7]);
        assert_eq!((layout.main_pair(), layout.siblings()), (Some((0, 2)), Some((0, 1))));
        assert_eq!((layout.pair(1, 0), layout.pair(1, 1)), (Some((4, 2)), Some((4, 7))));
    }

    #[test]
    fn cpus_that_we_may_not_use_are_left_out() {
        // If only one thread of the second core is usable, each core counts as having one thread.
        let layout = hybrid(&[0, 1, 2, 7]);
        assert_eq!(layout.classes[0].smt, 1);
        assert_eq!((layout.cores(), layout.siblings()), (vec![0, 2, 7], None));
        let little = hybrid(&[5, 6]);
        assert_eq!((little.classes.len(), &*little.classes[0].name), (1, "little"));
        assert_eq!((little.clusters[0].class, little.main_pair()), (0, Some((5, 6))));
        let core = hybrid(&[0, 1]);
        assert_eq!((core.pair(0, 0), core.main_pair()), (None, Some((0, 1))));
        let one = hybrid(&[3]);
        assert_eq!((one.main_pair(), one.siblings(), one.cores()), (None, None, vec![3]));
    }

    #[test]
    fn too_many_cpus_are_refused() {
        let cpus: Vec<_> = (0..=MOST).collect();
        let refused = Layout::of(&Box::new(Topology::new()), &cpus).unwrap_err();
        assert!(refused.to_string().contains("129"), "{refused}");
        assert!(matches!(Layout::of(&Box::new(Topology::new()), &[]), Err(Error::NoCpu)));
    }
}
