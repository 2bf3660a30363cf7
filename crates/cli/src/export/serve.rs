//! An HTTP server for one page.

use crate::hints::{Failure, cause};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time limit for a client.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum size of a request, in bytes.
const REQUEST: u64 = 8192;

/// The text to serve.
#[derive(Clone, Default)]
pub(crate) struct Page(Arc<Mutex<String>>);

impl Page {
    pub(crate) fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

/// A listening server.
pub(crate) struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    pub(crate) fn bind(address: SocketAddr) -> Result<Self, Failure> {
        let fail = |error: io::Error| {
            Failure::new(format!("cannot listen on {address}: {}", cause(&error)))
                .hint("another port: --listen 127.0.0.1:9465")
        };
        let listener = TcpListener::bind(address).map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        Ok(Self { listener, address })
    }

    /// The address, with the port that the system chose if none was given.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers one client at a time. Each gets the latest finished page.
    pub(crate) fn run(&self, page: &Page) {
        for client in self.listener.incoming() {
            match client {
                Ok(client) => drop(answer(&client, page)), // a client may disconnect
                Err(_) => std::thread::sleep(Duration::from_millis(100)), // out of file descriptors; try again
            }
        }
    }
}

fn answer(client: &TcpStream, page: &Page) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut request = BufReader::new(client.take(REQUEST));
    let mut first = String::new();
    request.read_line(&mut first)?;
    let mut line = String::new();
    while request.read_line(&mut line)? > 0 && !line.trim_end().is_empty() {
        line.clear();
    }
    let mut words = first.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split('?').next().unwrap_or_default();
    let plain = "text/plain; charset=utf-8";
    let (status, kind, body) = match (method, path) {
        ("GET" | "HEAD", "/metrics") => {
            ("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", page.get())
        }
        ("GET" | "HEAD", _) => ("404 Not Found", plain, "see /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", plain, "GET /metrics\n".to_owned()),
    };
    let mut client = client;
    let length = body.len();
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    if method != "HEAD" {
        client.write_all(body.as_bytes())?;
    }
    client.flush()
}
