//! Whether pods of OKE's own CNI, or of another one, run on this node. OKE's CNI assigns the same addresses as our plugin and
//! documents its state nowhere, so a takeover does not import them but waits until its pods are gone. Three sources show
//! them, which forget at different times: its own state, the runtime's cache, and the kernel. One is enough.

mod kernel;

use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

use crate::observed::{ConfAt, ConfFile};
use crate::settings::Settings;

/// The name of OKE's network, if its configuration names no other.
const NETWORK: &str = "oci";

/// Pods of other networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ForeignPods {
    /// There are none.
    None,
    /// There are; what shows it.
    Found(String),
    /// It cannot be known, and why.
    Unknown(String),
}

impl ForeignPods {
    /// Searches for them. If our configuration is installed, pods have our network.
    pub(crate) fn find(settings: &Settings, conf_files: &[ConfFile]) -> Self {
        if conf_files.iter().any(ConfFile::is_ours) {
            return Self::None;
        }
        let (cache, results) = (&settings.cni_cache_dir, settings.cni_cache_dir.join("results"));
        let cached = if cache.is_dir() {
            cached(&results, &networks(settings, conf_files))
        } else {
            Err((cache.display().to_string(), "there is no such directory".to_owned()))
        };
        let mut unknown = Self::None;
        for source in [kernel::pod(), used(&settings.oke_state_dir.join("used")), cached] {
            match source {
                Ok(Some(what)) => return Self::Found(what),
                Ok(None) => {}
                Err((what, why)) => unknown = Self::Unknown(format!("{what}: {why}")),
            }
        }
        unknown
    }
}

/// What the kernel shows of a pod of another network, or why that cannot be known.
pub(crate) fn kernel_shows() -> Option<String> {
    kernel::pod().unwrap_or_else(|(what, why)| Some(format!("reading {what}: {why}")))
}

/// What shows a pod; or what could not be read, and why.
type PodEvidence = Result<Option<String>, (String, String)>;

/// An address that OKE's IPAM has marked as used in this boot: the directory does not outlive one.
fn used(directory: &Path) -> PodEvidence {
    first(directory, |_| true)
}

/// The runtime's cache of a pod in one of the networks. It may be left from before a reboot.
fn cached(results: &Path, networks: &[String]) -> PodEvidence {
    first(results, |name| networks.iter().any(|network| name.starts_with(&format!("{network}-"))))
}

fn first(directory: &Path, counts: impl Fn(&str) -> bool) -> PodEvidence {
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
        let found = ConfAt::any(&settings.cni_conf_dir.join(&file.name));
        let document: Value = serde_json::from_slice(&found.file()?.contents).ok()?;
        Some(document.get("name")?.as_str()?.to_owned())
    };
    let mut networks: Vec<String> = conf_files.iter().filter(|file| file.is_oke()).filter_map(name).collect();
    networks.push(NETWORK.to_owned());
    networks
}
