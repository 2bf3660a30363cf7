//! Servers: each run starts the server, and another command puts load on it, which is measured.

use super::desk::Desk;
use crate::hints::Failure;
use crate::supervise::{End, supervise};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the previous run's server may still answer.
const GONE: Duration = Duration::from_secs(3);

/// How long a server may take to become ready.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How to tell that the server is ready.
#[derive(Debug)]
pub(crate) enum Ready {
    /// Something accepts connections on this local port.
    Port(u16),
    /// This shell command succeeds.
    Command(String),
}

/// A load, and the condition for it to begin.
#[derive(Debug)]
pub(crate) struct Server {
    /// A shell command.
    pub(crate) load: String,
    pub(crate) ready: Ready,
}

impl Ready {
    /// Is the server ready now? A command has `left` to finish. `None`: interrupted.
    pub(crate) fn is_now(&self, left: Duration, desk: &Desk<'_>) -> Option<bool> {
        match self {
            Self::Port(port) => Some(answers(*port)),
            Self::Command(command) => {
                let mut shell = shell(command);
                shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                match supervise(&mut shell, Some(left), desk.watch, desk.bar).map(|it| it.end) {
                    Ok(End::Interrupted) => None,
                    Ok(End::Itself(status)) => Some(status.success()),
                    _ => Some(false),
                }
            }
        }
    }

    /// A description for messages.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Port(port) => format!("nothing answers on port {port}"),
            Self::Command(command) => format!("'{command}' does not succeed"),
        }
    }

    /// Checks that nothing answers before the server starts, so that we don't measure another server. The previous
    /// run's server may still be ending.
    pub(crate) fn check_nobody(&self) -> Result<(), Failure> {
        let Self::Port(port) = self else { return Ok(()) };
        let began = Instant::now();
        while answers(*port) {
            if began.elapsed() > GONE {
                return Err(Failure::new(format!("something answers on port {port} already"))
                    .hint(format!("to see which process: ss -ltnp 'sport = :{port}'")));
            }
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

/// Does anything accept connections there?
fn answers(port: u16) -> bool {
    let places: [SocketAddr; 2] =
        [(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()];
    let limit = Duration::from_millis(500);
    places.iter().any(|place| match TcpStream::connect_timeout(place, limit) {
        // Connecting to a port without a listener can succeed by chance: the socket connects to itself.
        Ok(made) => made.local_addr().ok() != made.peer_addr().ok(),
        Err(_) => false,
    })
}

/// Runs a command with the shell.
pub(crate) fn shell(command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]);
    shell
}
