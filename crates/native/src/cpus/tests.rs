//! Tests of `cpus`.

use super::*;
use std::{ffi::CString, format, fs, path::PathBuf};

struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let root =
            std::env::temp_dir().join(format!("lockwright-cpus-{name}-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn quota(&self) -> Option<Quota> {
        let path = |name| CString::new(self.0.join(name).to_str().unwrap()).unwrap();
        let (membership, mount) = (path("self"), path("mount"));
        quota(&membership, mount.as_bytes(), &mut [0; TEXT]).unwrap()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn some(time_us: u32, period_us: u32) -> Option<Quota> {
    Some(Quota { time_us, period_us })
}

#[test]
fn quota_counts_a_part_of_a_cpu_as_one() {
    assert_eq!(parse_max(b"150000 100000\n").unwrap().cpus(), 2);
    assert_eq!(parse_max(b"200000 100000\n").unwrap().cpus(), 2);
    assert_eq!(parse_max(b"1000 100000\n").unwrap().cpus(), 1);
    for none in [&b"max 100000\n"[..], b"", b"5", b"0 100000", b"5 0", b"-1 5"] {
        assert_eq!(parse_max(none), None, "{none:?}");
    }
}

#[test]
fn only_lines_about_cpu_time_count() {
    let group = |unified, path: &'static [u8]| Some(CpuGroup { unified, path });
    assert_eq!(CpuGroup::parse(b"0::/a/b"), group(true, b"/a/b"));
    assert_eq!(CpuGroup::parse(b"4:cpu,cpuacct:/d:e"), group(false, b"/d:e"));
    for other in [&b"3:cpuset:/x"[..], b"1:name=systemd:/", b"2:cpuacct:/", b"", b"x"] {
        assert_eq!(CpuGroup::parse(other), None, "{other:?}");
    }
}

#[test]
fn tightest_group_up_to_the_root_wins() {
    let tree = Tree::new("v2");
    tree.file("self", "0::/slice/unit\n").file("mount/slice/unit/cpu.max", "max 100000\n");
    assert_eq!(tree.quota(), None);
    tree.file("mount/slice/cpu.max", "300000 100000\n");
    assert_eq!(tree.quota(), some(300_000, 100_000));
    tree.file("mount/cpu.max", "100000 50000\n");
    assert_eq!(tree.quota(), some(100_000, 50_000));
    tree.file("mount/slice/unit/cpu.max", "250000 100000\n");
    assert_eq!(tree.quota(), some(100_000, 50_000));
}

#[test]
fn version_1_and_a_container_without_its_own_namespace_are_understood() {
    let tree = Tree::new("v1");
    tree.file("self", "4:cpu,cpuacct:/docker/0123\n0::/\n")
        .file("mount/cpu/cpu.cfs_quota_us", "-1\n")
        .file("mount/cpu/cpu.cfs_period_us", "100000\n");
    assert_eq!(tree.quota(), None);
    tree.file("mount/cpu/cpu.cfs_quota_us", "50000\n");
    assert_eq!(tree.quota(), some(50_000, 100_000));
    tree.file("mount/unified/cpu.max", "10000 100000\n");
    assert_eq!(tree.quota(), some(10_000, 100_000));
}

#[test]
fn affinity_and_quota_bound_each_other() {
    let usable = |affinity, quota| Usable { affinity, quota }.cpus();
    assert_eq!(usable(8, None), 8);
    assert_eq!(usable(8, some(150_000, 100_000)), 2);
    assert_eq!(usable(1, some(400_000, 100_000)), 1);
    assert_eq!(usable(0, None), 1);
    assert_eq!(usable(0, some(400_000, 100_000)), 4);
}

#[test]
fn reach_is_not_guessed_without_descriptors() {
    let mut room = Room::new();
    assert!(Reach::of_process(&mut room).is_some_and(|reach| reach.cpus > 0));
    assert!(crate::file::without_descriptors(|| Reach::of_process(&mut room).is_none()));
}

#[test]
fn masks_are_read_as_the_kernel_writes_them() {
    let mut mask = Mask::NONE;
    mask.parse(b"5,00000001");
    assert_eq!((mask.count(), mask.has(0), mask.has(32), mask.has(34)), (3, true, true, true));
    mask.keep(&CpuSet::of(&[0, 34, 35]));
    assert_eq!((mask.count(), mask.has(32)), (2, false));
    let mut other = Mask::NONE;
    other.parse(b"1");
    assert!(other.is_within(&mask) && !mask.is_within(&other) && mask.hash() != other.hash());
    let status = b"Cpus_allowed_list:\t0-1\nCpus_allowed:\t3\n";
    assert_eq!(status_line(status, b"Cpus_allowed:"), Some(&b"3"[..]));
    assert_eq!(status_line(status, b"Seccomp:"), None);
}

#[test]
fn files_alone_tell_what_system_calls_do() {
    let (files, calls) = (Reach::by_files(&mut Room::new()), Reach::of_process(&mut Room::new()));
    assert!(files.is_some());
    assert_eq!(files.unwrap().cpus, calls.unwrap().cpus);
    assert!(crate::file::without_descriptors(|| Reach::by_files(&mut Room::new()).is_none()));
}

#[test]
fn a_first_thread_that_is_bound_is_a_change() {
    // In a child: its one thread is its first one.
    let mut room = Room::new();
    let mut status = 0;
    // SAFETY: the child of a program with threads makes system calls alone.
    unsafe {
        match libc::fork() {
            0 => {
                let known = Reach::of_process(&mut room).is_some();
                let before = Reach::may_have_changed(&mut room);
                let mut one: libc::cpu_set_t = core::mem::zeroed();
                libc::CPU_SET(libc::sched_getcpu() as usize, &mut one);
                libc::sched_setaffinity(0, size_of_val(&one), &one);
                let after = Reach::may_have_changed(&mut room) || usable() > 1;
                let again = Reach::of_process(&mut room).is_some_and(|reach| reach.cpus == 1);
                let quiet = !Reach::may_have_changed(&mut room);
                libc::_exit(if known && !before && after && again && quiet { 7 } else { 1 })
            }
            child => assert_eq!(libc::waitpid(child, &mut status, 0), child),
        }
    }
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
}

#[test]
fn affinity_follows_the_mask() {
    // On a thread of its own: the mask is the thread's.
    std::thread::spawn(|| {
        // SAFETY: plain data, zero is a valid value.
        let mut one: libc::cpu_set_t = unsafe { core::mem::zeroed() };
        // SAFETY: asks for and sets our own thread's mask, with the type's own size.
        unsafe {
            let cpu = libc::sched_getcpu();
            libc::CPU_SET(cpu as usize, &mut one);
            assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &one), 0);
        }
        assert_eq!(Usable::read().affinity, 1);
        assert_eq!(usable(), 1);
    })
    .join()
    .unwrap();
}
