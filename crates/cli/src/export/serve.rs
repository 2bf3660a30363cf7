//! An HTTP server for one page.

use crate::hints::{Failure, cause};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many clients are answered at once: a slow one doesn't keep the others waiting.
pub(crate) const CLIENTS: usize = 8;
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

    /// Answers one client at a time. Several threads may do this. Each client gets the latest finished page.
    pub(crate) fn run(&self, page: &Page) {
        for client in self.listener.incoming() {
            match client {
                Ok(client) => drop(answer(&client, page, PATIENCE)), // a client may disconnect
                Err(_) => std::thread::sleep(Duration::from_millis(100)), // out of file descriptors; try again
            }
        }
    }
}

/// A client, which has until then.
struct Until<'a>(&'a TcpStream, Instant);

impl Until<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.1.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Until<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.set_read_timeout(self.left()?)?;
        self.0.read(bytes)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.set_write_timeout(self.left()?)?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn answer(client: &TcpStream, page: &Page, patience: Duration) -> io::Result<()> {
    let mut client = Until(client, Instant::now() + patience);
    let mut request = BufReader::new(Read::by_ref(&mut client).take(REQUEST));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_client_has_one_deadline_however_often_it_sends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let slow = thread::spawn(move || {
            let mut client = TcpStream::connect(address).unwrap();
            // Until it is told off.
            while client.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        let (client, _) = listener.accept().unwrap();
        let why = answer(&client, &Page::default(), Duration::from_millis(200)).unwrap_err();
        assert!([ErrorKind::TimedOut, ErrorKind::WouldBlock].contains(&why.kind()), "{why}");
        drop(client);
        slow.join().unwrap();
    }
}
