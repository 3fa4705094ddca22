//! What the API knows beyond the VCN: attachments and their states, names, tags, versions, retry tokens, faults.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use ipnetwork::IpNetwork;
use serde_json::{Map, Value};
use vcn::{Family, Ocid};

use super::Operation;
use super::fault::ApiFault;
use super::message::{Outcome, Refusal, Response, invalid, not_found, refuse};
use crate::network::Vnic;

/// Objects are by OCID, so that lists come in the order of creation.
#[derive(Debug, Default)]
pub(in crate::oci) struct State {
    pub(in crate::oci) attachments: BTreeMap<String, Attachment>,
    pub(in crate::oci) vnics: BTreeMap<Ocid, VnicRecord>,
    pub(in crate::oci) addresses: BTreeMap<String, AddressRecord>,
    /// By instance name, where it is not RUNNING.
    pub(in crate::oci) instance_states: BTreeMap<String, String>,
    /// The names of instances that were restarted, in the order of the restarts.
    pub(in crate::oci) restarts: Vec<String>,
    /// Plugins of the cloud agent, by instance name and their own.
    pub(in crate::oci) agent_plugins: BTreeMap<String, BTreeMap<String, AgentPluginState>>,
    /// Instances whose host is unhealthy, by name.
    pub(in crate::oci) unhealthy_hosts: BTreeSet<String>,
    pub(in crate::oci) maintenance: Vec<Maintenance>,
    /// By the retry token of the request.
    pub(super) replays: BTreeMap<String, Replay>,
    /// The refusal of a retry token that comes with another body, where it is not the default one.
    pub(in crate::oci) reused_token: Option<Refusal>,
    pub(in crate::oci) faults: Vec<ApiFault>,
    pub(in crate::oci) forbidden: BTreeSet<Operation>,
    /// Operations that are accepted but not applied: UpdateVnic, DeleteAddress.
    pub(in crate::oci) ignored: BTreeSet<Operation>,
    /// From how many lists a new attachment is missing.
    pub(in crate::oci) list_lag: u32,
    /// From how many more lists an attachment is missing.
    pub(in crate::oci) unlisted: BTreeMap<String, u32>,
    /// In which state lists show an attachment, whatever its own.
    pub(in crate::oci) frozen: BTreeMap<String, AttachmentState>,
    pub(in crate::oci) answered: BTreeMap<(Operation, u16), u64>,
    /// The VCN's change counter at the last sync.
    pub(super) synced: Option<u64>,
    pub(super) number: u64,
}

/// A plugin of an instance's cloud agent.
#[derive(Clone, Debug)]
pub(in crate::oci) struct AgentPluginState {
    /// What the instance's configuration requests: ENABLED or DISABLED.
    pub(in crate::oci) desired: String,
    /// RUNNING, STOPPED, NOT_SUPPORTED or INVALID.
    pub(in crate::oci) status: String,
}

/// Maintenance of an instance.
#[derive(Clone, Debug)]
pub(in crate::oci) struct Maintenance {
    pub(in crate::oci) node: String,
    /// REBOOT_MIGRATION, TERMINATE, STOP or NONE.
    pub(in crate::oci) action: String,
    /// SCHEDULED, STARTED, PROCESSING, SUCCEEDED, FAILED or CANCELED.
    pub(in crate::oci) state: String,
}

#[derive(Clone, Debug)]
pub(in crate::oci) struct Attachment {
    pub(in crate::oci) node: String,
    pub(in crate::oci) instance: Ocid,
    pub(in crate::oci) compartment: Ocid,
    pub(in crate::oci) state: AttachmentState,
    /// While ATTACHING it holds its addresses, and has no link yet.
    pub(in crate::oci) vnic: Vnic,
    pub(super) display_name: Option<String>,
    /// The VNIC's fields, from the request.
    pub(in crate::oci) fields: Map<String, Value>,
    pub(super) created: SystemTime,
    pub(super) version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::oci) enum AttachmentState {
    Attaching,
    Attached,
    Detaching,
    Detached,
}

/// What only the API knows of a VNIC.
#[derive(Clone, Debug)]
pub(in crate::oci) struct VnicRecord {
    pub(super) node: String,
    pub(super) vnic: Vnic,
    /// Names, groups, tags: as they were given.
    pub(in crate::oci) fields: Map<String, Value>,
    pub(super) created: SystemTime,
    pub(super) version: u64,
}

/// A private IP or an IPv6.
#[derive(Clone, Debug)]
pub(in crate::oci) struct AddressRecord {
    pub(in crate::oci) vnic: Ocid,
    pub(in crate::oci) node: String,
    pub(in crate::oci) network: IpNetwork,
    pub(super) primary: bool,
    pub(super) fields: Map<String, Value>,
    pub(super) created: SystemTime,
}

/// The first response to a retry token.
#[derive(Clone, Debug)]
pub(super) struct Replay {
    pub(super) body: Vec<u8>,
    pub(super) response: Response,
    /// The OCID of the object, where it can be deleted again.
    pub(super) created: Option<String>,
}

impl AttachmentState {
    pub(in crate::oci) const fn name(self) -> &'static str {
        match self {
            Self::Attaching => "ATTACHING",
            Self::Attached => "ATTACHED",
            Self::Detaching => "DETACHING",
            Self::Detached => "DETACHED",
        }
    }
}

impl State {
    /// An OCID for a new object.
    pub(in crate::oci) fn new_id(&mut self, kind: &str) -> String {
        self.number += 1;
        format!("ocid1.{kind}.oc1.iad.abuwcljtsandbox{:010}", self.number)
    }

    pub(super) fn new_address_id(&mut self, family: Family) -> String {
        self.new_id(if family == Family::Ipv4 { "privateip" } else { "ipv6" })
    }

    pub(in crate::oci) fn vnic(&self, id: &str) -> Outcome<&VnicRecord> {
        id.parse().ok().and_then(|id: Ocid| self.vnics.get(&id)).ok_or_else(not_found)
    }

    /// Whether an attach or detach is under way on a node.
    pub(super) fn is_busy(&self, node: &str) -> bool {
        self.attachments.values().any(|other| {
            other.node == node && matches!(other.state, AttachmentState::Attaching | AttachmentState::Detaching)
        })
    }

    /// The earlier response to the same retry token, if it came with the same body.
    pub(super) fn replay(&self, token: &str, body: &[u8]) -> Outcome<Option<Response>> {
        let Some(replay) = self.replays.get(token) else { return Ok(None) };
        if replay.body != body {
            let refusal = self.reused_token.clone();
            return Err(refusal.unwrap_or_else(|| invalid("the retry token was used with another body")));
        }
        let is_gone = |created: &String| match self.attachments.get(created) {
            Some(attachment) => {
                matches!(attachment.state, AttachmentState::Detaching | AttachmentState::Detached)
            }
            None => !self.addresses.contains_key(created),
        };
        if replay.created.as_ref().is_some_and(is_gone) {
            let message = "the retry token was used for an object that was deleted since";
            return Err(refuse(409, "InvalidatedRetryToken", message));
        }
        Ok(Some(replay.response.clone()))
    }
}
