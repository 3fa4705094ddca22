//! The CNI configurations in the runtime's directory, read as the runtime reads them.

use std::path::Path;

use serde_json::Value;

use super::conf_text::{ConfAt, plugins};
use super::drop_ins::drop_ins;
use crate::error::Error;
use crate::files::{entries, name};
use crate::libcni::{PLUGINS, entry_fault, kind, list_fault, loads_inline_only};
use crate::settings::MAIN;
use crate::signals::OKE_CONFLIST;

/// A runtime loads files with these ends (libcni, ConfFiles), even if nothing is before them.
const ENDS: [&str; 3] = [".conf", ".conflist", ".json"];

/// Plugins that call other networks; our network may be one of them.
const META: [&str; 2] = ["multus", "multus-shim"];

/// Plugins that make no interface for a pod's network: they change the one that a plugin before them made, or return addresses
/// alone. A loopback link is made by every runtime itself; some distributions bring a configuration of it.
const WITHOUT_INTERFACE: [&str; 16] = [
    "bandwidth",
    "dhcp",
    "firewall",
    "host-local",
    "istio-cni",
    "kuma-cni",
    "linkerd-cni",
    "loopback",
    "portmap",
    "route-override",
    "sbr",
    "static",
    "tuning",
    "vnic-attach",
    "vrf",
    "whereabouts",
];

/// A file that a runtime loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfFile {
    pub(crate) name: String,
    /// A list of plugins or a single one; null if it is neither.
    pub(crate) document: Value,
    /// The entries that a runtime runs, in order: also those in the folder of a list's network. Of a faulty one, those that can
    /// be seen.
    pub(crate) plugins: Vec<Value>,
    /// Why no pod starts by it, as far as it can be seen from here.
    pub(crate) fault: Option<Fault>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is not a valid configuration. containerd refuses it, with every file of the directory after it.
    Refused(String),
    /// It cannot be read from here; the runtime may be able to.
    Unread(String),
}

/// What pods get by a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProvidedNetwork {
    /// The file provides a network.
    Network,
    /// The network that it calls (Multus): our network or another.
    CalledNetwork,
    /// None: its plugins make no interface.
    Nothing,
}

impl ConfFile {
    /// Judges what was found under a name of a directory.
    pub(super) fn new(directory: &Path, name: String, at: ConfAt) -> Self {
        let (document, fault) = match at {
            ConfAt::File(found) => match found.json {
                Ok(document) => (document, None),
                Err(why) => (Value::Null, Some(Fault::Refused(why))),
            },
            ConfAt::Unread(why) => (Value::Null, Some(Fault::Unread(why))),
            ConfAt::Nothing => (Value::Null, Some(Fault::Refused("it was removed while it was read".to_owned()))),
        };
        let file = Self { name, document, plugins: Vec::new(), fault };
        let mut file = match file.fault {
            Some(_) => file,
            None if file.name.ends_with(".conflist") => file.list(directory),
            None => file.single(),
        };
        if file.fault.is_some() {
            let seen = std::iter::once(&file.document).chain(plugins(&file.document));
            file.plugins = seen.filter(|entry| kind(entry).is_some()).cloned().collect();
        }
        file
    }

    /// A list, with what the folder of its network adds.
    fn list(mut self, directory: &Path) -> Self {
        self.plugins = plugins(&self.document).cloned().collect();
        self.fault = list_fault(&self.document).map(Fault::Refused);
        let network = self.document.get("name").and_then(Value::as_str).unwrap_or_default();
        if self.fault.is_none() && !loads_inline_only(&self.document) {
            match drop_ins(directory, network) {
                Ok(added) => self.plugins.extend(added),
                Err(fault) => self.fault = Some(fault),
            }
        }
        if self.fault.is_none() && self.plugins.is_empty() {
            self.fault = Some(Fault::Refused("it has no plugins, and the folder of its network has none".to_owned()));
        }
        self
    }

    fn single(mut self) -> Self {
        self.fault = entry_fault(&self.document).map(|why| {
            let is_list = self.document.get(PLUGINS).is_some();
            let hint = if is_list { ": it is a list of plugins, and its name does not end in .conflist" } else { "" };
            Fault::Refused(format!("{why}{hint}"))
        });
        self.plugins = vec![self.document.clone()];
        self
    }

    /// Whether it is our configuration and names our plugin.
    pub(crate) fn is_ours(&self) -> bool {
        self.name == vcn::CONFLIST_FILE && self.has(MAIN)
    }

    /// Whether it is of OKE's own CNI: by its name or, as it may have been renamed, by its plugins.
    pub(crate) fn is_oke(&self) -> bool {
        self.name == OKE_CONFLIST || self.has("oci-ipvlan") || self.has("oci-ptp")
    }

    pub(crate) fn is_flannel(&self) -> bool {
        self.name.contains("flannel") || self.has("flannel")
    }

    /// Whether a runtime can give pods a foreign network with it.
    pub(crate) fn gives_another_network(&self) -> bool {
        self.fault.is_none() && self.name != vcn::CONFLIST_FILE && self.gives() == ProvidedNetwork::Network
    }

    /// Whether a runtime can give pods any network by it, or it cannot be known.
    pub(crate) fn may_give_a_network(&self) -> bool {
        match self.fault {
            None => self.gives() != ProvidedNetwork::Nothing,
            Some(Fault::Unread(_)) => true,
            Some(Fault::Refused(_)) => false,
        }
    }

    /// What pods get by it from a runtime that can use it.
    pub(crate) fn gives(&self) -> ProvidedNetwork {
        let mut others = self.kinds().filter(|kind| !WITHOUT_INTERFACE.contains(kind)).peekable();
        if others.peek().is_none() {
            ProvidedNetwork::Nothing
        } else if others.all(|kind| META.contains(&kind)) {
            ProvidedNetwork::CalledNetwork
        } else {
            ProvidedNetwork::Network
        }
    }

    /// The types of its plugins, in order.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &str> {
        self.plugins.iter().filter_map(kind)
    }

    fn has(&self, plugin: &str) -> bool {
        self.kinds().any(|kind| kind == plugin)
    }
}

/// The files that a runtime loads, in its order: by name. A missing directory has no files.
pub(crate) fn conf_files(directory: &Path) -> Result<Vec<ConfFile>, Error> {
    let mut files = Vec::new();
    for path in entries(directory).map_err(Error::reading(directory))? {
        let name = name(&path);
        let is_directory = path.is_dir() && !path.is_symlink();
        // Our copy says nothing of its own.
        if !is_directory && name != vcn::COPIED_CONFLIST_FILE && ENDS.iter().any(|end| name.ends_with(end)) {
            files.push(ConfFile::new(directory, name, ConfAt::any(&path)));
        }
    }
    Ok(files)
}
