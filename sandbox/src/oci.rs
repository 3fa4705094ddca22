//! The OCI API of the emulated VCN: core services, federation and proxymux over HTTP, as strict as the real ones. What is
//! attached here is plugged into the node, and what is plugged otherwise is seen here.
//!
//! ```text
//!   request ─▶ server ─▶ signature ─▶ fault? ─▶ route ─▶ retry token seen? ─▶ attachment │ vnic │ address │ catalogue
//!              (HTTP,     (who?)                                                   │ under the lock of the books
//!               TLS)      identity, federation, proxymux give tokens               ▼
//!                                                                       Books ◀─follow─▶ Vcn (plug, unplug, addresses)
//! ```

mod address;
mod answer;
mod api;
mod attachment;
mod books;
mod catalogue;
mod chance;
mod fault;
mod federation;
mod follow;
mod moment;
mod proxymux;
mod route;
mod server;
mod settings;
mod signature;
mod vnic;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::Vcn;
use crate::error::{During, Error, Result};
use crate::identity::TENANCY;
use api::Api;
use server::Server;

pub use fault::{ApiFault, ApiFaultKind};
pub use route::Operation;
pub use settings::OciSettings;

/// A running OCI API. Ends when dropped; the VCN goes on.
#[derive(Debug)]
pub struct OciApi {
    api: Arc<Api>,
    server: Server,
}

/// An attachment as the books have it, for tests that compare the cloud with what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentRecord {
    /// Its OCID.
    pub id: String,
    /// The name of the instance.
    pub node: String,
    /// The instance.
    pub instance: vcn::Ocid,
    /// `ATTACHING`, `ATTACHED`, `DETACHING` or `DETACHED`.
    pub state: &'static str,
    /// The VNIC.
    pub vnic: vcn::Ocid,
    /// Whether it is the instance's first.
    pub primary: bool,
    /// The VNIC's free-form tags.
    pub tags: std::collections::BTreeMap<String, String>,
}

impl OciApi {
    /// Starts it: on loopback of the calling thread's network namespace, and on the services' address for the nodes.
    ///
    /// # Errors
    /// When a port cannot be had, or a key cannot be made.
    pub fn start(vcn: Arc<Vcn>, settings: OciSettings) -> Result<Self> {
        let api = Arc::new(Api::new(vcn, settings)?);
        let server = Server::start(&api)?;
        Ok(Self { api, server })
    }

    /// The base URL of the core and federation services, on loopback of the namespace in which it was started.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.server.loopback)
    }

    /// The same as the nodes see it.
    #[must_use]
    pub fn url_in_nodes(&self) -> String {
        format!("http://{}", self.server.in_nodes)
    }

    /// Where proxymux listens (TLS), on loopback.
    #[must_use]
    pub const fn proxymux(&self) -> SocketAddr {
        self.server.proxymux
    }

    /// The certificate authority that proxymux's certificate is of, in PEM form.
    #[must_use]
    pub fn authority_pem(&self) -> String {
        self.api.authority().certificate_pem()
    }

    /// The compartment of everything.
    #[must_use]
    pub const fn compartment(&self) -> &'static str {
        crate::identity::COMPARTMENT
    }

    /// Makes a user with an API key; writes `config` (in the format of `~/.oci/config`) and the key into a folder.
    ///
    /// # Errors
    /// When the key cannot be made, or a file not be written.
    pub fn write_user(&self, folder: &Path) -> Result<PathBuf> {
        let user = self.api.add_user()?;
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

    /// Lets proxymux take this service account token from now on.
    pub fn accept_service_account(&self, token: &str) {
        self.api.books().service_accounts.insert(token.to_owned());
    }

    /// From now on something goes wrong; several faults add up.
    pub fn inject(&self, fault: ApiFault) {
        self.api.books().faults.push(fault);
    }

    /// Nothing goes wrong any more.
    pub fn heal(&self) {
        self.api.books().faults.clear();
    }

    /// Whoever asks for one of these from now on is answered 404 `NotAuthorizedOrNotFound`, as without a policy.
    pub fn forbid(&self, operations: &[Operation]) {
        self.api.books().forbidden = operations.iter().copied().collect();
    }

    /// The API keys of all users so far are deleted (401).
    pub fn delete_keys(&self) {
        self.api.books().users.clear();
    }

    /// Session tokens given so far are worth nothing any more (401).
    pub fn revoke_tokens(&self) {
        self.api.books().tokens.clear();
    }

    /// An instance gets another state (`RUNNING`, `STOPPED`, `TERMINATED`, …). One that is `TERMINATING` has lost its secondary
    /// VNICs already.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn set_instance_state(&self, node: &str, state: &str) -> Result<()> {
        self.api.set_instance_state(node, state)
    }

    /// All attachments, those that are DETACHED included.
    #[must_use]
    pub fn attachments(&self) -> Vec<AttachmentRecord> {
        self.api.attachments()
    }

    /// How many requests for an operation were answered with a status.
    #[must_use]
    pub fn answered(&self, operation: Operation, status: u16) -> u64 {
        self.api.books().answered.get(&(operation, status)).copied().unwrap_or(0)
    }

    /// Waits until no attachment is ATTACHING or DETACHING.
    ///
    /// # Errors
    /// When that is not so within `most`.
    pub fn settle(&self, most: Duration) -> Result<()> {
        let deadline = std::time::Instant::now() + most;
        while self.attachments().iter().any(|attachment| matches!(attachment.state, "ATTACHING" | "DETACHING")) {
            if std::time::Instant::now() >= deadline {
                return Err(Error::Invalid(format!("attachments still change after {most:?}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}
