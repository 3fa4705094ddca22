//! What the API knows beyond the VCN: attachments and their states, names, tags, versions, tokens, faults.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Instant, SystemTime};

use ipnetwork::IpNetwork;
use serde_json::{Map, Value};
use vcn::{Family, Ocid};

use super::answer::{Answer, Outcome, refuse};
use super::chance::Chance;
use super::fault::ApiFault;
use super::route::Operation;
use crate::vnic::Vnic;

/// All of it. Objects are by OCID, so that lists come in the order of creation.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) attachments: BTreeMap<String, Attachment>,
    pub(super) vnics: BTreeMap<Ocid, VnicRecord>,
    pub(super) addresses: BTreeMap<String, AddressRecord>,
    /// By instance name, where it is not RUNNING.
    pub(super) instance_states: BTreeMap<String, String>,
    /// By retry token.
    pub(super) replays: BTreeMap<String, Replay>,
    pub(super) users: BTreeMap<String, Vec<u8>>,
    pub(super) tokens: BTreeMap<String, Session>,
    pub(super) service_accounts: BTreeSet<String>,
    pub(super) faults: Vec<ApiFault>,
    pub(super) forbidden: BTreeSet<Operation>,
    pub(super) answered: BTreeMap<(Operation, u16), u64>,
    pub(super) chance: Chance,
    /// The rate limit's tokens, and when they were counted.
    pub(super) allowance: (f64, Instant),
    /// What of the VCN is in here.
    pub(super) followed: Option<u64>,
    number: u64,
}

/// A VNIC attachment.
#[derive(Clone, Debug)]
pub(super) struct Attachment {
    pub(super) node: String,
    pub(super) instance: Ocid,
    pub(super) state: State,
    /// While ATTACHING it holds its addresses, and has no link yet.
    pub(super) vnic: Vnic,
    pub(super) display_name: Option<String>,
    /// What the VNIC will get.
    pub(super) fields: Map<String, Value>,
    pub(super) created: SystemTime,
    pub(super) version: u64,
    pub(super) ended: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Attaching,
    Attached,
    Detaching,
    Detached,
}

/// What only the API knows of a VNIC.
#[derive(Clone, Debug)]
pub(super) struct VnicRecord {
    pub(super) node: String,
    pub(super) vnic: Vnic,
    /// Names, groups, tags: as they were given.
    pub(super) fields: Map<String, Value>,
    pub(super) created: SystemTime,
    pub(super) version: u64,
}

/// A private IP or an IPv6.
#[derive(Clone, Debug)]
pub(super) struct AddressRecord {
    pub(super) vnic: Ocid,
    pub(super) node: String,
    pub(super) network: IpNetwork,
    pub(super) primary: bool,
    pub(super) fields: Map<String, Value>,
    pub(super) created: SystemTime,
}

/// A session token's key and end.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) public_key: Vec<u8>,
    pub(super) expires: SystemTime,
}

/// The first answer to a retry token.
#[derive(Clone, Debug)]
pub(super) struct Replay {
    pub(super) body: Vec<u8>,
    pub(super) answer: Answer,
    /// What was made, where it can be deleted again.
    pub(super) made: Option<String>,
    /// Until when it is remembered.
    pub(super) until: Instant,
}

impl State {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Attaching => "ATTACHING",
            Self::Attached => "ATTACHED",
            Self::Detaching => "DETACHING",
            Self::Detached => "DETACHED",
        }
    }

    pub(super) const fn is_passing(self) -> bool {
        matches!(self, Self::Attaching | Self::Detaching)
    }
}

impl Books {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            attachments: BTreeMap::new(),
            vnics: BTreeMap::new(),
            addresses: BTreeMap::new(),
            instance_states: BTreeMap::new(),
            replays: BTreeMap::new(),
            users: BTreeMap::new(),
            tokens: BTreeMap::new(),
            service_accounts: BTreeSet::new(),
            faults: Vec::new(),
            forbidden: BTreeSet::new(),
            answered: BTreeMap::new(),
            chance: Chance::new(seed),
            allowance: (0.0, Instant::now()),
            followed: None,
            number: 0,
        }
    }

    /// An OCID for something new.
    pub(super) fn new_id(&mut self, kind: &str) -> String {
        self.number += 1;
        format!("ocid1.{kind}.oc1.iad.abuwcljtsandbox{:010}", self.number)
    }

    pub(super) fn new_address_id(&mut self, family: Family) -> String {
        self.new_id(if family == Family::Ipv4 { "privateip" } else { "ipv6" })
    }

    /// What was answered before to the same retry token, if the same was asked.
    pub(super) fn replay(&mut self, token: &str, body: &[u8]) -> Outcome<Option<Answer>> {
        let now = Instant::now();
        self.replays.retain(|_, replay| now < replay.until);
        let Some(replay) = self.replays.get(token) else { return Ok(None) };
        if replay.body != body {
            return Err(refuse(400, "InvalidParameter", "the retry token was used with another body"));
        }
        let is_gone = |made: &String| match self.attachments.get(made) {
            Some(attachment) => matches!(attachment.state, State::Detaching | State::Detached),
            None => !self.addresses.contains_key(made),
        };
        if replay.made.as_ref().is_some_and(is_gone) {
            let message = "the retry token was used for something that was deleted since";
            return Err(refuse(409, "InvalidatedRetryToken", message));
        }
        Ok(Some(replay.answer.clone()))
    }
}

/// The version of an object, as text.
pub(super) fn etag(version: u64) -> String {
    format!("v{version}")
}

/// Whether a change was meant for this version.
pub(super) fn check_version(if_match: Option<&str>, version: u64) -> Outcome<()> {
    match if_match {
        Some(wanted) if wanted != "*" && wanted != etag(version) => {
            Err(refuse(412, "NoEtagMatch", format!("if-match is {wanted}, the resource is at {}", etag(version))))
        }
        _ => Ok(()),
    }
}
