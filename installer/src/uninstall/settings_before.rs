//! Kernel settings: what the agent wrote down before it changed one is set again, unless somebody changed it since.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use netlink::Sysctls;
use serde::Deserialize;

use super::Removal;
use crate::Error;

/// The agent's notes, in the data directory.
pub(super) const FILE: &str = "sysctls.json";

/// `{"version": 1, "settings": {"net/ipv4/ip_forward": {"before": "0", "set": "1"}}}`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Notes {
    settings: BTreeMap<String, Setting>,
}

#[derive(Debug, Deserialize)]
struct Setting {
    before: String,
    set: String,
}

/// Sets them as they were. Where nothing was noted, nothing is known, and nothing is changed.
pub(super) fn restore(data_dir: &Path, sysctl_root: &Path, removal: &mut Removal) {
    let path = data_dir.join(FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(source) => return removal.failures.push(Error::Read { path, source }),
    };
    let notes: Notes = match serde_json::from_slice(&text) {
        Ok(notes) => notes,
        Err(source) => return removal.failures.push(Error::Record { path, source }),
    };
    let sysctls = Sysctls::new(sysctl_root);
    for (name, Setting { before, set }) in notes.settings {
        let key: Vec<&str> = name.split('/').collect();
        if key.first() != Some(&"net") || key.iter().any(|part| part.is_empty() || *part == "..") {
            removal.left.push(format!("setting {name}: it is not one of the network's"));
            continue;
        }
        match sysctls.read(&key) {
            // With its link, for example.
            Err(error) if error.is_not_found() => {}
            Err(source) => removal.failures.push(Error::Network { what: format!("setting {name}"), source }),
            Ok(now) if now.trim() == before => {}
            Ok(now) if now.trim() != set => {
                removal.left.push(format!("setting {name}: somebody made it {} since", now.trim()));
            }
            Ok(_) => removal.step(format!("set {name} to {before} again"), || {
                let written = sysctls.write(&key, &before);
                written.map(|_| ()).map_err(|source| Error::Network { what: format!("setting {name}"), source })
            }),
        }
    }
}
