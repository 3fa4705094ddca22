//! GET requests, one after the other, with TLS or without: the status line is all that is read. Redirects are not followed.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use nettest::probe::{Failure, ProbeKind, SendTask, Tally};
use socket2::Socket;

use super::series::{Pace, of_error};
use super::socket::ProbeRoute;
use super::target::{Destination, HTTP, HTTPS};
use super::tcp::one_by_one;
use super::tls;

/// More than any status line.
const MAX_STATUS_LINE: usize = 256;

pub(super) fn probe(way: &ProbeRoute, task: &SendTask, destination: &Destination) -> Tally {
    let pace = Pace::from(task);
    let path = task.path.as_deref().or(destination.path).unwrap_or("/");
    // The version 2 of the metadata service refuses requests without it, so that a misled proxy cannot send one.
    let authorization = if destination.metadata { "Authorization: Bearer Oracle\r\n" } else { "" };
    let mut host =
        if destination.host.contains(':') { format!("[{}]", destination.host) } else { destination.host.clone() };
    let secure = task.kind == ProbeKind::Https;
    if destination.address.port() != if secure { HTTPS } else { HTTP } {
        host = format!("{host}:{}", destination.address.port());
    }
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: oke-node-agent\r\n{authorization}Connection: close\r\n\r\n"
    );
    one_by_one(pace, |results| {
        let began = Instant::now();
        let exchanged = way.connect(pace.timeout).and_then(|socket| {
            let stream = DeadlineStream { socket, end: began + pace.timeout };
            if secure { status(tls::over(stream, &destination.host)?, &request) } else { status(stream, &request) }
        });
        match exchanged {
            Ok(Some(status)) if status < 400 => results.answered(began.elapsed()),
            Ok(Some(status)) => results.failed(Failure::Status(status)),
            Ok(None) => results.failed(Failure::Invalid("the answer is not HTTP".to_owned())),
            // No TLS, or its end before an answer.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
                results.failed(Failure::Invalid(format!("the answer is not HTTPS: {error}")));
            }
            Err(error) => results.failed(of_error(&error)),
        }
    })
}

/// A connection whose reads and writes all end by one moment.
struct DeadlineStream {
    socket: Socket,
    end: Instant,
}

impl DeadlineStream {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(self.left()?)?;
        self.socket.read(buffer)
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.left()?)?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// The status of the answer, or nothing if it is not HTTP.
fn status(mut stream: impl Read + Write, request: &str) -> io::Result<Option<u16>> {
    stream.write_all(request.as_bytes())?;
    stream.flush()?;
    let mut line = Vec::new();
    while !line.contains(&b'\n') && line.len() < MAX_STATUS_LINE {
        let mut buffer = [0; MAX_STATUS_LINE];
        match stream.read(&mut buffer)? {
            0 => break,
            length => line.extend_from_slice(buffer.get(..length).unwrap_or_default()),
        }
    }
    let line = String::from_utf8_lossy(&line).into_owned();
    let mut words = line.split_whitespace();
    let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
    Ok(words.next().filter(|_| is_http).and_then(|status| status.parse().ok()))
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::sync::Arc;

    use nettest::probe::ProbeTarget;
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use rustls::{ServerConfig, ServerConnection, StreamOwned};

    use super::*;

    const REDIRECT: &[u8] = b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n";

    /// Redirects each request, by TLS with a self-signed certificate, or without TLS.
    fn serve(secure: bool) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = [0; MAX_STATUS_LINE];
                if secure {
                    let connection = ServerConnection::new(config()).unwrap();
                    let mut stream = StreamOwned::new(connection, stream);
                    let _ = stream.read(&mut request).and_then(|_| stream.write_all(REDIRECT));
                } else {
                    let _ = stream.read(&mut request).and_then(|_| stream.write_all(REDIRECT));
                }
            }
        });
        address
    }

    fn config() -> Arc<ServerConfig> {
        let own = rcgen::generate_simple_self_signed(vec!["other.example".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        Arc::new(config.with_no_client_auth().with_single_cert(vec![own.cert.into()], key.into()).unwrap())
    }

    fn tally(kind: ProbeKind, address: SocketAddr) -> Tally {
        let target = ProbeTarget::Address(address.ip());
        let task = serde_json::json!({ "kind": kind, "target": target, "port": address.port(), "count": 2,
            "intervalMs": 10, "timeoutMs": 2000 });
        let task: SendTask = serde_json::from_value(task).unwrap();
        let destination = Destination { address, host: "localhost".to_owned(), path: None, metadata: false };
        probe(&ProbeRoute::find(&task, address).unwrap(), &task, &destination)
    }

    #[test]
    fn answer_passes_and_its_redirect_is_not_followed() {
        for (kind, secure) in [(ProbeKind::Http, false), (ProbeKind::Https, true)] {
            let tally = tally(kind, serve(secure));
            assert_eq!((tally.sent, tally.received, tally.failure), (2, 2, None), "{kind:?}");
        }
    }

    #[test]
    fn https_of_a_server_without_tls_is_an_invalid_answer() {
        let tally = tally(ProbeKind::Https, serve(false));
        assert!(matches!(tally.failure, Some(Failure::Invalid(_))), "{tally:?}");
    }
}
