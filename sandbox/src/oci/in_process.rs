//! The in-process door: our client and the emulator in one process, without network, time or privilege, for tests of
//! code that calls the API. Accepted work waits until the test calls [`FakeCloud::settle`].

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, pending};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Bytes;
use oci::{ApiKey, Budget, Carrier, Endpoints, Failure, Instance, Login, Oci, Options, Policy, Rates, VnicAttachment};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use vcn::{Family, MachineKind, Ocid, PerFamily};

use super::emulator::{
    ApiFault, ApiFaultKind, AttachmentState, Emulator, Handled, OciSettings, Operation, Refusal, Request, Task,
    attachment_document, instance_document, not_found, refuse, route,
};
use super::http::new_key;
use crate::inventory::Instance as Machine;
use crate::spec::VnicSpec;
use crate::{Subnet, Vcn, identity};

/// A cloud in memory, and our client of it. Clones share their state. Operations are named as Oracle names them, but for
/// addresses: `CreateAddress`, `ListAddresses`, `DeleteAddress`, `BulkCreateAddresses`, `BulkDeleteAddresses`.
#[derive(Clone, Debug)]
pub struct FakeCloud {
    client: Oci,
    door: Arc<Door>,
}

#[derive(Debug)]
struct Door {
    emulator: Emulator,
    script: Mutex<Script>,
}

/// What the test asked for, and what it may ask about.
#[derive(Debug, Default)]
struct Script {
    calls: Vec<(&'static str, String)>,
    /// How many calls are answered before one is not, and whether that one is carried out.
    halt: Option<(usize, bool)>,
    forbidden: BTreeSet<String>,
    /// Subnets in which no VNIC is created, and how that is refused.
    refused_subnets: BTreeMap<String, Refusal>,
    /// Accepted work.
    waiting: Vec<Task>,
    /// How many addresses of bulk requests come at a time; `None`: all.
    bulk_pace: Option<usize>,
}

/// One key for all clouds: creating one takes 100 ms.
#[expect(clippy::expect_used, reason = "only tests use this door")]
static KEY: LazyLock<String> = LazyLock::new(|| new_key().expect("an RSA key"));

impl Default for FakeCloud {
    fn default() -> Self {
        Self::new()
    }
}

/// The future of a response.
type Carried<'a> = Pin<Box<dyn Future<Output = Result<hyper::Response<Bytes>, Failure>> + Send + 'a>>;

impl Carrier for Door {
    fn carry(&self, request: hyper::Request<Bytes>) -> Carried<'_> {
        let (parts, body) = request.into_parts();
        let request = Request::new(parts, body.to_vec());
        let Some(Handled { response, delay, later }) = self.handle(&request) else { return Box::pin(pending()) };
        if let Some((_, task)) = later {
            self.accept(task);
        }
        let response = response.map(|response| response.into_http(&request));
        let lost = || Failure::Broken("injected fault: the response is lost".into());
        Box::pin(async move {
            // Sleeping for no time would move a paused clock.
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            response.ok_or_else(lost)
        })
    }
}

