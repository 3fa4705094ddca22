//! Settings and configurations for tests.

use std::path::Path;

use serde_json::{Value, json};

use crate::args::{Directories, StateDirectories};
use crate::observed::{ConfFile, Fault};
use crate::settings::Settings;

/// Settings whose every directory is in one.
pub(crate) fn settings_in(root: &Path) -> Settings {
    let [cni_bin_dir, cni_conf_dir, cni_source_dir] = ["bin", "net.d", "source"].map(|name| root.join(name));
    let state = StateDirectories { state_dir: vcn::STATE_DIR.into(), data_dir: root.join("lib") };
    Settings {
        chain: chain("portmap"),
        cni_cache_dir: root.join("cache"),
        oke_state_dir: root.join("shm"),
        ..Settings::to_uninstall(Directories { cni_bin_dir, cni_conf_dir, cni_source_dir }, state).unwrap()
    }
}

/// The entries of a setting.
pub(crate) fn chain(text: &str) -> Vec<Value> {
    super::plugin_entry::entries(text).unwrap()
}

/// A configuration of these plugins.
pub(crate) fn conf_file(name: &str, kinds: &[&str]) -> ConfFile {
    let plugins: Vec<_> = kinds.iter().map(|kind| json!({"type": kind})).collect();
    let document = json!({"name": "x", "plugins": plugins});
    ConfFile { name: name.to_owned(), document, plugins, fault: None }
}

/// One that no pod starts by.
pub(crate) fn faulty(name: &str, kinds: &[&str], fault: Fault) -> ConfFile {
    ConfFile { fault: Some(fault), ..conf_file(name, kinds) }
}
