//! Packets as proof: an echo, a name, the time, the metadata service, requested from inside a pod.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use simple_dns::{CLASS, Name, Packet, Question, TYPE};

use crate::error;
use crate::node::{Command, Node, Pod};

/// The time limit for an answer. The fabric resolves the neighbour first, as the real one does.
const DEADLINE: Duration = Duration::from_secs(10);
/// When a packet that may be lost is sent again. A link that was just raised drops packets until the kernel has noticed its
/// carrier, which takes a while on a busy machine.
const RESEND: Duration = Duration::from_secs(1);
const SERVICES: Ipv4Addr = vcn::METADATA_ADDRESS;

/// The outcome of a probe: the time it took, or why it failed.
pub type Outcome = Result<Duration, String>;

impl Node {
    /// Whether one echo request, from this address or one that the kernel chooses, is answered within a second.
    pub fn pings(&self, from: Option<IpAddr>, to: IpAddr) -> error::Result<bool> {
        is_answered(self.command("ping"), from, to)
    }
}

fn is_answered(ping: Command, from: Option<IpAddr>, to: IpAddr) -> error::Result<bool> {
    let from = from.iter().flat_map(|from| ["-I".to_owned(), from.to_string()]);
    let ping = ping.args(["-n", "-q", "-c", "1", "-W", "1"]).args(from).arg(to.to_string());
    Ok(ping.output()?.status.success())
}

impl Pod {
    /// The same from the pod.
    pub fn pings(&self, from: Option<IpAddr>, to: IpAddr) -> error::Result<bool> {
        is_answered(self.command("ping"), from, to)
    }

    /// Echo requests, one a second, until one is answered.
    pub fn ping(&self, target: IpAddr) -> Outcome {
        let started = Instant::now();
        let output = self
            .command("ping")
            .args(["-n", "-q", "-c", "1", "-w", &DEADLINE.as_secs().to_string()])
            .arg(target.to_string())
            .output()
            .map_err(|error| format!("ping cannot be run: {error}"))?;
        match output.status.success() {
            true => Ok(started.elapsed()),
            false => Err(format!("{target} does not answer")),
        }
    }

    /// The address of a name, by the VCN's resolver.
    pub fn resolve(&self, name: &str) -> Outcome {
        let mut query = Packet::new_query(0x1f2e);
        let name = Name::new(name).map_err(|error| error.to_string())?;
        query.questions.push(Question::new(name, TYPE::A.into(), CLASS::IN.into(), false));
        let query = query.build_bytes_vec().map_err(|error| error.to_string())?;
        let (answer, took) = self.exchange(53, query)?;
        match Packet::parse(&answer) {
            Ok(packet) if packet.id() == 0x1f2e && !packet.answers.is_empty() => Ok(took),
            Ok(_) => Err("the resolver knows no such name".into()),
            Err(error) => Err(format!("the resolver's answer is malformed: {error}")),
        }
    }

    /// The time, by the VCN's time server.
    pub fn query_time(&self) -> Outcome {
        // Version 4, client.
        let mut query = vec![0x23];
        query.resize(48, 0);
        let (answer, took) = self.exchange(123, query)?;
        match answer.first() {
            // Mode 4: a server's answer.
            Some(first) if answer.len() >= 48 && first & 0x07 == 4 => Ok(took),
            _ => Err("the time server's answer is malformed".into()),
        }
    }

    /// The instance's own description, by the metadata service.
    pub fn read_metadata(&self) -> Outcome {
        let started = Instant::now();
        let answer = self.run(|| {
            http_get(SocketAddrV4::new(SERVICES, 80), "/opc/v2/instance/id", "Authorization: Bearer Oracle\r\n")
        });
        match answer {
            Ok(Ok(answer)) if answer.starts_with("HTTP/1.1 200") => Ok(started.elapsed()),
            Ok(Ok(answer)) => {
                Err(format!("the metadata service answered {:?}", answer.lines().next().unwrap_or_default()))
            }
            Ok(Err(error)) => Err(format!("the metadata service: {error}")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn exchange(&self, port: u16, query: Vec<u8>) -> Result<(Vec<u8>, Duration), String> {
        let started = Instant::now();
        let answer = self.run(move || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.set_read_timeout(Some(RESEND))?;
            socket.connect((SERVICES, port))?;
            let mut answer = vec![0; 1500];
            let length = loop {
                socket.send(&query)?;
                match socket.recv(&mut answer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && started.elapsed() < DEADLINE => {}
                    received => break received?,
                }
            };
            answer.truncate(length);
            Ok::<_, io::Error>(answer)
        });
        match answer {
            Ok(Ok(answer)) => Ok((answer, started.elapsed())),
            Ok(Err(error)) => Err(format!("{SERVICES} port {port}: {error}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The whole answer to a request.
pub(super) fn http_get(server: SocketAddrV4, path: &str, header: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&server.into(), DEADLINE)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: sandbox\r\nConnection: close\r\n{header}\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
