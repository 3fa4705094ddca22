//! A user's API key, as Oracle's command-line tool keeps it in `~/.oci/config`. When the service refuses it, the files are read
//! again, so that a rotated key needs no restart.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::auth::key::RsaKey;
use crate::auth::read_bounded;
use crate::auth::sign::Credentials;
use crate::error::{Error, chain};
use crate::region::RegionName;

/// A user's key and the region that the file names.
#[derive(Debug)]
pub struct ApiKey {
    credentials: Credentials,
    region: Option<RegionName>,
    source: Option<Source>,
}

/// The file and its profile.
#[derive(Clone, Debug)]
struct Source {
    path: PathBuf,
    profile: String,
}

/// A key in use; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct UsedKey(Arc<KeyState>);

#[derive(Debug)]
struct KeyState {
    source: Option<Source>,
    credentials: Mutex<Credentials>,
    /// When it was last logged that the files cannot be read.
    logged: Mutex<Option<Instant>>,
}

/// How often that is logged at most: each call may be refused.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The profile whose values all others inherit.
const DEFAULT: &str = "DEFAULT";

/// Whose key it is, as the OCI console shows it.
#[derive(Clone, Copy, Debug)]
pub struct KeyOwner<'a> {
    /// The OCID of the tenancy.
    pub tenancy: &'a str,
    /// The OCID of the user.
    pub user: &'a str,
    /// The fingerprint of the public key.
    pub fingerprint: &'a str,
}

impl ApiKey {
    /// Reads a profile of a file in the format of `~/.oci/config`, and the key file that it names. Both are read
    /// again whenever the service refuses the key (401).
    ///
    /// # Errors
    /// When one of the files cannot be read or lacks something; names the file and the entry.
    pub fn from_config_file(path: &Path, profile: &str) -> Result<Self, Error> {
        let at = || format!("profile {profile} of {}", path.display());
        let text = read_bounded(path).and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
        let text = text.map_err(|error| Error::setup_by(path.display().to_string(), error))?;
        let entries = entries(&text, profile).ok_or_else(|| Error::setup(format!("{}: there is none", at())))?;
        let entry = |name: &str| {
            let value = entries.get(name).filter(|value| !value.is_empty());
            value.cloned().ok_or_else(|| Error::setup(format!("{}: {name} is missing", at())))
        };
        let file = expand_home(&entry("key_file")?);
        let pem = read_bounded(&file)
            .map_err(|error| Error::setup_by(format!("{}: key_file {}", at(), file.display()), error))?;
        let region = entries.get("region").map(|region| RegionName::new(region)).transpose()?;
        let (tenancy, user, fingerprint) = (entry("tenancy")?, entry("user")?, entry("fingerprint")?);
        let owner = KeyOwner { tenancy: &tenancy, user: &user, fingerprint: &fingerprint };
        let mut key = Self::new(owner, &pem)?;
        key.region = region;
        key.source = Some(Source { path: path.to_owned(), profile: profile.to_owned() });
        Ok(key)
    }

    /// A key of `owner`, with the private key in PEM form.
    ///
    /// # Errors
    /// When the PEM holds no RSA key that can be used.
    pub fn new(owner: KeyOwner<'_>, pem: &[u8]) -> Result<Self, Error> {
        let KeyOwner { tenancy, user, fingerprint } = owner;
        let key = RsaKey::from_pem(pem).map_err(|error| Error::setup_by(format!("the API key of {user}"), error))?;
        let key_id = format!("{tenancy}/{user}/{fingerprint}").into();
        Ok(Self { credentials: Credentials { key_id, key: Arc::new(key) }, region: None, source: None })
    }

    /// The region that the file names.
    pub const fn region(&self) -> Option<&RegionName> {
        self.region.as_ref()
    }

    pub(super) fn into_used(self) -> UsedKey {
        let credentials = Mutex::new(self.credentials);
        UsedKey(Arc::new(KeyState { source: self.source, credentials, logged: Mutex::default() }))
    }
}

impl UsedKey {
    /// The credentials to sign with.
    pub(super) fn credentials(&self) -> Credentials {
        self.current().clone()
    }

    /// The service refused these. Returns whether there are others now: the files have changed, and can be read before `end`. The
    /// region stays.
    pub(super) async fn reject(&self, refused: &Credentials, end: Instant) -> bool {
        if !is_same(&self.current(), refused) {
            return true;
        }
        let Some(Source { path, profile }) = self.0.source.clone() else { return false };
        let read = tokio::task::spawn_blocking(move || ApiKey::from_config_file(&path, &profile));
        let error = match timeout_at(end, read).await {
            Ok(Ok(Ok(key))) => return self.replace(refused, key.credentials),
            // Half of a rotation, perhaps: the next refusal reads again.
            Ok(Ok(Err(error))) => chain(&error),
            Ok(Err(_)) => "reading its files was interrupted".to_owned(),
            Err(_) => "its files were not read in time".to_owned(),
        };
        let mut logged = self.0.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|last| last.elapsed() >= LOG_INTERVAL) {
            *logged = Some(Instant::now());
            tracing::warn!(
                event = "login.unreadable",
                error,
                "OCI refused the API key, and its files cannot be read again"
            );
        }
        false
    }

    fn replace(&self, refused: &Credentials, new: Credentials) -> bool {
        let mut current = self.current();
        if is_same(&new, refused) {
            return !is_same(&current, refused);
        }
        tracing::info!(
            event = "login.replaced",
            key = &*new.key_id,
            "OCI refused the API key; using the new one in its file"
        );
        *current = new;
        true
    }

    fn current(&self) -> MutexGuard<'_, Credentials> {
        // It is replaced whole, so a panic elsewhere leaves it usable.
        self.0.credentials.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compares the keys, too: the fingerprint is typed by hand, and may be the old one's.
fn is_same(one: &Credentials, other: &Credentials) -> bool {
    let public = |credentials: &Credentials| credentials.key.public_key().ok();
    one.key_id == other.key_id && public(one) == public(other)
}

/// The entries of a profile over those of DEFAULT; `None` when there is no such profile.
fn entries(text: &str, profile: &str) -> Option<BTreeMap<String, String>> {
    let mut sections: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
    let mut current = None;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            sections.entry(name.trim()).or_default();
            current = Some(name.trim());
        } else if line.starts_with(['#', ';']) {
        } else if let (Some(section), Some((name, value))) = (current, line.split_once('=')) {
            let entry = (name.trim().to_lowercase(), value.trim().to_owned());
            sections.entry(section).or_default().extend([entry]);
        }
    }
    let own = sections.get(profile)?.clone();
    let mut all = sections.remove(DEFAULT).unwrap_or_default();
    all.extend(own);
    Some(all)
}

fn expand_home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}
