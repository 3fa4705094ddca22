//! `oke-sandbox cluster`: the VCN that tests/cluster runs Kubernetes on. This program starts nodes and the OCI API only; the
//! scripts of tests/cluster start everything else, with the files that it writes about each node.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use sandbox::{Isolated, Node, NodeSpec, NpnShape, OciApi, OciSettings, Vcn};

use crate::cli::args::Cluster;
use crate::cli::fault::Faults;
use crate::cli::vcn::{block_signals, builder, worker};

/// Enough for the pods of a test, few enough to exhaust.
const PODS_PER_VNIC: u32 = 16;

pub(crate) fn run(options: &Cluster) -> Result<ExitCode> {
    let folder = options.folder.canonicalize().with_context(|| format!("find {}", options.folder.display()))?;
    let isolated = sandbox::isolate().context("isolate the sandbox")?;
    let signals = block_signals()?;
    let vcn = Arc::new(start().context("start the emulated VCN")?);
    let oci = Arc::new(OciApi::start(Arc::clone(&vcn), OciSettings::default()).context("start the OCI API")?);
    Faults::new(Arc::clone(&vcn), Arc::clone(&oci)).serve(&folder).context("serve faults")?;
    describe(&vcn, &oci, isolated, &folder).with_context(|| format!("describe the VCN in {}", folder.display()))?;
    signals.wait().context("wait for a signal")?;
    for drop in vcn.drops() {
        println!("the fabric dropped {} frame(s) at {}: {}", drop.frames, drop.at, drop.reason);
    }
    Ok(ExitCode::SUCCESS)
}

fn start() -> Result<Vcn> {
    let machine = |name| NodeSpec::virtual_machine(name, "nodes");
    let vcn = builder()
        .node(machine("control-plane"))
        .node(worker(machine("node-a"), PODS_PER_VNIC))
        .node(worker(machine("node-b"), PODS_PER_VNIC))
        .start()?;
    Ok(vcn)
}

/// Writes `DIR/<node>/{enter,network,id,ipv4,ipv6,npn.json}`, `DIR/{oci-url,compartment,subnet-<name>}`, `DIR/pid`, then `DIR/ready`.
fn describe(vcn: &Vcn, oci: &OciApi, isolated: Isolated, folder: &Path) -> Result<()> {
    for node in vcn.nodes() {
        describe_node(vcn, node, isolated, &folder.join(node.name()))?;
    }
    for subnet in vcn.subnets() {
        fs::write(folder.join(format!("subnet-{}", subnet.name)), subnet.id.to_string())?;
    }
    fs::write(folder.join("oci-url"), oci.url_in_nodes())?;
    fs::write(folder.join("compartment"), oci.compartment())?;
    fs::write(folder.join("pid"), isolated.outer_pid.to_string())?;
    fs::write(folder.join("ready"), "")?;
    Ok(())
}

fn describe_node(vcn: &Vcn, node: &Node, isolated: Isolated, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let pid = isolated.outer_pid;
    for (name, hint) in [("enter", node.enter_hint(isolated)), ("network", node.network_hint(isolated))] {
        // What starts this way ends with the sandbox: it is in the sandbox's PID namespace.
        let script = format!("#!/bin/sh\nexec {hint} --pid=/proc/{pid}/ns/pid -- \"$@\"\n");
        fs::write(folder.join(name), script)?;
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755))?;
    }
    fs::write(folder.join("id"), node.id().to_string())?;
    let primary = node.vnics().into_iter().next().with_context(|| format!("{} has no VNIC", node.name()))?;
    for (family, address) in primary.address.iter() {
        fs::write(folder.join(family.to_string().to_lowercase()), address.to_string())?;
    }
    if node.vnics().len() > 1 {
        let object = vcn.native_pod_network(node.name(), NpnShape::PerFamily)?;
        fs::write(folder.join("npn.json"), object.to_string())?;
    }
    Ok(())
}
