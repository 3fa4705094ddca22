//! The OCI API without its transport: one request to one response, in the order of the real service's checks.
//!
//! ```text
//!   request ─▶ fault? ─▶ check (the transport's: signature) ─▶ rate ─▶ retry token seen? ─▶ attachment │ vnic │ address │ instance
//!                                                                                          │ holding the lock of the state
//!                                                                                          ▼
//!                                                                              State ◀─sync─▶ Vcn (plug, unplug, addresses)
//! ```
//!
//! It reads and writes the API's JSON and shares no type with our client, so that neither hides a mistake of the other.

mod address;
mod attachment;
mod fault;
mod guard;
mod host;
mod instance;
mod message;
mod operation;
mod settings;
mod state;
mod subnet;
mod sync;
mod vnic;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};
use vcn::{Family, Ocid};
use x509_cert::der::DateTime;

use crate::Vcn;
use crate::error::{Error, Result};
use state::Replay;

pub(super) use attachment::document as attachment_document;
pub use fault::{ApiFault, ApiFaultKind};
pub(super) use instance::instance_document;
pub use message::Refusal;
pub(super) use message::{Outcome, Request, Response, invalid, missing, not_found, refuse};
pub use operation::Operation;
pub(super) use operation::{Route, route};
pub use settings::OciSettings;
use state::State;
pub(super) use state::{AgentPluginState, AttachmentState, Maintenance};

/// The availability domain of everything.
const AVAILABILITY_DOMAIN: &str = "SBOX:US-ASHBURN-AD-1";

/// The emulated service, shared by its transports.
#[derive(Debug)]
pub(super) struct Emulator {
    vcn: Arc<Vcn>,
    settings: OciSettings,
    /// Locked before anything of the VCN, never after.
    state: Mutex<State>,
}

/// What to do with a request.
#[derive(Debug)]
pub(super) struct HandledRequest {
    /// `None` breaks the connection.
    pub(super) response: Option<Response>,
    pub(super) delay: Duration,
    pub(super) later: Option<(Duration, Task)>,
}

/// Accepted work that is carried out later, by [`Emulator::finish`].
#[derive(Clone, Debug)]
pub(super) enum Task {
    Attach(String),
    Detach(String),
    /// Undoes an attach or detach that has begun.
    GiveUp(String),
    /// Ends the restart of the instance of this name.
    Restart(String),
    CreateAddresses {
        vnic: Ocid,
        family: Family,
        items: Vec<Map<String, Value>>,
    },
}

/// The result of an operation: the response, the OCID of what it created, and the work that follows.
pub(super) struct OperationResult {
    pub(super) response: Response,
    pub(super) created: Option<String>,
    pub(super) later: Option<(Duration, Task)>,
}

impl From<Response> for OperationResult {
    fn from(response: Response) -> Self {
        Self { response, created: None, later: None }
    }
}

impl Emulator {
    pub(super) fn new(vcn: Arc<Vcn>, settings: OciSettings) -> Self {
        Self { vcn, settings, state: Mutex::default() }
    }

    pub(super) const fn settings(&self) -> &OciSettings {
        &self.settings
    }

