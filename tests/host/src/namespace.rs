//! Scripts and pings in a namespace, and waiting for what the kernel does later.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use netlink::Netns;
use vcn::IfName;

/// Far beyond what anything here takes, on a busy machine, too.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The name of a link, which must be valid.
pub fn name(text: &str) -> IfName {
    IfName::new(text).unwrap()
}

/// An address, which must be valid.
pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Where other programs find a namespace, as long as this process has it.
pub fn path_of(netns: &Netns) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), netns.as_fd().as_raw_fd()).into()
}

/// Runs a script in a namespace, as an operator would, up to its first command that fails. Returns what it says.
pub fn sh(netns: &Netns, script: &str) -> String {
    let output = netns.run(|| Command::new("sh").args(["-ec", script]).output().unwrap()).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{script}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Whether something becomes true in time.
pub fn within(time: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !condition() {
        if begun.elapsed() > time {
            return false;
        }
        std::thread::sleep(before_next_look(begun));
    }
    true
}

/// How long to wait before a condition is checked again: a sixteenth of the time so far, because a check may start programs,
/// and other tests need the processors.
pub fn before_next_look(begun: Instant) -> Duration {
    (begun.elapsed() / 16).clamp(Duration::from_millis(5), Duration::from_millis(200))
}

/// Whether `target` comes to answer. A link that was just raised drops packets until the kernel's own thread has attached its
/// queue. An answer that a host gives for a pod may come late. Both take longer on a busy machine.
pub fn reaches(netns: &Netns, target: &str) -> bool {
    within(PATIENCE, || pings(netns, target))
}

/// The same from an address.
pub fn reaches_from(netns: &Netns, from: &str, target: &str) -> bool {
    within(PATIENCE, || ping(netns, &["-I", from, target]))
}

/// Whether `target` answers one echo request within a second.
pub fn pings(netns: &Netns, target: &str) -> bool {
    ping(netns, &[target])
}

fn ping(netns: &Netns, words: &[&str]) -> bool {
    let ping = || Command::new("ping").args(["-n", "-c", "1", "-W", "1"]).args(words).output().unwrap();
    netns.run(ping).unwrap().status.success()
}
