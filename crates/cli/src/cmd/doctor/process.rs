//! `lockwright doctor PID`.

use super::said::DoctorReport;
use crate::hints::Failure;
use crate::{output, profile, standing};
use lockwright_observer::elf;
use lockwright_observer::mailbox::Remote;
use lockwright_observer::process::Process;
use lockwright_observer::sampler::outcome::outcome;
use lockwright_observer::sampler::sample::sample;
use lockwright_observer::sampler::target::Target;
use lockwright_observer::standing::Standing;
use lockwright_observer::whose::Whose;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How long a process is sampled.
const LOOK: Duration = Duration::from_secs(1);

/// Who waits now in a process, whose locks its threads wait for, and whether lockwright can reach them.
pub(super) fn main(pid: libc::pid_t) -> Result<ExitCode, Failure> {
    let target = Target::open(pid)?;
    let (pid, has_library) = (target.pid, target.has_library);
    let standing = Standing::of(pid)?;
    if !standing.is_empty() {
        output::print(&format!("{}\n", standing::text(&standing)))?;
    }
    let mut sampled = sample(target, LOOK, 99.0, |_| true);
    let (profile, _) = outcome(&mut sampled);
    let mut report = DoctorReport { text: profile::report::text(&profile) + "\n" };
    let program = elf::inspect(Path::new(&format!("/proc/{pid}/exe")));
    let program = program.map_err(|_| {
        Failure::new(format!("cannot read the program of process {pid}"))
            .hint(format!("ls -l /proc/{pid}/exe"))
    })?;
    report.program(&program, program.made_by());
    let serves = || Process::open(pid).and_then(|process| Remote::find(&process).map(drop));
    let served = has_library.then(serves);
    let own = profile.own_locks.first().filter(|_| profile.locks.is_empty());
    let (is_reachable, words, hint) = match program.obstacle() {
        _ if matches!(served, Some(Ok(()))) => {
            (true, "it runs under lockwright".to_owned(), format!("lockwright profile -p {pid}"))
        }
        _ if let Some(Err(failure)) = &served => {
            let words = format!("our library serves none of its locks: {}", failure.message());
            (false, words, failure.hint_or(format!("lockwright profile -p {pid} --sample")))
        }
        _ if program.go => {
            let words = format!("not reachable: {}", Whose::Go);
            (false, words, Whose::Go.advice().to_owned())
        }
        Some(obstacle) => {
            (false, format!("not reachable: {}", obstacle.reason()), obstacle.hint(&program.path))
        }
        None if own.is_some() => {
            let own = own.expect("just asked");
            (
                false,
                format!("its threads wait for {}, not for pthread's locks", own.name),
                own.advice.clone(),
            )
        }
        None => (
            true,
            "it runs on glibc's locks, or its own".to_owned(),
            format!("for other locks while it runs: lockwright attach {pid}"),
        ),
    };
    report.fact("verdict", words);
    report.fact("hint", hint);
    output::print(&report.text)?;
    Ok(if is_reachable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
