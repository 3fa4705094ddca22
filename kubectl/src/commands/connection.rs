//! `nettest` of a connection from or to a Pod, or to a Service: facts, then probes, then the cause.

use command::page::Page;
use serde::Serialize;

use crate::answer::{Answer, Exit, Style};
use crate::args::nettest::NetTestArgs;
use crate::cluster::Cluster;
use crate::connection::conclusion::{Conclusion, Label, ProbeResult, ProbeSource, conclude};
use crate::connection::facts::{Facts, Finding, facts};
use crate::connection::policies::Port;
use crate::connection::{probes, read};
use crate::ends::{Source, Target};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConnectionResult {
    pub from: String,
    pub to: String,
    #[serde(flatten)]
    pub conclusion: Conclusion,
    /// The findings of the objects, the most certain first.
    pub findings: Vec<Finding>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbeResult>,
    /// Why probes were not sent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_probed: Vec<String>,
}

/// Reads the objects, and sends probes unless they name the cause.
pub(crate) async fn run(
    cluster: &Cluster,
    args: &NetTestArgs,
    from: &Source,
    to: &Target,
) -> anyhow::Result<ConnectionResult> {
    let objects = read::read(&cluster.client().await?, from, to).await?;
    let protocol = if args.udp { "UDP" } else { "TCP" };
    let port = args.port.map(|number| Port { protocol: protocol.to_owned(), number });
    let facts = facts(from, to, port.as_ref(), &objects);
    let (results, not_probed) = match facts.are_enough() {
        true => (Vec::new(), Vec::new()),
        false => probes::run(cluster, &probes::plan(args, from, to, &facts, &objects)).await?,
    };
    Ok(ConnectionResult::new(&args.from, &args.to, facts, results, not_probed))
}

impl ConnectionResult {
    pub(crate) fn new(
        from: &str,
        to: &str,
        mut facts: Facts,
        probes: Vec<ProbeResult>,
        not_probed: Vec<String>,
    ) -> Self {
        let conclusion = conclude(&mut facts, &probes);
        Self { from: from.to_owned(), to: to.to_owned(), conclusion, findings: facts.findings, probes, not_probed }
    }
}

impl Answer for ConnectionResult {
    fn exit(&self) -> Exit {
        match self.conclusion.label {
            Label::Reachable => Exit::Fine,
            Label::Proven | Label::Likely | Label::OneOf => Exit::Problem,
            Label::Undecided => Exit::Undecided,
        }
    }

    fn show(&self, page: &mut Page, _: Style) {
        let Conclusion { label, cause, message, next_step } = &self.conclusion;
        let cause = if cause.is_empty() { String::new() } else { format!(": {cause}") };
        page.line(format_args!("{} → {}: {label}{cause}", self.from, self.to));
        for (name, text) in [("why", message), ("next", next_step)] {
            if !text.is_empty() {
                page.line(format_args!("  {name}: {text}"));
            }
        }
        for finding in &self.findings {
            page.line(format_args!("  {} {}: {}", finding.label, finding.cause, finding.message));
            if !finding.next_step.is_empty() {
                page.line(format_args!("    next: {}", finding.next_step));
            }
        }
        for reason in &self.not_probed {
            page.line(format_args!("  not probed: {reason}"));
        }
        if !self.probes.is_empty() {
            page.line("");
            page.columns(&["PROBE", "TO", "FROM", "RESULT"], self.probes.iter().map(row));
        }
    }
}

fn row(probe: &ProbeResult) -> Vec<String> {
    let source = if probe.source == ProbeSource::Node { "node" } else { "probe Pod" };
    let verdict = if probe.verdict.is_empty() { String::new() } else { format!(" ({})", probe.verdict) };
    let detail = if probe.detail.is_empty() { String::new() } else { format!(": {}", probe.detail) };
    vec![probe.target.to_string(), probe.to.clone(), source.to_owned(), format!("{}{detail}{verdict}", probe.outcome)]
}
