//! The tar of a capture, made from its files while it is sent.

use std::fmt::Write as _;
use std::io::{self, Read, Write};

use api::capture::CAPTURE_BYTES_MAX;
use stream::{Relay, copy_entry, end, entry, entry_path};
use vcn::printable;

use super::store::{CaptureFolder, open};
use super::{CapturedParts, logs};

/// The folder of all entries.
const FOLDER: &str = "capture";
/// The bytes of the state that are read at once.
const PIECE: usize = 32 << 10;

/// Writes all parts, and README.txt as the last entry.
pub(super) fn send<W: Write>(node: &str, folder: &CaptureFolder, parts: &CapturedParts, to: &mut W) -> io::Result<()> {
    let mut readme = Readme::new(node);
    if let Some(redactions) = parts.state {
        relay_state(folder, to)?;
        let _ = writeln!(readme.entries, "  state/: the state of the node's network; its README.txt lists the entries");
        let _ = writeln!(readme.redacted, "  state: {redactions}");
    }
    if let Some(packets) = &parts.packets {
        let (file, size) = open(&folder.packets(), CAPTURE_BYTES_MAX)?;
        copy_entry(&path("packets.pcap"), size, file, &mut *to)?;
        to.write_all(&entry(&path("links.txt"), packets.links.as_bytes())?)?;
        let content = if parts.has_payload { "whole, NOT REDACTED" } else { "headers without payload" };
        let end = if packets.is_full { "its size ended the capture before its time" } else { "complete" };
        let _ = writeln!(
            readme.entries,
            "  packets.pcap: {} packets, {content}; {} lost because the node was busy; {end}\n  links.txt: the host's links by \
             the indexes that packets.pcap has",
            packets.packets, packets.lost
        );
    }
    let logs = logs::finished(folder);
    if parts.has_logs && logs.is_empty() {
        readme.missing.push_str("  logs: the task's Pod wrote none\n");
    }
    for (unit, described) in logs {
        let name = format!("logs/{}.log", entry_path(&unit));
        let missing = match folder.unit_log(&unit) {
            Ok((file, size)) if described.error.is_empty() => {
                copy_entry(&path(&name), size, file, &mut *to)?;
                let shortened = if described.is_shortened { "; older lines are left out" } else { "" };
                let _ = writeln!(readme.entries, "  {name}: {size} bytes{shortened}");
                let _ = writeln!(readme.redacted, "  {name}: {}", described.redactions);
                continue;
            }
            Ok(_) => described.error,
            Err(error) => error.to_string(),
        };
        let _ = writeln!(readme.missing, "  {name}: {}", printable(&missing).replace('\n', " "));
    }
    to.write_all(&entry(&path("README.txt"), readme.text().as_bytes())?)?;
    to.write_all(&end())
}

fn path(name: &str) -> String {
    format!("{FOLDER}/{name}")
}

/// Passes the entries of the state on.
fn relay_state<W: Write>(folder: &CaptureFolder, to: &mut W) -> io::Result<()> {
    let (mut file, _) = open(&folder.state(), CAPTURE_BYTES_MAX)?;
    let mut relay = Relay::into_folder(path("state"), CAPTURE_BYTES_MAX);
    let (mut piece, mut passed) = (vec![0; PIECE], Vec::new());
    loop {
        let length = file.read(&mut piece)?;
        let more = relay.push(piece.get(..length).unwrap_or_default(), &mut passed).map_err(io::Error::other)?;
        to.write_all(&passed)?;
        passed.clear();
        if !more {
            return Ok(());
        }
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

#[derive(Default)]
struct Readme {
    head: String,
    entries: String,
    redacted: String,
    missing: String,
}

impl Readme {
    fn new(node: &str) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
        let version = env!("CARGO_PKG_VERSION");
        let head =
            format!("A capture of node {node}. Sent at {now} (seconds since 1970) by oke-node-agent {version}.\n");
        Self { head, ..Self::default() }
    }

    fn text(&self) -> String {
        let or_nothing = |text: &str, none: &str| if text.is_empty() { format!("  {none}\n") } else { text.to_owned() };
        format!(
            "{}\nEntries:\n{}\nRedacted, as far as secrets can be recognized (read the texts before you pass them on):\n{}\n\
             Missing:\n{}",
            self.head,
            self.entries,
            or_nothing(&self.redacted, "nothing: packets cannot be redacted"),
            or_nothing(&self.missing, "nothing")
        )
    }
}
