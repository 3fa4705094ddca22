//! The probe of a probe Pod: one request, within the same bounds as the agent's, sent without any privilege. Nothing listens.

use std::env;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use nettest::probe::{ProbeRequest, Task};

use super::{ProbeEnvironment, perform};

/// The most bytes of a termination message that a kubelet reads.
const MESSAGE_MAX: usize = 4096;
/// The variable with the request as JSON.
const REQUEST: &str = "PROBE_REQUEST";

/// Sends the request of the environment, and writes the report, or why there is none, to the container's termination message.
pub(crate) fn run(message: &Path) -> anyhow::Result<()> {
    let report = env::var(REQUEST).context(REQUEST).and_then(|request| report(&request));
    let text = match &report {
        Ok(report) => report.clone(),
        Err(error) => format!("{error:#}"),
    };
    fs::write(message, text).with_context(|| format!("write {}", message.display()))?;
    report.map(drop)
}

fn report(request: &str) -> anyhow::Result<String> {
    let request = ProbeRequest::read(request.as_bytes())?;
    if !matches!(request.task, Task::Send(_)) {
        bail!("a probe Pod sends probes only");
    }
    let report = serde_json::to_string(&perform(&request, &ProbeEnvironment::of_this_process())?)?;
    if report.len() > MESSAGE_MAX {
        bail!("the report has {} bytes, more than {MESSAGE_MAX}", report.len());
    }
    Ok(report)
}
