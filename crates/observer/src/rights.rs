//! Why a process may not be looked into, and who may: the hint for each command that needs a debugger's rights.

use lockwright_symbols::proc_text;

/// The bit of the kernel's `CAP_SYS_PTRACE`.
const PTRACE: u32 = 19;

/// Who wants to look into a process, and whose.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    is_root: bool,
    /// Has this command the right to debug every process?
    has_ptrace: bool,
    /// Is it a process of this user's?
    is_own: bool,
    /// `kernel.yama.ptrace_scope`; 0 without Yama.
    scope: u32,
}

/// What to do about a process that we may not reach into. To root it never suggests sudo.
pub fn hint(pid: libc::pid_t) -> &'static str {
    // SAFETY: the call has no preconditions and can't fail.
    let user = unsafe { libc::geteuid() };
    let status = |id: &str| proc_text(format!("/proc/{id}/status")).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        value.split_whitespace().next().map(str::to_owned)
    };
    let rights = field(&status("self"), "CapEff:");
    let rights = rights.and_then(|all| u64::from_str_radix(&all, 16).ok()).unwrap_or(0);
    let scope = proc_text("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    Attempt {
        is_root: user == 0,
        has_ptrace: rights & (1 << PTRACE) != 0,
        is_own: field(&status(&pid.to_string()), "Uid:") == Some(user.to_string()),
        scope: scope.trim().parse().unwrap_or(0),
    }
    .hint()
}

impl Attempt {
    fn hint(self) -> &'static str {
        match self {
            Self { scope: 3.., .. } => {
                "nobody may until the machine boots with kernel.yama.ptrace_scope below 3"
            }
            Self { is_root: true, has_ptrace: false, .. } => {
                "root may not here; in a container: docker run --cap-add SYS_PTRACE ..."
            }
            Self { is_root: true, .. } => {
                "not even root may: a sandbox or a security module protects it; see dmesg"
            }
            Self { is_own: true, scope: 1 | 2, .. } => "sudo sysctl kernel.yama.ptrace_scope=0",
            _ => "run it as the process's user, or with sudo",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_told_to_use_sudo() {
        for bits in 0..32 {
            let [has_ptrace, is_own] = [bits & 1 != 0, bits & 2 != 0];
            let attempt = Attempt { is_root: true, has_ptrace, is_own, scope: bits / 4 };
            assert!(!attempt.hint().contains("sudo"), "{attempt:?}");
        }
    }

    #[test]
    fn each_obstacle_has_its_own_way_out() {
        let user = Attempt { is_root: false, has_ptrace: false, is_own: true, scope: 1 };
        assert_eq!(user.hint(), "sudo sysctl kernel.yama.ptrace_scope=0");
        let other = Attempt { is_own: false, ..user };
        assert_eq!(other.hint(), "run it as the process's user, or with sudo");
        assert!(Attempt { scope: 3, ..user }.hint().starts_with("nobody may"));
        assert!(Attempt { is_root: true, ..user }.hint().contains("--cap-add SYS_PTRACE"));
    }
}