    pub(super) const fn vcn(&self) -> &Arc<Vcn> {
        &self.vcn
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // A handler that panicked left its own request half done, as a crashed server would.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, in sync with the VCN.
    pub(super) fn current(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        sync::sync(&mut state, &self.vcn);
        state
    }

    /// Handles a request to the core services. `check` is the transport's own.
    pub(super) fn handle(&self, request: &Request, check: impl FnOnce() -> Outcome<()>) -> HandledRequest {
        let Some(route) = route(&request.method, &request.path) else {
            let message = format!("{} {} is not emulated", request.method, request.path);
            return HandledRequest::of(refuse(404, "NotFound", message).into());
        };
        self.guard(route.operation, route.family, || {
            check()?;
            if self.state().forbidden.contains(&route.operation) {
                return Err(not_found());
            }
            self.perform(&route, request)
        })
    }

    fn perform(&self, route: &Route, request: &Request) -> Outcome<OperationResult> {
        let mut state = self.current();
        let token = request.header("opc-retry-token").filter(|_| route.operation.takes_retry_token());
        if let Some(token) = token {
            if token.len() > 64 {
                return Err(invalid("opc-retry-token has more than 64 characters"));
            }
            if let Some(response) = state.replay(token, &request.body)? {
                return Ok(response.into());
            }
        }
        let done = self.dispatch(&mut state, route, request)?;
        if let Some(token) = token {
            let (response, created) = (done.response.clone(), done.created.clone());
            state.replays.insert(token.to_owned(), Replay { body: request.body.clone(), response, created });
        }
        Ok(done)
    }

    fn dispatch(&self, state: &mut State, route: &Route, request: &Request) -> Outcome<OperationResult> {
        let Route { operation, id, family } = route;
        let response = match operation {
            Operation::AttachVnic => return self.attach_vnic(state, request),
            Operation::DetachVnic => return self.detach_vnic(state, id, request),
            Operation::CreateAddress => return self.create_address(state, *family, request),
            Operation::InstanceAction => return self.act_on_instance(state, id, request),
            Operation::BulkCreateAddresses => return self.create_addresses(state, *family, request),
            Operation::UpdateVnic if state.ignored.contains(operation) => self.get_vnic(state, id),
            Operation::DeleteAddress if state.ignored.contains(operation) => Ok(Response::empty()),
            Operation::GetInstance => self.get_instance(state, id),
            Operation::ListInstanceAgentPlugins => self.list_agent_plugins(state, id, request),
            Operation::ListComputeHosts => self.list_hosts(state, request),
            Operation::ListInstanceMaintenanceEvents => self.list_maintenance(state, request),
            Operation::ListShapes => self.list_shapes(request),
            Operation::GetSubnet => self.get_subnet(id),
            Operation::ListVnicAttachments => self.list_attachments(state, request),
            Operation::GetVnicAttachment => Self::get_attachment(state, id),
            Operation::GetVnic => self.get_vnic(state, id),
            Operation::UpdateVnic => self.update_vnic(state, id, request),
            Operation::ListAddresses => self.list_addresses(state, *family, request),
            Operation::GetAddress => Self::get_address(state, id),
            Operation::DeleteAddress => self.delete_address(state, id, request),
            Operation::Federate | Operation::WorkloadToken => Err(not_found()),
        };
        response.map(OperationResult::from)
    }

    /// Carries out accepted work.
    pub(super) fn finish(&self, task: Task) {
        match task {
            Task::Attach(id) => self.finish_attach(&id),
            Task::Detach(id) => self.finish_detach(&id),
            Task::GiveUp(id) => self.give_up(&id),
            Task::Restart(node) => self.finish_restart(&node),
            Task::CreateAddresses { vnic, family, items } => self.finish_create(&vnic, family, &items),
        }
    }

    /// Changes the state of an instance. One that is TERMINATING has lost its secondary VNICs already.
    pub(super) fn set_instance_state(&self, node: &str, state: &str) -> Result<()> {
        let secondary: Vec<Ocid> = {
            let instances = self.vcn.inventory().lock();
            let instance = instances.get(node).ok_or_else(|| Error::NoNode(node.to_owned()))?;
            instance.vnics.iter().skip(1).map(|vnic| vnic.id.clone()).collect()
        };
        self.state().instance_states.insert(node.to_owned(), state.to_owned());
        if matches!(state, "TERMINATING" | "TERMINATED") {
            for vnic in secondary {
                self.vcn.detach_vnic(node, &vnic)?;
            }
        }
        Ok(())
    }

    /// Every list is of one compartment, which must be given and readable.
    fn compartment(&self, request: &Request) -> Outcome<Ocid> {
        let compartment = request.query("compartmentId").ok_or_else(|| missing("compartmentId"))?;
        let own = compartment == crate::network::identity::COMPARTMENT || self.settings.any_compartment;
        compartment.parse().ok().filter(|_| own).ok_or_else(not_found)
    }
}

impl HandledRequest {
    pub(super) const fn of(response: Response) -> Self {
        Self { response: Some(response), delay: Duration::ZERO, later: None }
    }
}

/// RFC 3339, in UTC.
fn timestamp(time: SystemTime) -> Option<String> {
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    DateTime::from_unix_duration(since).ok().map(|time| time.to_string())
}

/// The named fields of an object.
fn pick_fields(object: &Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    names.iter().filter_map(|name| Some(((*name).to_owned(), object.get(*name)?.clone()))).collect()
}
