//! `oke-sandbox fault` breaks a running `oke-sandbox cluster`, and `clear` mends it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use crate::fixture::wait_for;

const PROGRAM: &str = env!("CARGO_BIN_EXE_oke-sandbox");

/// A running `oke-sandbox cluster`.
struct Cluster {
    folder: tempfile::TempDir,
    process: Child,
}

impl Cluster {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let process = Command::new(PROGRAM).arg("cluster").arg(folder.path()).spawn().unwrap();
        wait_for("the VCN is up", || folder.path().join("ready").exists());
        Self { folder, process }
    }

    fn fault(&self, arguments: &str) -> Output {
        let command = &mut Command::new(PROGRAM);
        command.arg("fault").arg(self.folder.path()).args(arguments.split(' ')).output().unwrap()
    }

    fn inject(&self, fault: &str) {
        let Output { status, stderr, .. } = self.fault(fault);
        assert!(status.success(), "{fault}: {}", String::from_utf8_lossy(&stderr));
    }

    /// Whether a shell command succeeds on node-a, and its output.
    fn on_node(&self, command: &str) -> (bool, String) {
        let output =
            Command::new(self.folder.path().join("node-a/enter")).args(["sh", "-c", command]).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }

    /// Waits until a shell command on node-a succeeds, or fails.
    fn wait_for(&self, command: &str, succeeds: bool) {
        wait_for(command, || self.on_node(command).0 == succeeds);
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.folder.path().join(file)).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn faults_of_the_network_last_until_clear() {
    let cluster = Cluster::start();
    let ping = format!("ping -c 1 -W 1 {}", cluster.read("node-b/ipv4"));
    let resolves = "dig +time=1 +tries=1 @169.254.169.254 node-b.sandbox.internal";
    let carrier = "ip link set ens5 up && grep 1 /sys/class/net/ens5/carrier";
    for (fault, command) in [("deny node-b", &*ping), ("resolver", resolves), ("carrier node-a ens5", carrier)] {
        cluster.wait_for(command, true);
        cluster.inject(fault);
        cluster.wait_for(command, false);
        cluster.inject("clear");
        cluster.wait_for(command, true);
    }
    // Only what is named.
    cluster.inject("deny node-b --udp");
    cluster.inject("deny node-b --tcp 9810");
    cluster.wait_for(&ping, true);
}

#[test]
fn faults_of_the_oci_api_last_until_clear() {
    let cluster = Cluster::start();
    let get = |status: &str| {
        let url = format!("{}/20160918/shapes", cluster.read("oci-url"));
        cluster.wait_for(&format!("busybox wget -O - {url} 2>&1 | grep -F 'HTTP/1.1 {status}'"), true);
    };
    get("401");
    cluster.inject("oci 404 NotAuthorizedOrNotFound --operation AttachVnic");
    get("401");
    cluster.inject("oci 429 TooManyRequests");
    get("429");
    cluster.inject("clear");
    get("401");
}

#[test]
fn detached_vnic_disappears() {
    let cluster = Cluster::start();
    let document: serde_json::Value = serde_json::from_str(&cluster.read("node-a/npn.json")).unwrap();
    let pair = document
        .pointer("/status/vnics/0/addresses/0/v4")
        .or_else(|| document.pointer("/status/vnics/0/hostAddresses/0/v4"));
    let address = pair.and_then(serde_json::Value::as_str).unwrap_or_else(|| panic!("{document:#}")).to_owned();
    cluster.wait_for("ip link show ens5", true);
    cluster.inject(&format!("detach node-a {address}"));
    cluster.wait_for("ip link show ens5", false);
}

#[test]
fn unknown_parts_of_faults_are_named() {
    let cluster = Cluster::start();
    for (fault, message) in [
        ("oci 429 TooManyRequests --operation Attach", "Attach is not an operation of the emulated API: GetInstance"),
        ("deny node-c", "node-c"),
        ("carrier node-a ens9", "node-a has no VNIC on a link ens9"),
        ("detach node-a 10.9.9.9", "no VNIC of node-a has the address 10.9.9.9"),
    ] {
        let output = cluster.fault(fault);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(message), "{fault}: {stderr}");
    }
}

/// Relative paths mean the same in a node's network.
#[test]
fn network_script_keeps_the_working_directory() {
    let cluster = Cluster::start();
    let (script, here): (PathBuf, &Path) = (cluster.folder.path().join("control-plane/network"), cluster.folder.path());
    let inside =
        Command::new(script).current_dir(here).args(["sh", "-c", "cat ready; pwd; ip -o addr"]).output().unwrap();
    let inside = String::from_utf8_lossy(&inside.stdout).into_owned();
    assert!(inside.starts_with(here.to_str().unwrap()), "{inside}");
    assert!(inside.contains(&format!(" {}/", cluster.read("control-plane/ipv4"))), "{inside}");
}
