//! What a test makes the cloud do: refuse, lose, ignore, delay, hide.

use std::time::Duration;

use vcn::{Family, Ocid};

use super::FakeCloud;
use crate::oci::emulator::{ApiFault, ApiFaultKind, Operation, Refusal};

impl FakeCloud {
    /// From now on a request for a VNIC in this subnet is refused with this status and code.
    pub fn refuse_vnics_in(&self, subnet: &Ocid, refusal: impl Into<Refusal>) {
        self.transport.script().refused_subnets.insert(subnet.to_string(), refusal.into());
    }

    /// From now on a new attachment is missing from the first so many lists.
    pub fn lag_lists(&self, lists: u32) {
        self.transport.emulator.state().list_lag = lists;
    }

    /// The next so many lists lack every attachment of an instance.
    pub fn hide_all(&self, instance: &Ocid, lists: u32) {
        let all = self.attachments().into_iter().filter(|attachment| attachment.instance_id == *instance);
        all.for_each(|attachment| self.hide(&attachment.id, lists));
    }

    /// The next so many lists lack an attachment.
    pub fn hide(&self, attachment: &Ocid, lists: u32) {
        self.transport.emulator.state().unlisted.insert(attachment.to_string(), lists);
    }

    /// From now on lists show an attachment in the state that it has now.
    pub fn freeze_in_lists(&self, attachment: &Ocid) {
        let mut state = self.transport.emulator.current();
        if let Some(now) = state.attachments.get(attachment.as_str()).map(|found| found.state) {
            state.frozen.insert(attachment.to_string(), now);
        }
    }

    /// Refuses the next call of an operation (of one family: `ListIpv6s`); several are refused in order. With
    /// `carried_out`, the call is carried out all the same: its answer is lost.
    pub fn fail_next(&self, operation: &'static str, refusal: impl Into<Refusal>, carried_out: bool) {
        let refusal = refusal.into();
        let kind = match carried_out {
            true => ApiFaultKind::RefuseAfterwards(refusal),
            false => ApiFaultKind::Refuse(refusal),
        };
        self.inject(operation, ApiFault::new(kind).times(1));
    }

    /// From now on an operation (`UpdateVnic`, `DeleteAddress`) is accepted but not applied.
    pub fn accept_without_effect(&self, operation: &'static str) {
        self.transport.emulator.state().ignored.extend(named(operation).map(|(operation, _)| operation));
    }

    /// It is applied again.
    pub fn carry_out(&self, operation: &'static str) {
        self.transport.emulator.state().ignored.retain(|ignored| ignored.name() != operation);
    }

    /// From now on answers to an operation come so much later than they were given.
    pub fn answer_late(&self, operation: &'static str, delay: Duration) {
        let is_delay = |fault: &ApiFault| matches!(fault.kind, ApiFaultKind::Delay(_));
        let is_of = |fault: &ApiFault| fault.operation.is_some_and(|of| of.name() == operation);
        self.transport.emulator.state().faults.retain(|fault| !(is_delay(fault) && is_of(fault)));
        self.inject(operation, ApiFault::new(ApiFaultKind::Delay(delay)));
    }

    /// How a retry token that comes with another body is refused from now on.
    pub fn refuse_changed_requests(&self, refusal: impl Into<Refusal>) {
        self.transport.emulator.state().reused_token = Some(refusal.into());
    }

    /// From now on calls about this OCID are answered with 404.
    pub fn forbid(&self, subject: &Ocid) {
        self.transport.script().forbidden.insert(subject.to_string());
    }

    /// Permits requests for the subject again.
    pub fn allow(&self, subject: &Ocid) {
        self.transport.script().forbidden.remove(subject.as_str());
    }

    /// After so many more calls, one is never answered, but carried out with `carried_out`: its caller can only be
    /// dropped there, like a process that is killed.
    pub fn halt(&self, calls: usize, carried_out: bool) {
        self.transport.script().halt = Some((calls, carried_out));
    }

    fn inject(&self, operation: &str, fault: ApiFault) {
        let Some((operation, family)) = named(operation) else { return };
        let mut fault = fault.of(operation);
        fault.family = family;
        self.transport.emulator.state().faults.push(fault);
    }
}

/// An operation by its name here, or by Oracle's of one family.
fn named(name: &str) -> Option<(Operation, Option<Family>)> {
    let plain = Operation::ALL.iter().find(|operation| operation.name() == name).map(|operation| (*operation, None));
    let (general, family) = if name.contains("Ipv6") {
        (name.replace("Ipv6s", "Addresses").replace("Ipv6", "Address"), Family::Ipv6)
    } else {
        (name.replace("PrivateIps", "Addresses").replace("PrivateIp", "Address"), Family::Ipv4)
    };
    let of_family = || Operation::ALL.iter().find(|operation| operation.name() == general);
    plain.or_else(|| of_family().map(|operation| (*operation, Some(family))))
}
