//! What secondary VNICs are for, as VnicAttachments request it. Pure. A VNIC that the NativePodNetwork names is the pods',
//! whatever a VnicAttachment says; one that no VnicAttachment describes was attached by hand, and is configured on the host.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::condition::find;
use api::{AttachmentReason, ConditionType, NodeReport, Reason as _, VnicAttachment, VnicAttachmentStatus};
use ipam::AttachOffer;
use vcn::{AttachMode, Family, LinkKindName, Mtu, Ocid, PerFamily, Purpose, Vnic, VnicRoute};

use crate::facts::condition::Reason;
use crate::facts::node_facts::{NodeFacts, npn_vnic};

pub(crate) type Requests = BTreeMap<Ocid, VnicRequest>;

/// What one VNIC is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VnicRequest {
    /// The generation of the VnicAttachment that says so.
    pub generation: Option<i64>,
    pub purpose: Purpose,
    pub mtu: Mtu,
    /// Whether the host reaches its subnet through it.
    pub subnet_route: bool,
    /// What pods may do with it, if its purpose is Attach; its name and the networks behind it in any case. Without what
    /// only the VNIC itself tells: VLAN tag and subnets.
    pub offer: AttachOffer,
    pub own: Vec<IpAddr>,
    /// Its IPv4 addresses for pods that share it.
    pub pod_addresses: Vec<IpAddr>,
}

/// The requests for VNICs of this node.
pub(crate) fn requests(facts: &NodeFacts) -> Requests {
    let attachments = facts.attachments.value.iter().flatten();
    let of = |attachment: &VnicAttachment| {
        let status = attachment.status.as_ref()?;
        let vnic = facts.vnics().iter().skip(1).find(|vnic| Some(&vnic.id) == status.vnic_id.as_ref())?;
        let is_named = npn_vnic(facts.npn(), &vnic.id).is_some();
        (!is_named).then(|| (vnic.id.clone(), VnicRequest::of(attachment, status, vnic)))
    };
    attachments.filter_map(of).collect()
}

/// Whether VnicAttachments matter to this node: one may describe a VNIC that is listed, or reports a VNIC that is no longer.
pub(crate) fn needs_attachments(facts: &NodeFacts) -> bool {
    let mut secondary = facts.vnics().iter().skip(1);
    secondary.any(|vnic| npn_vnic(facts.npn(), &vnic.id).is_none())
        || facts.attachments.value.iter().flatten().any(|attachment| {
            let Some(VnicAttachmentStatus { vnic_id: Some(id), node: Some(report), .. }) = &attachment.status else {
                return false;
            };
            must_report_end(attachment, report) && facts.vnics().iter().all(|vnic| vnic.id != *id)
        })
}

/// Whether the report must change if the VNIC is no longer listed. A deleted object goes with its VNIC; only the end of pods
/// matters then.
pub(crate) fn must_report_end(attachment: &VnicAttachment, report: &NodeReport) -> bool {
    let is_deleted = attachment.metadata.deletion_timestamp.is_some();
    report.in_use > 0 || !is_deleted && (report.configured || report.reason != Reason::VnicNotListed.as_str())
}

impl VnicRequest {
    fn of(attachment: &VnicAttachment, status: &VnicAttachmentStatus, vnic: &Vnic) -> Self {
        let spec = &attachment.spec.vnic;
        let route = |route: &api::Route| VnicRoute { destination: route.destination, via: route.via };
        Self {
            generation: attachment.metadata.generation,
            purpose: spec.purpose.into(),
            mtu: spec.mtu.map_or(Mtu::VCN, |mtu| Mtu(mtu.into())),
            subnet_route: spec.subnet_route && spec.purpose == api::Purpose::Host,
            offer: AttachOffer {
                name: spec.name.to_string(),
                mode: spec.mode.into(),
                allowed_namespaces: spec.allowed_namespaces.clone(),
                vlan: None,
                link_kind: LinkKindName::HARDWARE,
                subnets: PerFamily::default(),
                routes: spec.routes.iter().map(route).collect(),
                is_leaving: attachment.metadata.deletion_timestamp.is_some() || is_shrinking(attachment, status, vnic),
            },
            own: status.own_addresses.clone(),
            pod_addresses: status.pod_addresses.clone(),
        }
    }

    /// Whether one pod at a time has the VNIC itself.
    pub(crate) fn is_exclusive(&self) -> bool {
        (self.purpose, self.offer.mode) == (Purpose::Attach, AttachMode::Exclusive)
    }

    /// Whether several pods have an address each.
    pub(crate) fn is_shared(&self) -> bool {
        (self.purpose, self.offer.mode) == (Purpose::Attach, AttachMode::Shared)
    }

    /// Its own address of a family, as the controller knows it.
    pub(crate) fn own(&self, family: Family) -> Option<IpAddr> {
        self.own.iter().copied().find(|address| Family::of(*address) == family)
    }
}

