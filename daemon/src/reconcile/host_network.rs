//! The stage that brings the host's network in sync: links, addresses, routes, rules, settings and nft tables.

#[cfg(test)]
mod tests;

use datapath::host::{HostNetwork, HostVnic, desired};
use datapath::{Change, LinkKind, Object, Step};
use installer::SettingChange;
use netlink::Link;
use resident::logging::chain;
use vcn::IfName;

use super::StageReport;
use super::context::Context;
use super::host::{self, Batch, Part};
use super::ownership::Ownership;
use crate::facts::condition::{Condition, Reason};
use crate::facts::reconcile_report::{Cause, Changed};
use crate::settings::HostNetworking;

#[derive(Debug, Default)]
pub(super) struct HostNetworkStage {
    /// What failed in the last reconcile.
    failed: Vec<FailedBatch>,
}

/// Steps that failed, and why.
#[derive(Debug)]
struct FailedBatch {
    batch: Batch,
    condition: Condition,
}

impl HostNetworkStage {
    pub(super) fn run(&mut self, context: &Context<'_>, report: &mut StageReport) {
        let Some(network) = &context.desired.network else { return };
        if context.node.settings.host_networking == HostNetworking::Off {
            return;
        }
        match self.sync(network, context, report) {
            Ok(vnics) if context.is_preview() || !self.has_failed(&Part::Base) => report.configured = Some(vnics),
            Ok(_) => {}
            Err(error) => report.conditions.push(Condition::blocking(Reason::HostNetworkFailed, chain(&error))),
        }
    }

    /// What has to change, as far as it is tried now.
    fn plan(
        &mut self,
        network: &HostNetwork,
        context: &Context<'_>,
        report: &mut StageReport,
    ) -> Result<Vec<Batch>, datapath::Error> {
        let mut plan = host::plan(&mut context.node.places()?, network, &context.desired.spared, &context.held)?;
        // Other conditions say why objects of undecided VNICs stay.
        let undecided = HostNetwork { vnics: context.desired.undecided.clone(), ..network.clone() };
        if !undecided.vnics.is_empty() {
            let reported = desired(&undecided);
            plan.spared.retain(|object| !reported.iter().any(|reported| reported.same_slot(object)));
        }
        report.conditions.extend(plan.conditions);
        report.conditions.extend(left_in_place(&plan.spared, context.ownership));
        let mut batches = plan.batches;
        batches.retain(|batch| context.removes_stale || batch.part != Part::Stale);
        if context.is_preview() {
            return Ok(batches);
        }
        let before = std::mem::take(&mut self.failed);
        if context.cause == Cause::Kernel {
            // Not what failed before: trying and undoing it causes kernel events of its own, endlessly.
            self.failed = before.into_iter().filter(|failed| batches.contains(&failed.batch)).collect();
            batches.retain(|batch| !self.failed.iter().any(|failed| failed.batch == *batch));
        }
        Ok(batches)
    }

    /// Applies the batches; what fails is remembered.
    fn apply(
        &mut self,
        batches: Vec<Batch>,
        network: &HostNetwork,
        context: &Context<'_>,
        report: &mut StageReport,
    ) -> Result<(), datapath::Error> {
        let changes: Vec<SettingChange> = batches.iter().flat_map(|batch| &batch.steps).flat_map(settings).collect();
        if let Err(error) = installer::note_settings(&context.node.settings.data_dir, &context.node.boot, &changes) {
            report.conditions.push(Condition::degraded(Reason::StateFailed, chain(&error)).about("sysctls.json"));
        }
        if batches.is_empty() {
            return Ok(());
        }
        let mut places = context.node.places()?;
        for batch in batches {
            match datapath::apply(&batch.steps, &mut places) {
                Ok(()) => report.changes.extend(batch.steps.iter().map(changed)),
                Err(error) => {
                    let condition =
                        self.lost(&batch.part, network, context).unwrap_or_else(|| condition(&batch.part, &error));
                    self.failed.push(FailedBatch { condition, batch });
                }
            }
        }
        Ok(())
    }

    /// The condition of a VNIC whose link went away while it was configured. The kernel's event starts another reconcile.
    fn lost(&self, part: &Part, network: &HostNetwork, context: &Context<'_>) -> Option<Condition> {
        let host = network.vnics.iter().find(|it| *part == Part::Vnic(it.vnic.id.clone()))?;
        let link = host.placement.link();
        let message = || format!("its link {link} went away while it was configured");
        let is_lost = is_lost(link, &context.links, &host::links().ok()?);
        is_lost.then(|| Condition::degraded(Reason::LinkMissing, message()).about(part))
    }