impl Door {
    fn script(&self) -> MutexGuard<'_, Script> {
        // Every change is one assignment, so a panic elsewhere leaves it whole.
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` when the response never comes.
    fn handle(&self, request: &Request) -> Option<Handled> {
        let mut script = self.script();
        let mut refusal = None;
        if let Some(route) = route(&request.method, &request.path) {
            let subject = route.subject(request);
            if script.forbidden.contains(&subject) {
                refusal = Some(not_found());
            } else if route.operation == Operation::AttachVnic {
                let body = request.json().unwrap_or_default();
                let subnet = body.get("createVnicDetails").and_then(|details| details.get("subnetId")?.as_str());
                refusal = subnet.and_then(|subnet| script.refused_subnets.get(subnet).cloned());
            }
            script.calls.push((route.operation.name(), subject));
        }
        let halted = match script.halt.take() {
            Some((0, carried_out)) => Some(carried_out),
            Some((calls, carried_out)) => {
                script.halt = Some((calls - 1, carried_out));
                None
            }
            None => None,
        };
        drop(script);
        if halted == Some(false) {
            return None;
        }
        let handled = match refusal {
            Some(refusal) => Handled::of(refusal.into()),
            None => self.emulator.handle(request, || Ok(())),
        };
        if halted.is_none() {
            return Some(handled);
        }
        if let Some((_, task)) = handled.later {
            self.accept(task);
        }
        None
    }

    /// Attaching and detaching takes until the test settles it, creating addresses only where it is paced.
    fn accept(&self, task: Task) {
        match task {
            Task::Attach(_) | Task::Detach(_) | Task::GiveUp(_) => self.script().waiting.push(task),
            Task::CreateAddresses { .. } => {
                self.script().waiting.push(task);
                self.create_addresses();
            }
            Task::DeleteAddresses { .. } => self.emulator.finish(task),
        }
    }

    /// Creates as many addresses of bulk requests as come at a time.
    fn create_addresses(&self) {
        let mut script = self.script();
        let mut left = script.bulk_pace.unwrap_or(usize::MAX);
        let mut due = Vec::new();
        for task in &mut script.waiting {
            let Task::CreateAddresses { node, vnic, family, items } = task else { continue };
            let now: Vec<_> = items.drain(..items.len().min(left)).collect();
            left -= now.len();
            due.push(Task::CreateAddresses { node: node.clone(), vnic: vnic.clone(), family: *family, items: now });
        }
        script.waiting.retain(|task| !matches!(task, Task::CreateAddresses { items, .. } if items.is_empty()));
        drop(script);
        due.into_iter().for_each(|task| self.emulator.finish(task));
    }

    /// The instance of an OCID, changed.
    fn change<T>(&self, id: &Ocid, change: impl FnOnce(&mut Machine) -> T) -> Option<T> {
        let mut instances = self.emulator.vcn().inventory().lock();
        instances.get_mut(id.as_str()).map(change)
    }
}

impl FakeCloud {
    /// An empty cloud.
    #[must_use]
    #[expect(clippy::expect_used, reason = "only tests use this door")]
    pub fn new() -> Self {
        let settings =
            OciSettings { page: 1000, addresses_per_vnic: 256, any_compartment: true, ..OciSettings::default() };
        let emulator = Emulator::new(Arc::new(Vcn::on_paper()), settings);
        let door = Arc::new(Door { emulator, script: Mutex::default() });
        // One attempt, no limit: the test sees each answer, when it comes.
        let forever = Duration::from_hours(24 * 365);
        let policy = Policy { attempts: 1, timeout: forever, deadline: forever, ..Policy::default() };
        let budget = Budget::new(Rates { most: 1e9, least: 1e9, burst: 1e9 });
        let key = ApiKey::new((identity::TENANCY, "ocid1.user.oc1..fake", "fa:ke"), KEY.as_bytes()).expect("a key");
        let endpoint = || "http://emulator".parse().expect("an endpoint");
        let endpoints = Endpoints { core: endpoint(), auth: endpoint() };
        let options = Options { policy, budget, ..Options::default() };
        let carrier = Arc::clone(&door) as Arc<dyn Carrier>;
        Self { client: Oci::carried_by(carrier, &endpoints, Login::api_key(key), options), door }
    }

    /// Adds an instance with its primary VNIC in a subnet; `most` VNICs in all.
    pub fn add_instance(&self, instance: Instance, subnet: &Ocid, most: usize) {
        let vcn = self.door.emulator.vcn();
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
        self.door.emulator.vcn().put_subnet(Subnet {
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
        let mut state = self.door.emulator.state();
        self.door.change(id, |machine| {
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
        let emulator = &self.door.emulator;
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
        let _ = self.door.emulator.set_instance_state(id.as_str(), "TERMINATING");
    }

    /// An instance ended long ago: no record of it is left.
    pub fn forget_instance(&self, id: &Ocid) {
        let emulator = &self.door.emulator;
        let gone = emulator.vcn().inventory().lock().remove(id.as_str());
        gone.iter().flat_map(|instance| &instance.vnics).for_each(|vnic| emulator.vcn().release(vnic));
        emulator.state().attachments.retain(|_, attachment| attachment.instance != *id);
        emulator.vcn().changed();
    }

    /// An instance is moved to a compartment that the caller may not read. Its VNICs stay in their subnets'.
    pub fn hide_instance(&self, id: &Ocid, compartment: &Ocid) {
        self.forbid(id);
        self.door.change(id, |machine| machine.compartment = compartment.clone());
        for attachment in self.door.emulator.current().attachments.values_mut() {
            if attachment.instance == *id {
                attachment.compartment = compartment.clone();
            }
        }
    }

    /// Carries out what was accepted: ATTACHING becomes ATTACHED, DETACHING becomes DETACHED; STARTING, STOPPING and
    /// TERMINATING become RUNNING, STOPPED and TERMINATED; paced addresses are created.
    pub fn settle(&self) {
        for state in self.door.emulator.state().instance_states.values_mut() {
            let settled = match state.as_str() {
                "STARTING" => "RUNNING",
                "STOPPING" => "STOPPED",
                "TERMINATING" => "TERMINATED",
                _ => continue,
            };
            settled.clone_into(state);
        }
        let is_paced = |task: &mut Task| matches!(task, Task::CreateAddresses { .. });
        let due: Vec<Task> = self.door.script().waiting.extract_if(.., |task| !is_paced(task)).collect();
        due.into_iter().for_each(|task| self.door.emulator.finish(task));
        self.door.create_addresses();
    }

    /// From now on so many addresses of bulk requests come at once, and as many more at each [`FakeCloud::settle`].
    pub fn pace_bulks(&self, addresses: usize) {
        self.door.script().bulk_pace = Some(addresses);
    }

    /// Detaches a VNIC past the API, at once.
    pub fn detach_behind(&self, attachment: &Ocid) {
        let emulator = &self.door.emulator;
        let found = emulator.state().attachments.get(attachment.as_str()).cloned();
        match found {
            Some(found) if found.state == AttachmentState::Attaching => emulator.give_up(attachment.as_str()),
            Some(found) => drop(emulator.vcn().detach_vnic(&found.node, &found.vnic.id)),
            None => {}
        }
    }

    /// The cloud undoes what it has begun: ATTACHING becomes DETACHED, DETACHING becomes ATTACHED.
    pub fn give_up(&self, attachment: &Ocid) {
        self.door.emulator.give_up(attachment.as_str());
    }

    /// From now on a request for a VNIC in this subnet is refused with this status and code.
    pub fn refuse_vnics_in(&self, subnet: &Ocid, (status, code): (u16, &str)) {
        self.door.script().refused_subnets.insert(subnet.to_string(), injected((status, code)));
    }

    /// Deletes an address past the API, also a VNIC's own IPv6 address.
    pub fn delete_behind(&self, address: IpAddr) {
        let emulator = &self.door.emulator;
        let state = emulator.current();
        let found = state.addresses.values().find(|record| record.network.ip() == address);
        if let Some(record) = found {
            let _ = emulator.vcn().unassign(&record.node, &record.vnic, record.network);
        }
    }

    /// From now on a new attachment is missing from the first so many lists.
    pub fn lag_lists(&self, lists: u32) {
        self.door.emulator.state().list_lag = lists;
    }

    /// The next so many lists lack every attachment of an instance.
    pub fn hide_all(&self, instance: &Ocid, lists: u32) {
        let all = self.attachments().into_iter().filter(|attachment| attachment.instance_id == *instance);
        all.for_each(|attachment| self.hide(&attachment.id, lists));
    }

    /// The next so many lists lack an attachment.
    pub fn hide(&self, attachment: &Ocid, lists: u32) {
        self.door.emulator.state().unlisted.insert(attachment.to_string(), lists);
    }

    /// From now on lists show an attachment in the state that it has now.
    pub fn freeze_in_lists(&self, attachment: &Ocid) {
        let mut state = self.door.emulator.current();
        if let Some(now) = state.attachments.get(attachment.as_str()).map(|found| found.state) {
            state.frozen.insert(attachment.to_string(), now);
        }
    }

    /// Refuses the next call of an operation (of one family: `ListIpv6s`); several are refused in order. With
    /// `carried_out`, the call is carried out all the same: its answer is lost.
    pub fn fail_next(&self, operation: &'static str, (status, code): (u16, &str), carried_out: bool) {
        self.refuse_next(operation, (status, code, "as the test wants"), carried_out);
    }

    /// The same, with this message.
    pub fn refuse_next(&self, operation: &'static str, refusal: (u16, &str, &str), carried_out: bool) {
        let (status, code, message) = refusal;
        let refusal = refuse(status, code, message);
        let kind = match carried_out {
            true => ApiFaultKind::RefuseAfterwards(refusal),
            false => ApiFaultKind::Refuse(refusal),
        };
        self.inject(operation, ApiFault::new(kind).times(1));
    }

    /// From now on an operation (`UpdateVnic`, `DeleteAddress`) is accepted but not applied.
    pub fn take_in_vain(&self, operation: &'static str) {
        self.door.emulator.state().ignored.extend(named(operation).map(|(operation, _)| operation));
    }

    /// It is applied again.
    pub fn carry_out(&self, operation: &'static str) {
        self.door.emulator.state().ignored.retain(|ignored| ignored.name() != operation);
    }

    /// From now on answers to an operation come so much later than they were given.
    pub fn answer_late(&self, operation: &'static str, delay: Duration) {
        let is_delay = |fault: &ApiFault| matches!(fault.kind, ApiFaultKind::Delay(_));
        let is_of = |fault: &ApiFault| fault.operation.is_some_and(|of| of.name() == operation);
        self.door.emulator.state().faults.retain(|fault| !(is_delay(fault) && is_of(fault)));
        self.inject(operation, ApiFault::new(ApiFaultKind::Delay(delay)));
    }

    /// How a retry token that comes with another body is refused from now on.
    pub fn refuse_other_wishes(&self, (status, code, message): (u16, &str, &str)) {
        self.door.emulator.state().reused_token = Some(refuse(status, code, message));
    }

    /// From now on calls about this OCID are answered with 404.
    pub fn forbid(&self, subject: &Ocid) {
        self.door.script().forbidden.insert(subject.to_string());
    }

    /// Ends that.
    pub fn allow(&self, subject: &Ocid) {
        self.door.script().forbidden.remove(subject.as_str());
    }

    /// After so many more calls, one is never answered, but carried out with `carried_out`: its caller can only be
    /// dropped there, like a process that is killed.
    pub fn halt(&self, calls: usize, carried_out: bool) {
        self.door.script().halt = Some((calls, carried_out));
    }

    /// All calls so far, in order: operation and subject.
    #[must_use]
    pub fn calls(&self) -> Vec<(&'static str, String)> {
        self.door.script().calls.clone()
    }

    /// All attachments.
    #[must_use]
    pub fn attachments(&self) -> Vec<VnicAttachment> {
        let state = self.door.emulator.current();
        let all = state.attachments.iter();
        all.filter_map(|(id, attachment)| typed(attachment_document(id, attachment))).collect()
    }

    fn inject(&self, operation: &str, fault: ApiFault) {
        let Some((operation, family)) = named(operation) else { return };
        let mut fault = fault.of(operation);
        fault.family = family;
        self.door.emulator.state().faults.push(fault);
    }
}

impl AsRef<Oci> for FakeCloud {
    fn as_ref(&self) -> &Oci {
        &self.client
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

fn injected((status, code): (u16, &str)) -> Refusal {
    refuse(status, code, "as the test wants")
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
