//! A metadata service on loopback that answers from a script and is as strict as the real one about headers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What to do with a request. The last one of a script is repeated.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Status(u16),
    Text(String),
    /// No reply at all.
    Silence,
    /// The head and half a word, then nothing more.
    Stall,
    /// A body without end.
    Endless,
}

pub(super) struct Server {
    pub(super) base_url: String,
    paths: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(super) fn start(script: Vec<Reply>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let base_url = format!("http://{}/opc/v2", listener.local_addr().unwrap());
        let paths: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = paths.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, script) = (seen.clone(), script.clone());
                // A client that gives up ends the connection: not our failure.
                thread::spawn(move || answer(&stream, &seen, &script));
            }
        });
        Self { base_url, paths }
    }

    pub(super) fn paths(&self) -> Vec<String> {
        self.paths.lock().unwrap().clone()
    }
}

fn answer(mut stream: &TcpStream, seen: &Mutex<Vec<String>>, script: &[Reply]) -> io::Result<()> {
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let has = |name: &str| head.iter().any(|line| line.to_ascii_lowercase().starts_with(name));
    if !has("authorization: bearer oracle") {
        return plain(stream, 401, "no authorization header");
    }
    if has("forwarded:") || has("x-forwarded-") {
        return plain(stream, 403, "forwarded");
    }
    let turn = {
        let mut seen = seen.lock().unwrap();
        seen.push(head[0].split(' ').nth(1).unwrap().to_owned());
        seen.len() - 1
    };
    let chunk = [b' '; 4096];
    match &script[turn.min(script.len() - 1)] {
        Reply::Status(status) => return plain(stream, *status, "scripted"),
        Reply::Text(text) => return plain(stream, 200, text),
        Reply::Silence => {}
        Reply::Stall => {
            stream.write_all(b"HTTP/1.1 200 X\r\nContent-Length: 8192\r\n\r\n")?;
            stream.write_all(&chunk)?;
        }
        Reply::Endless => {
            stream.write_all(b"HTTP/1.1 200 X\r\n\r\n")?;
            while stream.write_all(&chunk).is_ok() {}
        }
    }
    // Until the client gives up.
    stream.read(&mut [0]).map(drop)
}

fn plain(mut stream: &TcpStream, status: u16, text: &str) -> io::Result<()> {
    let length = text.len();
    write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}")
}
