//! Which threads get which tags.

use super::remote::RemotePlace;
use crate::hints::Failure;
use lockwright_observer::process::{Process, proc_text};
use regex_lite::Regex;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// What to tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tagging {
    /// This thread, with this number.
    Thread(u64, u64),
    /// The threads whose names match this pattern, with this number.
    Named(String, u64),
    /// Each thread, with the number of its cgroup.
    Cgroups,
}

/// Tags threads. Returns how many got each tag.
pub(crate) fn tag(process: &Process, what: &Tagging) -> Result<BTreeMap<u64, usize>, Failure> {
    let pid = process.pid;
    let threads = process.threads();
    let mut all = Vec::new();
    match what {
        Tagging::Thread(tid, value) => {
            let known = threads.iter().find(|known| u64::try_from(**known) == Ok(*tid));
            let Some(&known) = known else {
                return Err(Failure::new(format!("process {pid} has no thread {tid}"))
                    .hint(format!("ps -L -o tid,comm -p {pid}")));
            };
            all.push((known, *value));
        }
        Tagging::Named(pattern, value) => {
            let Some(wanted) = compiled(pattern) else {
                let bytes = pattern.len();
                return Err(Failure::new(format!("a pattern of {bytes} bytes is too long"))
                    .hint(format!("a thread's name has 15 bytes: ps -L -o tid,comm -p {pid}")));
            };
            let matching = threads.into_iter().filter(|tid| wanted.is_match(&name(pid, *tid)));
            all.extend(matching.map(|tid| (tid, *value)));
            if all.is_empty() {
                return Err(Failure::new(format!("process {pid} has no thread named '{pattern}'"))
                    .hint(format!("ps -L -o tid,comm -p {pid}")));
            }
        }
        Tagging::Cgroups => {
            for tid in threads {
                // A thread that has just ended has none.
                if let Some(id) = cgroup(pid, tid) {
                    all.push((tid, id));
                }
            }
            if all.is_empty() {
                return Err(Failure::new(format!("the cgroups of process {pid} can't be read"))
                    .hint(format!("cat /proc/{pid}/cgroup; ls /sys/fs/cgroup")));
            }
        }
    }
    let programs = RemotePlace::find(process)?.open(process)?;
    let mut tagged = BTreeMap::new();
    let threads = process.threads();
    let exists = |tid: u32| threads.contains(&tid.cast_signed());
    for (tid, value) in all {
        if !programs.control.tag(tid.cast_unsigned(), value, exists)? {
            return Err(Failure::new(format!(
                "no room for a tag of thread {tid}: too many threads have one"
            ))
            .hint(format!("a tag of 0 makes room: lockwright policy tag {tid} 0 --pid {pid}")));
        }
        *tagged.entry(value).or_default() += 1;
    }
    Ok(tagged)
}

fn name(pid: libc::pid_t, tid: libc::pid_t) -> String {
    let name = proc_text(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    name.trim_end_matches('\n').to_owned()
}

/// The number of a thread's cgroup: the inode of its folder, as `bpf_get_current_cgroup_id` has it; its lower 32 bits, since the
/// upper ones are a tenant's weight (policies/tenants.bpf.c).
fn cgroup(pid: libc::pid_t, tid: libc::pid_t) -> Option<u64> {
    let text = proc_text(format!("/proc/{pid}/task/{tid}/cgroup")).ok()?;
    let path = path_of(&text)?;
    // Where version 1 and 2 are both in use, version 2 is elsewhere.
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let about = roots.iter().find_map(|root| fs::metadata(format!("{root}{path}")).ok());
    about.map(|about| about.ino() & u64::from(u32::MAX))
}

/// The path in the hierarchy of version 2.
fn path_of(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

/// What matches a name: `*` stands for any number of characters, `?` for one. `None`: the pattern is too long, far beyond any name.
fn compiled(pattern: &str) -> Option<Regex> {
    let pattern = regex_lite::escape(pattern).replace(r"\*", ".*").replace(r"\?", ".");
    Regex::new(&format!("(?s)^{pattern}$")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names() {
        for (pattern, name) in
            [("work*", "worker/1"), ("*", ""), ("a?c*e", "abcdde"), ("x", "x"), ("*b*b", "abab")]
        {
            assert!(compiled(pattern).unwrap().is_match(name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("work", "worker"), ("", "a"), ("a?c", "ac"), ("*b", "ba"), ("a.c", "abc")]
        {
            assert!(!compiled(pattern).unwrap().is_match(name), "{pattern} {name}");
        }
        // The longest argument of a command has 128 KiB.
        assert!(compiled(&"?".repeat(127 << 10)).is_some());
        assert!(compiled(&"?".repeat(1 << 20)).is_none());
    }

    #[test]
    fn version_2_names_one_path() {
        let text = "2:cpu:/a\n0::/user.slice/b.scope\n";
        assert_eq!(path_of(text), Some("/user.slice/b.scope"));
        assert_eq!(path_of("2:cpu:/a\n"), None);
    }
}
