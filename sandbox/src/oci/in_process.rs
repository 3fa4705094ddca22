//! The in-process transport: our client and the emulator in one process, without network, time or privilege, for tests of
//! code that calls the API. Accepted work waits until the test calls [`FakeCloud::settle`].

mod faults;
mod transport;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use backoff::Policy;
use oci::{ApiKey, Budget, Carrier, Endpoints, Instance, KeyOwner, Login, Oci, Options, Rates, VnicAttachment};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use vcn::{MachineKind, Ocid, PerFamily};

use super::emulator::{AttachmentState, Emulator, OciSettings, attachment_document, instance_document};
use super::http::new_key;
use crate::network::Instance as Machine;
use crate::network::VnicSpec;
use crate::network::identity;
use crate::{Subnet, Vcn};
use transport::InProcessTransport;

/// A cloud in memory, and our client of it. Clones share their state. Operations are named as Oracle names them, but for
/// addresses: `CreateAddress`, `ListAddresses`, `DeleteAddress`, `BulkCreateAddresses`.
#[derive(Clone, Debug)]
pub struct FakeCloud {
    client: Oci,
    transport: Arc<InProcessTransport>,
}

/// One key for all clouds: creating one takes 100 ms.
#[expect(clippy::expect_used, reason = "only tests use this transport")]
static KEY: LazyLock<String> = LazyLock::new(|| new_key().expect("an RSA key"));

impl Default for FakeCloud {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeCloud {
    /// A cloud without instances.
    #[expect(clippy::expect_used, reason = "only tests use this transport")]
    pub fn new() -> Self {
        let settings =
            OciSettings { page: 1000, addresses_per_vnic: 256, any_compartment: true, ..OciSettings::default() };
        let emulator = Emulator::new(Arc::new(Vcn::on_paper()), settings);
        let transport = Arc::new(InProcessTransport::new(emulator));
        // One attempt, no limit: the test sees each answer, when it comes.
        let forever = Duration::from_hours(24 * 365);
        let policy = Policy { attempts: 1, timeout: forever, deadline: forever, ..oci::POLICY };
        let budget = Budget::new(Rates { most: 1e9, least: 1e9, burst: 1e9 });
        let key = ApiKey::new(
            KeyOwner { tenancy: identity::TENANCY, user: "ocid1.user.oc1..fake", fingerprint: "fa:ke" },
            KEY.as_bytes(),
        )
        .expect("a key");
        let endpoint = || "http://emulator".parse().expect("an endpoint");
        let endpoints = Endpoints { core: endpoint(), auth: endpoint() };
        let options = Options { policy, budget, ..Options::default() };
        let carrier = Arc::clone(&transport) as Arc<dyn Carrier>;
        Self { client: Oci::carried_by(carrier, &endpoints, Login::api_key(key), options), transport }
    }

    /// Adds an instance with its primary VNIC in a subnet; `most` VNICs in all.
    pub fn add_instance(&self, instance: Instance, subnet: &Ocid, most: usize) {
        let vcn = self.transport.emulator.vcn();
        let id = instance.id.clone();
        let machine = Machine {
            name: id.to_string(),
            id: id.clone(),
            compartment: instance.compartment_id.clone(),
            kind: MachineKind::Virtual,
            shape: instance.shape.clone(),
            max_vnics: u32::try_from(most.max(1)).unwrap_or(u32::MAX),
            metadata: BTreeMap::new(),
            vnics: Vec::new(),
            fault: None,
            on_paper: true,
            fields: Map::new(),
        };
        vcn.inventory().lock().insert(machine.name.clone(), machine);
        self.change_instance(&id, |known| *known = instance);
        let primary = vcn.reserve(id.as_str(), &VnicSpec::new(subnet.as_str()).without_ipv6());
        // A subnet that is full has no room for it: then the instance has no VNIC.
        let _ = primary.map(|vnic| vcn.plug(id.as_str(), crate::Vnic { primary: true, ..vnic }));
    }

    /// Adds a subnet, or changes it.
    pub fn add_subnet(&self, subnet: oci::Subnet) {
        let blocks = subnet.ipv6_blocks();
        self.transport.emulator.vcn().put_subnet(Subnet {
            name: subnet.id.to_string(),
            blocks: PerFamily { ipv4: subnet.cidr_block, ipv6: blocks.first().copied() },
            second_ipv6: blocks.get(1).copied(),
            id: subnet.id,
            compartment: subnet.compartment_id,
            router_mac: identity::router_mac(1),
            prohibit_public_ip: subnet.prohibit_public_ip_on_vnic,
        });
    }

