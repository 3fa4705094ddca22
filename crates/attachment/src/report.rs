//! The record of a run, which the agent logs. A verb neither fails nor waits for it.

use std::net::IpAddr;

use cni::{Args, AttachmentKey, Error, NetworkName, Refusal, Verb};
use ipam::AssignedAddress;
use telemetry::{Phases, Sink, VerbRecord};

use crate::follow_up::FollowUp;
use crate::state_dir::state_dir;

/// The program that reports.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The plugin's name, as in the run record.
    pub name: &'static str,
    /// The plugin's version, as in the run record.
    pub version: &'static str,
}

/// What is reported of one run.
#[derive(Debug)]
pub struct Report {
    record: VerbRecord,
    phases: Phases,
    assigned: Vec<AssignedAddress>,
}

impl Report {
    /// Of a call about one attachment.
    pub fn of_attachment(program: Program, verb: &str, key: &AttachmentKey, args: &Args) -> Self {
        let mut report = Self::of_network(program, verb, &key.network);
        report.record.container_id = key.container_id.to_string();
        report.record.ifname = key.ifname.to_string();
        report.record.pod_namespace.clone_from(&args.pod_namespace);
        report.record.pod_name.clone_from(&args.pod_name);
        report
    }

    /// Of a call about a network.
    pub fn of_network(program: Program, verb: &str, network: &NetworkName) -> Self {
        let mut report = Self::begin(program, verb);
        report.record.network = network.to_string();
        report
    }

    /// Of work that no runtime requested: it is not sent.
    pub fn of_agent(key: &AttachmentKey) -> Self {
        Self::of_network(Program { name: "agent", version: env!("CARGO_PKG_VERSION") }, "end", &key.network)
    }

    /// Of a call that was refused, as far as it is known whom it was about.
    pub fn of_refusal(program: Program, refusal: &Refusal<'_>) -> Self {
        let text = |part: Option<String>| part.unwrap_or_default();
        let mut report = Self::begin(program, refusal.verb.map_or("unknown", Verb::as_str));
        report.record.network = text(refusal.network.as_ref().map(ToString::to_string));
        report.record.container_id = text(refusal.container_id.as_ref().map(ToString::to_string));
        report.record.ifname = text(refusal.ifname.as_ref().map(ToString::to_string));
        report.record.pod_namespace.clone_from(&refusal.args.pod_namespace);
        report.record.pod_name.clone_from(&refusal.args.pod_name);
        report
    }

    fn begin(program: Program, verb: &str) -> Self {
        let record = VerbRecord::begin(program.name, program.version, verb);
        Self { record, phases: Phases::start(), assigned: Vec::new() }
    }

    /// Ends a phase: its time is what passed since the phase before it.
    pub fn mark(&mut self, phase: &'static str) {
        self.phases.mark(phase);
    }

    /// Addresses that the attachment has, or had.
    pub fn addresses(&mut self, assigned: &[AssignedAddress]) {
        self.record.addresses.extend(assigned.iter().map(|assigned| assigned.address));
        self.assigned.extend_from_slice(assigned);
    }

    /// Addresses of the attachment that no record describes.
    pub fn found(&mut self, addresses: &[IpAddr]) {
        self.record.addresses.extend(addresses);
    }

    /// Adds a remark that is not a failure.
    pub fn note(&mut self, text: String) {
        if !self.record.message.is_empty() {
            self.record.message.push_str("; ");
        }
        self.record.message.push_str(&text);
    }

    /// The same, if there is anything.
    pub fn note_some(&mut self, text: Option<String>) {
        text.into_iter().for_each(|text| self.note(text));
    }

    /// Runs a verb and hands the record over; the agent then does `follow_up`, which after a failure can only be to forget.
    pub fn of_run<T>(
        mut self,
        follow_up: Option<FollowUp>,
        verb: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let answer = verb(&mut self);
        let follow_up = follow_up.filter(|it| answer.is_ok() || *it == FollowUp::Forget);
        self.send(answer.as_ref().err(), follow_up);
        answer
    }

    /// Hands the record over. If no agent takes it, `follow_up` is done here.
    pub fn send(mut self, error: Option<&Error>, follow_up: Option<FollowUp>) {
        if let Some(error) = error {
            self.record.code = error.code.0;
            self.note(error.to_string());
        }
        self.close();
        let sink = Sink::new(state_dir());
        if sink.hand_over(&self.record) {
            return;
        }
        if let Some(follow_up) = follow_up {
            let problem = follow_up.perform(&self.assigned, &self.record.addresses);
            self.mark("follow_up");
            self.close();
            self.note_some(problem);
        }
        sink.keep(&self.record);
    }

    /// Records the phases since the last call.
    fn close(&mut self) {
        let phases = std::mem::replace(&mut self.phases, Phases::start());
        self.record.total_micros = self.record.total_micros.saturating_add(phases.total_micros());
        self.record.phases.extend(phases.into_phases());
    }
}
