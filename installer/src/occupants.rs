//! Whether pods of OKE's own CNI, or of another that we do not know, live on this node. OKE's is what takeover is about: it
//! hands out the same addresses, and what it gave to whom is its own knowledge, in a form that is written down nowhere. So
//! their addresses are not imported; takeover waits until they are gone. Three witnesses, who forget at different times:
//! its own state, what the runtime remembers, and the kernel. One that tells of a pod is enough.

mod kernel;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::Path;

use crate::document::Document;
use crate::observed::At;
use crate::{ConfFile, Settings, conf_json};

/// The name of OKE's network where its configuration does not say another.
const NETWORK: &str = "oci";

/// What is known of pods of OKE's own CNI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occupants {
    /// There are none.
    None,
    /// There are; what shows it.
    Some(String),
    /// That cannot be told, and why.
    Unknown(String),
}

impl Occupants {
    /// Looks where OKE's CNI keeps which addresses are used, where the runtime keeps what plugins answered, and at links and
    /// routes. Where our configuration is in place already, pods are ours by now.
    #[must_use]
    pub fn look(settings: &Settings, conf_files: &[ConfFile]) -> Self {
        if conf_files.iter().any(ConfFile::is_ours) {
            return Self::None;
        }
        let results = settings.cni_cache_dir.join("results");
        let witnesses: [&dyn Fn() -> Found; 3] = [
            // The only one that is always there.
            &kernel::pod,
            &|| used(&settings.oke_state_dir.join("used")),
            &|| {
                if settings.cni_cache_dir.is_dir() {
                    cached(&results, &networks(settings, conf_files))
                } else {
                    Err((settings.cni_cache_dir.display().to_string(), "there is no such directory".to_owned()))
                }
            },
        ];
        let mut unknown = Self::None;
        for witness in witnesses {
            match witness() {
                Ok(Some(what)) => return Self::Some(what),
                Ok(None) => {}
                Err((what, why)) => unknown = Self::Unknown(format!("{what}: {why}")),
            }
        }
        unknown
    }
}

/// What shows on this host, by the kernel alone, that pods of another network live here; or why that cannot be told.
pub(crate) fn kernel_shows() -> Option<String> {
    kernel::pod().unwrap_or_else(|(what, why)| Some(format!("{what} cannot be looked at: {why}")))
}

/// What shows a pod; or what could not be looked at, and why.
type Found = Result<Option<String>, (String, String)>;

/// An address that its IPAM has marked as used in this boot: that directory does not outlive one.
fn used(directory: &Path) -> Found {
    first(directory, |_| true)
}

/// What the runtime remembers of a pod in one of the networks. It may be of before a reboot: that is not guessed.
fn cached(results: &Path, networks: &[String]) -> Found {
    first(results, |name| networks.iter().any(|network| name.starts_with(&format!("{network}-"))))
}

fn first(directory: &Path, counts: impl Fn(&str) -> bool) -> Found {
    let failed = |error: io::Error| (directory.display().to_string(), error.to_string());
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| counts(name));
    names.sort();
    let more = names.len().saturating_sub(1);
    Ok(names.first().map(|name| match more {
        0 => format!("{}", directory.join(name).display()),
        _ => format!("{} and {more} more", directory.join(name).display()),
    }))
}

/// The networks of OKE's configurations.
fn networks(settings: &Settings, conf_files: &[ConfFile]) -> Vec<String> {
    let name = |file: &ConfFile| {
        // Whatever somebody planted there is not waited for.
        let found = At::look(&settings.cni_conf_dir.join(&file.name));
        Document::object(&conf_json::text(&found.file()?.contents))?.string("name")
    };
    let mut networks: Vec<String> = conf_files.iter().filter(|file| file.is_oke()).filter_map(name).collect();
    networks.push(NETWORK.to_owned());
    networks
}
