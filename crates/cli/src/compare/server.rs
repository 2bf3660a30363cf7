//! A server: it is started for each run, and what is measured is a load that another command puts on it.

use crate::hints::Failure;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

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
    pub(crate) fn is_now(&self) -> bool {
        match self {
            Self::Port(port) => {
                let places: [SocketAddr; 2] =
                    [(Ipv4Addr::LOCALHOST, *port).into(), (Ipv6Addr::LOCALHOST, *port).into()];
                let limit = Duration::from_millis(500);
                places.iter().any(|place| TcpStream::connect_timeout(place, limit).is_ok())
            }
            Self::Command(command) => {
                let mut shell = shell(command);
                shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                shell.status().is_ok_and(|status| status.success())
            }
        }
    }

    /// For messages.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Port(port) => format!("nothing answers at port {port}"),
            Self::Command(command) => format!("'{command}' does not succeed"),
        }
    }

    /// Before the server has been started nobody should answer: we would measure somebody else's.
    pub(crate) fn check_nobody(&self) -> Result<(), Failure> {
        match self {
            Self::Port(port) if self.is_now() => {
                Err(Failure::new(format!("something answers at port {port} already"))
                    .hint(format!("which process? ss -ltnp 'sport = :{port}'")))
            }
            _ => Ok(()),
        }
    }
}

/// A command of the shell.
pub(crate) fn shell(command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]);
    shell
}
