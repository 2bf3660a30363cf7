//! A server: it is started for each run, and what is measured is a load that another command puts on it.

use super::run::Desk;
use crate::hints::Failure;
use crate::supervise::{End, supervise};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the server of the last run may still answer.
const GONE: Duration = Duration::from_secs(3);

/// How long a server may take until it is ready.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How one sees that it is ready.
#[derive(Debug)]
pub(crate) enum Ready {
    /// Something accepts connections at this port of the machine.
    Port(u16),
    /// This command of the shell ends with 0.
    Command(String),
}

/// A load, and when it may begin.
#[derive(Debug)]
pub(crate) struct Server {
    /// A command of the shell.
    pub(crate) load: String,
    pub(crate) ready: Ready,
}

impl Ready {
    /// Is it now? A command has `left` to say so. `None`: interrupted.
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

    /// For messages.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Port(port) => format!("nothing answers on port {port}"),
            Self::Command(command) => format!("'{command}' does not succeed"),
        }
    }

    /// Before the server is started nobody should answer: we would measure another one. The last one may still be going.
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

/// Does anybody accept connections there?
fn answers(port: u16) -> bool {
    let places: [SocketAddr; 2] =
        [(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()];
    let limit = Duration::from_millis(500);
    places.iter().any(|place| match TcpStream::connect_timeout(place, limit) {
        // To a port that nobody listens at one may be connected by chance: with oneself.
        Ok(made) => made.local_addr().ok() != made.peer_addr().ok(),
        Err(_) => false,
    })
}

/// A command of the shell.
pub(crate) fn shell(command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]);
    shell
}