/// Whether a VNIC that pods share has more addresses than the spec says. Which ones go is the controller's choice. Of IPv6,
/// addresses that another program created are listed as well: they count only while the controller has something to do.
fn is_shrinking(attachment: &VnicAttachment, status: &VnicAttachmentStatus, vnic: &Vnic) -> bool {
    let spec = &attachment.spec.vnic;
    let others = vnic.addressing.ipv6.as_ref().map_or(0, |at| at.others.len());
    spec.is_shared_by_pods()
        && (status.pod_addresses.len() > usize::from(spec.ipv4_count)
            || others > usize::from(spec.ipv6_count) && !is_settled(attachment, status))
}

fn is_settled(attachment: &VnicAttachment, status: &VnicAttachmentStatus) -> bool {
    let ready = find(&status.conditions, ConditionType::Ready);
    let is_fine = |reason: &str| reason == AttachmentReason::NotConfigured.as_str();
    status.observed_generation == attachment.metadata.generation
        && ready.is_some_and(|ready| ready.is_true() || is_fine(&ready.reason))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Instant;

    use resident::watch_activity::WatchActivity;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::{npn, vm_vnics, vnic};

    /// A VnicAttachment of the VNIC `storage`, which the controller has carried out.
    pub(crate) fn attachment(spec: &Value, status: &Value) -> VnicAttachment {
        let mut object = json!({
            "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicAttachment",
            "metadata": { "name": "a", "uid": "u", "generation": 1 },
            "spec": { "instanceId": "ocid1.instance.oc1.iad.node", "subnetId": "ocid1.subnet.oc1.iad.s", "name": "storage" },
            "status": { "vnicId": "ocid1.vnic.oc1.iad.storage", "nodeName": "node", "observedGeneration": 1 },
        });
        for (part, more) in [("spec", spec), ("status", status)] {
            object[part].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        }
        serde_json::from_value(object).unwrap()
    }

    /// The VNICs `primary`, `pods` and `storage`, of which the attachment is about one.
    pub(crate) fn facts(attachment: VnicAttachment) -> NodeFacts {
        let vnics = [vm_vnics(), vec![vnic("storage", 0x0c, "10.0.64")]].concat();
        let mut facts = NodeFacts::default();
        facts.vnics.absorb(Ok(vnics), Instant::now());
        facts.npn.absorb(Ok(Some(npn("SUCCESS"))), Instant::now());
        facts.attachments.watched(vec![attachment], WatchActivity::begin());
        facts
    }

    #[test]
    fn vnic_of_the_native_pod_network_is_the_pods() {
        let host = json!({ "purpose": "Host", "mtu": 1500 });
        let requested = |status: &Value| {
            let requests = requests(&facts(attachment(&host, status)));
            requests.into_iter().map(|(id, it)| (id.unique_id().to_owned(), it.purpose, it.mtu)).collect::<Vec<_>>()
        };
        assert_eq!(requested(&json!({})), [("storage".to_owned(), Purpose::Host, Mtu(1500))]);
        for other in ["pods", "primary", "gone"] {
            assert_eq!(requested(&json!({ "vnicId": format!("ocid1.vnic.oc1.iad.{other}") })), [], "{other}");
        }
    }

    #[test]
    fn new_use_ends_when_addresses_or_vnic_are_being_removed() {
        let ready = |status: &str, reason: &str| json!([{ "type": "Ready", "status": status, "reason": reason, "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
        let is_leaving = |spec: Value, status: Value, others: &[&str], is_deleted: bool| {
            let mut attachment = attachment(&spec, &status);
            if is_deleted {
                attachment.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
            }
            let mut facts = facts(attachment);
            let mut vnics = facts.vnics().to_vec();
            let mut at = vnics[2].addressing.ipv4.clone().unwrap();
            at.others = others.iter().map(|address| address.parse().unwrap()).collect();
            vnics[2].addressing.ipv6 = Some(at);
            facts.vnics.absorb(Ok(vnics), Instant::now());
            requests(&facts).values().all(|request| request.offer.is_leaving)
        };
        let shared = |ipv4: u8, ipv6: u8| json!({ "purpose": "Attach", "ipv4Count": ipv4, "ipv6Count": ipv6 });
        let two = json!({ "podAddresses": ["10.0.64.8", "10.0.64.9"], "conditions": ready("True", "Ready") });
        let pending = json!({ "conditions": ready("False", "InUse") });
        for (case, spec, status, others, is_deleted, expected) in [
            ("all there", shared(2, 1), two.clone(), vec!["fd00::1"], false, false),
            ("deleted", shared(2, 1), two.clone(), vec![], true, true),
            ("fewer IPv4", shared(1, 0), two.clone(), vec![], false, true),
            ("fewer IPv6", shared(0, 1), pending.clone(), vec!["fd00::1", "fd00::2"], false, true),
            ("another program's IPv6", shared(2, 1), two.clone(), vec!["fd00::1", "fd00::2"], false, false),
            ("no pods share it", json!({ "purpose": "Host" }), pending, vec!["fd00::1"], false, false),
        ] {
            assert_eq!(is_leaving(spec, status, &others, is_deleted), expected, "{case}");
        }
    }
}
