//! `oke-sandbox up`: the default VCN, described on standard output; a program in it, or a wait for a signal.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use sandbox::{Isolated, NodeSpec, OciApi, OciSettings, Vcn};
use vcn::MachineKind;

use crate::cli::args::Up;
use crate::cli::vcn::{block_signals, builder, worker};

/// As in an OKE cluster: 31 addresses for pods, and one for the host.
const PODS_PER_VNIC: u32 = 31;
/// The folder with the API key of a user of the OCI API, on each node. In the node's own memory: it ends with the sandbox.
const OCI_USER: &str = "/run/oci";

/// Runs the subcommand.
pub(crate) fn run(options: Up) -> Result<ExitCode> {
    let isolated = sandbox::isolate().context("cannot isolate the sandbox")?;
    let signals = block_signals(&[Signal::SIGCHLD])?;
    let started = Instant::now();
    let vcn = Arc::new(default_vcn(options.bm).context("cannot start the sandbox")?);
    let oci = OciApi::start(Arc::clone(&vcn), OciSettings::default()).context("cannot start the OCI API")?;
    add_user(&vcn, &oci).context("cannot create a user of the OCI API")?;
    let milliseconds = started.elapsed().as_millis();
    describe(&vcn, &oci, isolated, milliseconds).context("cannot write the description")?;
    let code = match options.command.split_first() {
        None => wait(&signals, None),
        Some((program, arguments)) => {
            let command = vcn.node(&options.on)?.command(program).args(arguments);
            let command = command.env("OKE_SANDBOX_OCI_URL", oci.url_in_nodes());
            let child = command.env("OCI_CONFIG_FILE", Path::new(OCI_USER).join("config")).spawn()?;
            wait(&signals, Some(child))
        }
    }?;
    report_drops(&vcn).context("cannot write the report")?;
    Ok(code)
}

fn default_vcn(bare_metal: bool) -> Result<Vcn> {
    let node = |name| {
        let node =
            if bare_metal { NodeSpec::bare_metal(name, "nodes") } else { NodeSpec::virtual_machine(name, "nodes") };
        worker(node.metadata("oke-max-pods", &PODS_PER_VNIC.to_string()), 1, PODS_PER_VNIC)
    };
    Ok(builder()?.node(node("node-a")).node(node("node-b")).start()?)
}

/// One user for all nodes: creating a key takes longer than the rest of the sandbox.
fn add_user(vcn: &Vcn, oci: &OciApi) -> Result<()> {
    let folder = Path::new(OCI_USER);
    let mut files: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for node in vcn.nodes() {
        files = node.run(|| -> Result<_> {
            fs::create_dir(folder)?;
            if files.is_empty() {
                oci.write_user(folder)?;
            }
            for (path, content) in &files {
                fs::write(path, content)?;
            }
            let written = fs::read_dir(folder)?.map(|file| file.map(|file| file.path()));
            written
                .map(|path| path.and_then(|path| Ok((path.clone(), fs::read(path)?))))
                .collect::<io::Result<_>>()
                .map_err(Into::into)
        })??;
    }
    Ok(())
}

fn describe(vcn: &Vcn, oci: &OciApi, isolated: Isolated, milliseconds: u128) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "sandbox is up after {milliseconds} ms (process {})", isolated.outer_pid)?;
    let (url, compartment) = (oci.url_in_nodes(), oci.compartment());
    writeln!(out, "OCI API, on the nodes: {url} (compute, network, federation), compartment {compartment}")?;
    writeln!(
        out,
        "  log in there by instance principal, or by the API key in {OCI_USER}/config, for example in Python:"
    )?;
    writeln!(
        out,
        "  oci.core.ComputeClient(oci.config.from_file(\"{OCI_USER}/config\"), service_endpoint=\"{url}/20160918\")"
    )?;
    for subnet in vcn.subnets() {
        let blocks: Vec<_> = subnet.all_blocks().map(|block| block.to_string()).collect();
        writeln!(out, "subnet {}: {}", subnet.name, blocks.join(" "))?;
    }
    for node in vcn.nodes() {
        writeln!(out, "{} ({}), {}", node.name(), node.kind(), node.id())?;
        for vnic in node.vnics() {
            let addresses: Vec<_> = vnic.address.iter().map(|(_, address)| address.to_string()).collect();
            let secondary: usize = vnic.secondary.iter().map(|(_, all)| all.len()).sum();
            let role = if vnic.primary { "primary" } else { "not configured" };
            let tag = match (node.kind(), vnic.vlan_tag) {
                (MachineKind::BareMetal, tag) if tag != 0 => format!(" tag {tag}"),
                _ => String::new(),
            };
            let addresses = addresses.join(" ");
            writeln!(
                out,
                "  {}{tag} {} {addresses} +{secondary} in {} ({role})",
                vnic.link, vnic.mac, vnic.subnet.name
            )?;
        }
        writeln!(out, "  look inside: {}", node.enter_hint(isolated))?;
    }
    out.flush()
}

/// Waits for the program's end or a signal.
fn wait(signals: &SigSet, mut child: Option<Child>) -> Result<ExitCode> {
    loop {
        if let Some(child) = &mut child
            && let Some(status) = child.try_wait().context("cannot wait for the program")?
        {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
        }
        match signals.wait().context("cannot wait for a signal")? {
            Signal::SIGCHLD => {}
            // What still runs ends with the sandbox.
            _ if child.is_none() => return Ok(ExitCode::SUCCESS),
            signal => return Ok(ExitCode::from(u8::try_from(128 + signal as i32).unwrap_or(1))),
        }
    }
}

fn report_drops(vcn: &Vcn) -> io::Result<()> {
    let mut out = io::stderr().lock();
    for drop in vcn.drops() {
        writeln!(out, "dropped {} at {}: {}", drop.frames, drop.at, drop.reason)?;
    }
    Ok(())
}
