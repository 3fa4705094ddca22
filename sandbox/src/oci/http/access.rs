//! The accepted credentials: users' keys, session tokens, service accounts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::authority::{Authority, user_key};
use super::signature::{Signature, not_authenticated};
use crate::error::Result;
use crate::network::identity::TENANCY;
use crate::oci::emulator::{Emulator, Outcome, Request};

/// The emulator and the credentials that it accepts.
#[derive(Debug)]
pub(in crate::oci) struct Access {
    pub(in crate::oci) emulator: Emulator,
    pub(in crate::oci) authority: Arc<Authority>,
    credentials: Mutex<Credentials>,
}

#[derive(Debug, Default)]
pub(in crate::oci) struct Credentials {
    /// Public keys by key id.
    pub(in crate::oci) users: BTreeMap<String, Vec<u8>>,
    /// Public keys by session token.
    pub(in crate::oci) tokens: BTreeMap<String, Vec<u8>>,
    pub(in crate::oci) service_accounts: BTreeSet<String>,
}

pub(in crate::oci) struct User {
    pub(in crate::oci) user: String,
    pub(in crate::oci) fingerprint: String,
    pub(in crate::oci) key_pem: String,
}

impl Access {
    pub(in crate::oci) fn new(emulator: Emulator) -> Result<Self> {
        let authority = Arc::new(Authority::new()?);
        emulator.vcn().inventory().set_authority(Arc::clone(&authority));
        Ok(Self { emulator, authority, credentials: Mutex::default() })
    }

    pub(in crate::oci) fn credentials(&self) -> MutexGuard<'_, Credentials> {
        // Every change is one insertion or removal, so a panic elsewhere leaves them whole.
        self.credentials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn authenticate(&self, request: &Request) -> Outcome<()> {
        let signature = Signature::of(request)?;
        let key = {
            let credentials = self.credentials();
            match signature.key_id.strip_prefix("ST$") {
                Some(token) => credentials.tokens.get(token).cloned(),
                None => credentials.users.get(signature.key_id).cloned(),
            }
        };
        let key = key.ok_or_else(|| not_authenticated("the key id is unknown"))?;
        signature.check(request, &key, true)
    }

    pub(in crate::oci) fn add_user(&self) -> Result<User> {
        let key = user_key()?;
        let user = self.emulator.state().new_id("user");
        // The real one is a hash of the key; only its form and being the same everywhere matter.
        let fingerprint: Vec<_> = key.public_key.iter().skip(40).take(16).map(|byte| format!("{byte:02x}")).collect();
        let fingerprint = fingerprint.join(":");
        self.credentials().users.insert(format!("{TENANCY}/{user}/{fingerprint}"), key.public_key);
        Ok(User { user, fingerprint, key_pem: key.pem })
    }
}
