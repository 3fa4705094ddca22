//! The node agent's memory when nothing happens.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

/// By then it has looked at everything once.
const SETTLING: Duration = Duration::from_secs(2);

/// Resident memory in KiB, of an agent without a metadata service, a cluster or pods. Everything it could write to is a
/// directory of ours.
pub(crate) fn resident_kib(agent: &Path, scratch: &Path) -> anyhow::Result<u64> {
    let directory = |name: &str| -> anyhow::Result<_> {
        let path = scratch.join(name);
        std::fs::create_dir(&path)?;
        Ok(path)
    };
    let child = Command::new(agent)
        .arg("run")
        .env_clear()
        .env("STATE_DIR", directory("agent-state")?)
        .env("DATA_DIR", directory("agent-data")?)
        .env("CNI_BIN_DIR", directory("agent-bin")?)
        .env("CNI_CONF_DIR", directory("agent-conf")?)
        .env("CNI_SOURCE_DIR", directory("agent-source")?)
        // Nobody listens there.
        .env("OCI_METADATA_BASE_URL", "http://127.0.0.1:1/opc/v2")
        .env("LISTEN", "127.0.0.1:0")
        .env("LOG_LEVEL", "error")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("start {}", agent.display()))?;
    let mut child = Reaped(child);
    // Not a wait for something: memory after a given time is what is measured.
    std::thread::sleep(SETTLING);
    if let Some(status) = child.0.try_wait()? {
        bail!("{} ended by itself: {status}", agent.display());
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.0.id()))?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(resident.trim().trim_end_matches(" kB").parse()?)
}

/// A process that does not outlive its measurement, whatever happens.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
