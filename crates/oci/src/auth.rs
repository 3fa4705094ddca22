//! Logging in to the API, in one of three ways.
//!
//! ```text
//!   API key            ~/.oci/config, read again after a 401               ──▶ tenancy/user/fingerprint
//!   instance principal certificate of IMDS ──signed──▶ federation service  ──▶ ST$token ┐ renewed early, with a
//!   workload identity  service account's token ──TLS──▶ proxymux           ──▶ ST$token ┘ new key each time
//! ```

mod api_key;
mod instance;
mod key;
mod progress;
mod session;
pub(crate) mod sign;
mod token;
mod workload;

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use tokio::time::Instant;

pub use api_key::{ApiKey, KeyOwner};
pub use instance::{InstancePrincipal, METADATA_URL};
pub use workload::WorkloadIdentity;

use crate::auth::sign::Credentials;
use crate::error::{Failure, LoginError};
use api_key::UsedKey;
use session::Session;

/// A way of logging in. Clones share its session.
#[derive(Clone, Debug)]
pub struct Login(LoginMethod);

#[derive(Clone, Debug)]
enum LoginMethod {
    ApiKey(UsedKey),
    Instance(Session<InstancePrincipal>),
    Workload(Session<WorkloadIdentity>),
}

impl Login {
    /// By a user's API key.
    pub fn api_key(key: ApiKey) -> Self {
        Self(LoginMethod::ApiKey(key.into_used()))
    }

    /// As the instance that the program runs on.
    pub fn instance_principal(instance: InstancePrincipal) -> Self {
        Self(LoginMethod::Instance(Session::new(instance)))
    }

    /// As the Kubernetes service account that the pod runs under.
    pub fn workload_identity(workload: WorkloadIdentity) -> Self {
        Self(LoginMethod::Workload(Session::new(workload)))
    }

    /// Its name in messages.
    pub const fn name(&self) -> &'static str {
        match self.0 {
            LoginMethod::ApiKey(_) => "API key",
            LoginMethod::Instance(_) => "instance principal",
            LoginMethod::Workload(_) => "workload identity",
        }
    }

    /// The credentials to sign with. Waits only where no token is valid yet; an old one is renewed meanwhile.
    pub(crate) async fn credentials(&self, end: Instant) -> Result<Credentials, Failure> {
        let result = match &self.0 {
            LoginMethod::ApiKey(key) => Ok(key.credentials()),
            LoginMethod::Instance(session) => session.credentials(end).await,
            LoginMethod::Workload(session) => session.credentials(end).await,
        };
        result.map_err(|source| Failure::Login { login: self.name(), source: Box::new(source) })
    }

    /// The service refused these (401). Returns whether there are others now, or will be before `end`.
    pub(crate) async fn reject(&self, credentials: &Credentials, end: Instant) -> bool {
        match &self.0 {
            LoginMethod::ApiKey(key) => key.reject(credentials, end).await,
            LoginMethod::Instance(session) => session.reject(credentials),
            LoginMethod::Workload(session) => session.reject(credentials),
        }
    }
}

/// Reads a file that a login needs.
async fn read_file(what: &'static str, path: &Path) -> Result<Vec<u8>, LoginError> {
    let file = path.to_owned();
    let read = tokio::task::spawn_blocking(move || read_bounded(&file)).await;
    let read = read.unwrap_or_else(|panic| Err(io::Error::other(panic)));
    read.map_err(|source| LoginError::File { what, path: path.display().to_string(), source })
}

/// Keys, tokens and certificates are shorter.
const FILE_MAX: u64 = 1 << 20;

/// All of a file: never a pipe, whose reader could wait without end.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let refused = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return refused("it is not a regular file");
    }
    let mut bytes = Vec::new();
    if file.take(FILE_MAX + 1).read_to_end(&mut bytes)? as u64 > FILE_MAX {
        return refused("it is longer than 1 MiB");
    }
    Ok(bytes)
}
