//! `lockwright top --export`.

use super::top::interval;
use crate::export;
use crate::hints::Failure;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Export what the locks of running programs do to Prometheus, as OpenMetrics
///
/// Serves GET /metrics, or writes a file for node_exporter's textfile collector. The processes count what their contended locks do
/// while this runs. Without PID: all processes of this user that use our locks (as root: of all users).
#[derive(clap::Args)]
#[command(after_help = "Examples:
  lockwright top --export                  on http://127.0.0.1:9464/metrics
  lockwright top --export --output /var/lib/node_exporter/lockwright.prom
  lockwright top --export 4242 --output locks.prom --count 1")]
pub(crate) struct Args {
    /// The processes
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pids: Vec<libc::pid_t>,
    /// Serve on this address [default: 127.0.0.1:9464, unless --output]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Write this file instead, and replace it with each sample
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    output: Option<PathBuf>,
    /// Time between samples
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = interval)]
    interval: Duration,
    /// End after this many samples
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Locks per process, those with the most waiting time
    #[arg(long, value_name = "N", default_value_t = 50)]
    top: usize,
}

pub(crate) fn main(args: Args) -> Result<ExitCode, Failure> {
    crate::leftovers::remove_counts();
    let sink = match args.output {
        Some(file) => export::Sink::File(file),
        None => export::Sink::Http(args.listen.unwrap_or(export::HERE)),
    };
    let subject = export::ObservedProcesses::new(args.pids, args.interval, args.top);
    export::run(subject, sink, args.interval, args.count)
}
