//! Why the kernel can't be observed.

use aya::programs::ProgramError;
use aya::{BtfError, EbpfError};
use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// What is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// These capabilities are missing.
    Capabilities(Vec<&'static str>),
    /// We have the capabilities, but the kernel or a container's filter still refuses.
    Forbidden(String),
    /// The kernel doesn't describe its own types.
    NoTypes,
    /// The kernel lacks this tracepoint.
    NoTracepoint(String),
    /// Process ids here differ from the kernel's.
    ForeignIds,
    /// Something else, in the loader's or the kernel's words.
    Other(String),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capabilities(names) => {
                write!(f, "we lack {}", names.join(" and "))
            }
            Self::Forbidden(what) => {
                write!(f, "the kernel forbids it, whatever the privilege: {what}")
            }
            Self::NoTypes => {
                f.write_str("this kernel has no BTF: /sys/kernel/btf/vmlinux is missing")
            }
            Self::NoTracepoint(name) => write!(f, "this kernel has no tracepoint '{name}'"),
            Self::ForeignIds => {
                f.write_str("in this container process ids are not the kernel's own")
            }
            Self::Other(what) => f.write_str(what),
        }
    }
}

impl Error for Obstacle {}

impl Obstacle {
    /// A command or a condition that removes the obstacle. `command` is what the user tried.
    pub fn mend(&self, command: &str) -> String {
        match self {
            Self::Capabilities(_) => format!(
                "sudo {command}; or once: sudo setcap cap_bpf,cap_perfmon,cap_syslog+ep \"$(command -v lockwright)\""
            ),
            Self::Forbidden(_) => {
                "cat /sys/kernel/security/lockdown; in a container: --cap-add BPF --cap-add PERFMON --security-opt seccomp=unconfined".into()
            }
            Self::NoTypes => "zgrep DEBUG_INFO_BTF /proc/config.gz; the kernels of Debian 11, Ubuntu 20.10, Fedora 31 and later have it".into(),
            Self::NoTracepoint(_) => "Linux 5.19 or later has it: uname -r".into(),
            Self::ForeignIds => format!("on the host: sudo {command}; in Docker: --pid host"),
            Self::Other(_) => "uname -a, and this line, make a good bug report".into(),
        }
    }

    /// The obstacle behind a failed attempt.
    pub(crate) fn of(error: &(dyn Error + 'static)) -> Self {
        let refused =
            |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES));
        let mut words = Vec::new();
        let mut next = Some(error);
        while let Some(error) = next {
            next = error.source();
            if let Some(BtfError::UnknownBtfTypeName { type_name }) = error.downcast_ref() {
                let name = type_name.trim_start_matches("btf_trace_");
                return Self::NoTracepoint(name.to_owned());
            }
            // For a faulty program the verifier returns EACCES, and says why.
            if let Some(ProgramError::LoadError { io_error, verifier_log }) = error.downcast_ref() {
                let log = verifier_log.to_string();
                if log.trim().is_empty() && refused(io_error) {
                    return Self::missing().unwrap_or(Self::Forbidden("loading a program".into()));
                }
                let last = log.lines().rev().find(|line| !line.starts_with("processed"));
                return Self::Other(format!(
                    "the kernel does not accept our program: {}",
                    last.unwrap_or("no reason given")
                ));
            }
            if error.downcast_ref().is_some_and(refused) {
                let what = words.first().cloned().unwrap_or_else(|| error.to_string());
                return Self::missing().unwrap_or(Self::Forbidden(what));
            }
            words.push(error.to_string());
        }
        words.dedup();
        Self::Other(words.join(": "))
    }

    /// The capabilities that we lack, if any.
    pub(crate) fn missing() -> Option<Self> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let has = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        let has = u64::from_str_radix(has.trim(), 16).ok()?;
        let missing = lacking(has);
        (!missing.is_empty()).then_some(Self::Capabilities(missing))
    }

    /// Do process ids here differ from the kernel's?
    pub(crate) fn ids() -> Option<Self> {
        /// `PROC_PID_INIT_INO`.
        const FIRST: u64 = 0xeffffffc;
        let ours = fs::metadata("/proc/self/ns/pid").ok()?;
        (ours.ino() != FIRST).then_some(Self::ForeignIds)
    }
}

/// The capabilities that we need and that are not in this set.
fn lacking(has: u64) -> Vec<&'static str> {
    const SYS_ADMIN: u64 = 1 << 21;
    const NEEDED: [(&str, u64); 2] = [("CAP_BPF", 1 << 39), ("CAP_PERFMON", 1 << 38)];
    let lacks = |(_, bit): &&(&str, u64)| has & (bit | SYS_ADMIN) == 0;
    NEEDED.iter().filter(lacks).map(|(name, _)| *name).collect()
}

impl From<EbpfError> for Obstacle {
    fn from(error: EbpfError) -> Self {
        Self::of(&error)
    }
}

impl From<ProgramError> for Obstacle {
    fn from(error: ProgramError) -> Self {
        Self::of(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_that_are_missing_have_names() {
        assert_eq!(lacking(0), ["CAP_BPF", "CAP_PERFMON"]);
        assert_eq!(lacking(1 << 39), ["CAP_PERFMON"]);
        assert!(lacking(1 << 39 | 1 << 38).is_empty());
        assert!(lacking(1 << 21).is_empty(), "CAP_SYS_ADMIN stands for both");
        let both = Obstacle::Capabilities(lacking(0));
        assert_eq!(both.to_string(), "we lack CAP_BPF and CAP_PERFMON");
    }

    #[test]
    fn a_refusal_deep_inside_is_told() {
        let name = "waits".to_owned();
        let io_error = io::Error::from_raw_os_error(libc::EPERM);
        let error = EbpfError::MapError(aya::maps::MapError::CreateError { name, io_error });
        let obstacle = Obstacle::of(&error);
        assert!(matches!(obstacle, Obstacle::Capabilities(_) | Obstacle::Forbidden(_)));
        let unknown =
            BtfError::UnknownBtfTypeName { type_name: "btf_trace_contention_begin".into() };
        let obstacle = Obstacle::of(&EbpfError::BtfError(unknown));
        assert_eq!(obstacle, Obstacle::NoTracepoint("contention_begin".into()));
    }
}