    /// Changes an instance past the API: its state, for example.
    pub fn change_instance(&self, id: &Ocid, change: impl FnOnce(&mut Instance)) {
        let mut state = self.transport.emulator.state();
        self.transport.change(id, |machine| {
            let Some(mut instance) = typed::<Instance>(instance_document(&state, machine)) else { return };
            change(&mut instance);
            let lifecycle = json_of(&instance.lifecycle_state);
            state.instance_states.insert(machine.name.clone(), lifecycle.as_str().unwrap_or_default().to_owned());
            machine.shape.clone_from(&instance.shape);
            if machine.shape.starts_with("BM.") {
                machine.kind = MachineKind::BareMetal;
            }
            machine.compartment = instance.compartment_id.clone();
            machine.fields = fields_of(&instance);
            machine.fields.remove("lifecycleState");
            machine.fields.insert("shapeConfig".to_owned(), json_of(&instance.shape_config));
        });
    }

    /// Changes a VNIC past the API: its state, for example.
    pub fn change_vnic(&self, id: &Ocid, change: impl FnOnce(&mut oci::Vnic)) {
        let emulator = &self.transport.emulator;
        let mut state = emulator.current();
        let Some(record) = state.vnics.get_mut(id) else { return };
        let Some(before) = typed::<oci::Vnic>(emulator.vnic_document(record)) else { return };
        let mut after = before.clone();
        change(&mut after);
        let before = fields_of(&before);
        record.fields.extend(fields_of(&after).into_iter().filter(|(name, value)| before.get(name) != Some(value)));
    }

    /// An instance is terminated: it is TERMINATING, and its secondary VNICs are gone already.
    pub fn terminate(&self, id: &Ocid) {
        let _ = self.transport.emulator.set_instance_state(id.as_str(), "TERMINATING");
    }

    /// Carries out what was accepted: ATTACHING becomes ATTACHED, DETACHING becomes DETACHED; STARTING, STOPPING and
    /// TERMINATING become RUNNING, STOPPED and TERMINATED; paced addresses are created.
    pub fn settle(&self) {
        for state in self.transport.emulator.state().instance_states.values_mut() {
            let settled = match state.as_str() {
                "STARTING" => "RUNNING",
                "STOPPING" => "STOPPED",
                "TERMINATING" => "TERMINATED",
                _ => continue,
            };
            settled.clone_into(state);
        }
        self.transport.settle();
    }

    /// From now on so many addresses of bulk requests come at once, and as many more at each [`FakeCloud::settle`].
    pub fn pace_bulks(&self, addresses: usize) {
        self.transport.script().bulk_pace = Some(addresses);
    }

    /// Detaches a VNIC past the API, at once.
    pub fn detach_behind(&self, attachment: &Ocid) {
        let emulator = &self.transport.emulator;
        let found = emulator.state().attachments.get(attachment.as_str()).cloned();
        match found {
            Some(found) if found.state == AttachmentState::Attaching => emulator.give_up(attachment.as_str()),
            Some(found) => drop(emulator.vcn().detach_vnic(&found.node, &found.vnic.id)),
            None => {}
        }
    }

    /// The cloud undoes what it has begun: ATTACHING becomes DETACHED, DETACHING becomes ATTACHED.
    pub fn give_up(&self, attachment: &Ocid) {
        self.transport.emulator.give_up(attachment.as_str());
    }

    /// Deletes an address past the API, also a VNIC's own IPv6 address.
    pub fn delete_behind(&self, address: IpAddr) {
        let emulator = &self.transport.emulator;
        let state = emulator.current();
        let found = state.addresses.values().find(|record| record.network.ip() == address);
        if let Some(record) = found {
            let _ = emulator.vcn().unassign(&record.node, &record.vnic, record.network);
        }
    }

    /// All calls so far, in order: operation and subject.
    pub fn calls(&self) -> Vec<(&'static str, String)> {
        self.transport.script().calls.clone()
    }

    /// All attachments, detached ones included.
    pub fn attachments(&self) -> Vec<VnicAttachment> {
        let state = self.transport.emulator.current();
        let all = state.attachments.iter();
        all.filter_map(|(id, attachment)| typed(attachment_document(id, attachment))).collect()
    }
}

impl Deref for FakeCloud {
    type Target = Oci;

    fn deref(&self) -> &Oci {
        &self.client
    }
}

fn typed<T: DeserializeOwned>(document: Value) -> Option<T> {
    serde_json::from_value(document).ok()
}

fn json_of(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

fn fields_of(value: &impl Serialize) -> Map<String, Value> {
    match json_of(value) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