    fn sync(
        &mut self,
        network: &HostNetwork,
        context: &Context<'_>,
        report: &mut StageReport,
    ) -> Result<Vec<HostVnic>, datapath::Error> {
        let batches = self.plan(network, context, report)?;
        if context.node.settings.host_networking == HostNetworking::Report {
            self.failed.clear();
            report.conditions.extend(drifted(&batches));
            let is_drifted = |part: &Part| batches.iter().any(|batch| batch.part == *part);
            if is_drifted(&Part::Base) {
                return Ok(Vec::new());
            }
            let in_sync = network.vnics.iter().filter(|host| !is_drifted(&Part::Vnic(host.vnic.id.clone())));
            return Ok(in_sync.cloned().collect());
        }
        if context.is_preview() {
            // What failed before is among the changes, and not known to fail again.
            report.changes.extend(batches.iter().flat_map(|batch| &batch.steps).map(changed));
            return Ok(network.vnics.clone());
        }
        self.apply(batches, network, context, report)?;
        report.conditions.extend(self.failed.iter().map(|failed| failed.condition.clone()));
        let is_in_sync = |vnic: &&HostVnic| !self.has_failed(&Part::Vnic(vnic.vnic.id.clone()));
        Ok(network.vnics.iter().filter(is_in_sync).cloned().collect())
    }

    fn has_failed(&self, part: &Part) -> bool {
        self.failed.iter().any(|failed| failed.batch.part == *part)
    }
}

/// What is not changed because only reports are wanted, by the part of the host's network.
fn drifted(batches: &[Batch]) -> Vec<Condition> {
    let condition = |batch: &Batch| {
        let first = batch.steps.first()?;
        let message = format!(
            "{} change(s) are not made, because HOST_NETWORKING is `report`, such as {first}",
            batch.steps.len()
        );
        Some(Condition::degraded(Reason::HostNetworkDrifted, message).about(&batch.part))
    };
    batches.iter().filter_map(condition).collect()
}

/// The values of settings before the step changes them, for `uninstall` to restore; of links, only of foreign ones.
fn settings(step: &Step) -> Vec<SettingChange> {
    match &step.change {
        Change::Replace { from: Object::Sysctl(from), to: Object::Sysctl(to) } => {
            vec![SettingChange { key: to.key.clone(), before: from.value.clone(), set: to.value.clone() }]
        }
        Change::Replace { from: Object::Link(from), to: Object::Link(to) } if to.kind == LinkKind::Device => {
            let mtu = from.mtu.zip(to.mtu).filter(|(before, set)| before != set);
            let mtu = mtu.map(|(before, set)| SettingChange::mtu(&to.name, before, set));
            mtu.into_iter().chain((to.up && !from.up).then(|| SettingChange::raised(&to.name))).collect()
        }
        _ => Vec::new(),
    }
}

/// Objects that stay for running pods although another pod network owns the node, or its owner is unknown.
fn left_in_place(spared: &[Object], ownership: Ownership) -> Option<Condition> {
    // A VLAN link stays because links of other programs may be on it: there is nothing to do about it.
    let spared: Vec<&Object> = spared.iter().filter(|object| !object.is_vlan()).collect();
    let (first, count) = (spared.first()?, spared.len());
    let (state, until) = match ownership {
        Ownership::Ours | Ownership::Other => {
            ("another pod network owns this node (see podNetwork)", "until the node is drained and rebooted")
        }
        Ownership::Unknown => (
            "the owner of this node's pod network is not known at the moment (see podNetwork)",
            "until it is: nothing has been handed over, and there is no need to drain the node",
        ),
    };
    let message = format!(
        "{state}; {count} object(s) configured for its pods, such as {first}, stay for those that still run, {until}"
    );
    Some(Condition::degraded(Reason::LeftInPlace, message))
}

/// Whether the link went away during the reconcile: its VNIC is being detached.
fn is_lost(link: &IfName, before: &[Link], now: &[Link]) -> bool {
    before.iter().find(|it| it.name == *link).is_some_and(|it| now.iter().all(|other| other.index != it.index))
}

fn condition(part: &Part, error: &datapath::Error) -> Condition {
    let is_unsupported = matches!(error, datapath::Error::Apply { source, .. } if source.is_unsupported());
    let message = chain(error);
    match part {
        Part::Nft if is_unsupported => Condition::degraded(
            Reason::KernelLacksNft,
            format!("{message}; pods cannot reach 169.254.169.254 (DNS, time, metadata) from secondary VNICs"),
        ),
        Part::Nft => Condition::degraded(Reason::NftFailed, message),
        Part::Base => Condition::blocking(Reason::HostNetworkFailed, message).about(part),
        Part::Stale | Part::Vnic(_) => Condition::degraded(Reason::HostNetworkFailed, message).about(part),
    }
}

/// A step as a change of the report.
pub(super) fn changed(step: &Step) -> Changed {
    let object = match &step.change {
        Change::Add(object) | Change::Delete(object) | Change::Replace { to: object, .. } => object,
    };
    let noun = match object {
        Object::Link(_) => "link",
        Object::Address(_) => "address",
        Object::Route(_) => "route",
        Object::Rule(_) => "rule",
        Object::Neighbour(_) => "neighbour",
        Object::Sysctl(_) => "sysctl",
        Object::NftTable(_) => "nft",
    };
    Changed::new(noun, step)
}
