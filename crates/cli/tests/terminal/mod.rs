//! Commands on a terminal.

use anyhow::{Result, ensure};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// The command on a terminal of its own; and that terminal's other end. `hangup`: what it does with SIGHUP.
pub(crate) fn on_a_terminal(
    mut command: Command,
    hangup: libc::sighandler_t,
) -> Result<(Child, File)> {
    // Not by `openpty`: other tests' children would inherit it.
    let master = File::options().read(true).write(true).open("/dev/ptmx")?;
    let (mut unlocked, mut number) = (0, 0);
    // SAFETY: a number that is read, and one that is written.
    let has_slave = unsafe {
        libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &mut unlocked) == 0
            && libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN, &mut number) == 0
    };
    ensure!(has_slave, "{}", std::io::Error::last_os_error());
    let slave = File::options().read(true).write(true).open(format!("/dev/pts/{number}"))?;
    command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
    // SAFETY: system calls only.
    unsafe {
        command.pre_exec(move || {
            libc::setsid();
            libc::ioctl(0, libc::TIOCSCTTY, 0);
            libc::signal(libc::SIGHUP, hangup);
            Ok(())
        });
    }
    Ok((command.spawn()?, master))
}
