//! The OCI API of the emulated VCN: one emulator, as strict as the real service, and two doors. A VNIC that is attached
//! through it is plugged into the node, and one that is plugged otherwise is seen here.
//!
//! ```text
//!   Oracle's SDKs, our client ── http ───────▶ ┐ signatures, federation, proxymux (OciApi)
//!                                              ├─▶ Emulator ─▶ Vcn
//!   our client in a unit test ── in_process ─▶ ┘ no network, no clock, no privilege (FakeCloud)
//! ```

mod emulator;
mod http;
mod in_process;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::Vcn;
use crate::error::{ErrorContext, Result};
use crate::network::identity::TENANCY;
use emulator::{AgentPluginState, Emulator, Maintenance};
use http::{Access, Server};

pub use emulator::{ApiFault, ApiFaultKind, OciSettings, Operation, Refusal};
pub(crate) use http::Authority;
pub use in_process::FakeCloud;

/// A running OCI API. Ends when dropped; the VCN goes on.
#[derive(Debug)]
pub struct OciApi {
    access: Arc<Access>,
    server: Server,
}

/// An attachment as the service has it, for tests that compare that with their requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentRecord {
    /// The OCID of the attachment.
    pub id: String,
    /// The name of the instance.
    pub node: String,
    /// The OCID of the instance.
    pub instance: vcn::Ocid,
    /// `ATTACHING`, `ATTACHED`, `DETACHING` or `DETACHED`.
    pub state: &'static str,
    /// The OCID of the VNIC.
    pub vnic: vcn::Ocid,
    /// Whether it is the instance's first.
    pub primary: bool,
    /// The VNIC's free-form tags.
    pub tags: std::collections::BTreeMap<String, String>,
}

impl OciApi {
    /// Starts it: on loopback of the calling thread's network namespace, and on the services' address for the nodes.
    pub fn start(vcn: Arc<Vcn>, settings: OciSettings) -> Result<Self> {
        let access = Arc::new(Access::new(Emulator::new(vcn, settings))?);
        let server = Server::start(&access)?;
        Ok(Self { access, server })
    }

    /// The base URL of the core and federation services, on loopback of the namespace in which it was started.
    pub fn url(&self) -> String {
        format!("http://{}", self.server.loopback)
    }

    /// The same as the nodes see it.
    pub fn url_in_nodes(&self) -> String {
        format!("http://{}", self.server.in_nodes)
    }

    /// Where proxymux listens (TLS), on loopback.
    pub const fn proxymux(&self) -> SocketAddr {
        self.server.proxymux
    }

    /// The certificate authority that signed proxymux's certificate, in PEM form.
    pub fn authority_pem(&self) -> String {
        self.access.authority.certificate_pem()
    }

    /// The compartment of everything.
    pub const fn compartment(&self) -> &'static str {
        crate::network::identity::COMPARTMENT
    }

    /// Creates a user with an API key; writes `config` (in the format of `~/.oci/config`) and the key into a folder.
    pub fn write_user(&self, folder: &Path) -> Result<PathBuf> {
        let user = self.access.add_user()?;
        let key = folder.join("oci_api_key.pem");
        std::fs::write(&key, &user.key_pem).during(|| format!("write {}", key.display()))?;
        let config = folder.join("config");
        let text = format!(
            "[DEFAULT]\nuser={}\nfingerprint={}\ntenancy={TENANCY}\nregion=us-ashburn-1\nkey_file={}\n",
            user.user,
            user.fingerprint,
            key.display()
        );
        std::fs::write(&config, text).during(|| format!("write {}", config.display()))?;
        Ok(config)
    }

    /// Lets proxymux accept this service account token from now on.
    pub fn accept_service_account(&self, token: &str) {
        self.access.credentials().service_accounts.insert(token.to_owned());
    }

    /// Gives an instance's cloud agent a plugin, or changes it: `desired` is ENABLED or DISABLED, `status` what it reports.
    pub fn set_agent_plugin(&self, node: &str, name: &str, desired: &str, status: &str) {
        let plugin = AgentPluginState { desired: desired.to_owned(), status: status.to_owned() };
        let mut state = self.access.emulator.state();
        state.agent_plugins.entry(node.to_owned()).or_default().insert(name.to_owned(), plugin);
    }

    /// Oracle finds the host of an instance unhealthy, or healthy again. Only bare-metal instances have one that is listed.
    pub fn set_host_health(&self, node: &str, is_healthy: bool) {
        let mut state = self.access.emulator.state();
        if is_healthy {
            state.unhealthy_hosts.remove(node);
        } else {
            state.unhealthy_hosts.insert(node.to_owned());
        }
    }

    /// Oracle plans maintenance of an instance, or reports its progress: `action` such as REBOOT_MIGRATION, `lifecycle` such as
    /// SCHEDULED.
    pub fn set_maintenance(&self, node: &str, action: &str, lifecycle: &str) {
        let mut state = self.access.emulator.state();
        state.maintenance.retain(|event| event.node != node);
        let (node, action, lifecycle) = (node.to_owned(), action.to_owned(), lifecycle.to_owned());
        state.maintenance.push(Maintenance { node, action, state: lifecycle });
    }

    /// The tenancy, whose root compartment has the hosts.
    pub const fn tenancy(&self) -> &'static str {
        TENANCY
    }

    /// Injects a fault; several faults add up.
    pub fn inject(&self, fault: ApiFault) {
        self.access.emulator.state().faults.push(fault);
    }

    /// Removes all faults of the API.
    pub fn heal(&self) {
        self.access.emulator.state().faults.clear();
    }

    /// From now on these operations, and no others, are refused with 404 `NotAuthorizedOrNotFound`, as without a policy.
    pub fn forbid(&self, operations: &[Operation]) {
        self.access.emulator.state().forbidden = operations.iter().copied().collect();
    }

    /// The API keys of all users so far are deleted (401).
    pub fn delete_keys(&self) {
        self.access.credentials().users.clear();
    }

    /// Session tokens issued so far are refused from now on (401).
    pub fn revoke_tokens(&self) {
        self.access.credentials().tokens.clear();
    }

    /// Changes the state of an instance (`RUNNING`, `STOPPED`, `TERMINATED`, …). One that is `TERMINATING` has lost its secondary
    /// VNICs already.
    pub fn set_instance_state(&self, node: &str, state: &str) -> Result<()> {
        self.access.emulator.set_instance_state(node, state)
    }

    /// The names of the instances that were restarted through it, in the order of the restarts. One that was requested several
    /// times with the same retry token counts once.
    pub fn restarts(&self) -> Vec<String> {
        self.access.emulator.state().restarts.clone()
    }

    /// All attachments, those that are DETACHED included.
    pub fn attachments(&self) -> Vec<AttachmentRecord> {
        let state = self.access.emulator.current();
        let all = state.attachments.iter().map(|(id, attachment)| AttachmentRecord {
            id: id.clone(),
            node: attachment.node.clone(),
            instance: attachment.instance.clone(),
            state: attachment.state.name(),
            vnic: attachment.vnic.id.clone(),
            primary: attachment.vnic.primary,
            tags: {
                let record = state.vnics.get(&attachment.vnic.id);
                let fields = record.map_or(&attachment.fields, |record| &record.fields);
                let tags = fields.get("freeformTags").and_then(Value::as_object).into_iter().flatten();
                tags.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
            },
        });
        all.collect()
    }

    /// How many requests for an operation got a status.
    pub fn answered(&self, operation: Operation, status: u16) -> u64 {
        self.access.emulator.state().answered.get(&(operation, status)).copied().unwrap_or(0)
    }
}
