//! The CNI configurations in the runtime's directory, read as the runtime reads them.

use std::path::Path;

use serde_json::Value;

use super::ConfAt;
use super::conf_text::{PLUGINS, kind, plugins};
use crate::decide::OKE_CONFLIST;
use crate::error::Error;
use crate::files::{entries, name};
use crate::settings::MAIN;

/// A runtime loads files with these ends (libcni, ConfFiles), even if nothing is before them.
const ENDS: [&str; 3] = [".conf", ".conflist", ".json"];

/// Plugins that call other networks; our network may be one of them.
const META: [&str; 2] = ["multus", "multus-shim"];

/// Gives a pod its loopback link alone; some distributions bring a configuration of it.
const LOOPBACK: &str = "loopback";

/// A file that a runtime loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfFile {
    pub(crate) name: String,
    /// A list of plugins or a single one; null if it is neither.
    pub(crate) document: Value,
    /// Why no pod starts by it, as far as it can be seen from here.
    pub(crate) fault: Option<Fault>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is no valid configuration. containerd refuses it, with every file of the directory after it.
    Refused(String),
    /// It cannot be read from here; the runtime may be able to.
    Unread(String),
}

/// What pods get by a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProvidedNetwork {
    /// A network.
    Network,
    /// The network that it calls (Multus): our network or another.
    CalledNetwork,
    /// None: every runtime makes a loopback link by itself.
    Nothing,
}

impl ConfFile {
    pub(super) fn new(name: String, at: ConfAt) -> Self {
        let (document, fault) = match at {
            ConfAt::File(found) => match found.json {
                Ok(document) => {
                    let fault = complaint(&name, &document).map(|why| Fault::Refused(why.to_owned()));
                    (document, fault)
                }
                Err(why) => (Value::Null, Some(Fault::Refused(why))),
            },
            ConfAt::Unread(why) => (Value::Null, Some(Fault::Unread(why))),
            ConfAt::Nothing => (Value::Null, Some(Fault::Refused("it was removed while it was read".to_owned()))),
        };
        Self { name, document, fault }
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
        let mut others = self.kinds().filter(|kind| *kind != LOOPBACK).peekable();
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
        let single = self.document.get(PLUGINS).is_none().then_some(&self.document);
        single.into_iter().chain(plugins(&self.document)).filter_map(kind)
    }

    fn has(&self, plugin: &str) -> bool {
        self.kinds().any(|kind| kind == plugin)
    }
}

/// Why no runtime uses a document, or containerd does not: libcni is stricter than the specification, and uses the name's end.
fn complaint(name: &str, document: &Value) -> Option<&'static str> {
    let has_no_name = || document.get("name").and_then(Value::as_str).is_none_or(str::is_empty);
    let is_single = kind(document).is_some();
    let typed = |list: &Value| list.as_array().filter(|list| list.iter().all(|plugin| kind(plugin).is_some())).cloned();
    Some(match (document.get(PLUGINS).map(typed).as_ref(), name.ends_with(".conflist")) {
        _ if !document.is_object() => "it is not an object",
        (Some(None), _) => "a plugin has no type",
        (None, _) if !is_single => "a plugin has no type",
        (None, true) => "it is a single plugin's, and its name promises a list",
        (Some(Some(list)), true) if list.is_empty() => "its list of plugins is empty",
        (Some(_), true) if has_no_name() => "it has no name",
        (Some(_), false) if !is_single => "it is a list of plugins, and its name does not end in .conflist",
        _ => return None,
    })
}

/// The files that a runtime loads, in its order: by name. A missing directory has no files.
pub(crate) fn conf_files(directory: &Path) -> Result<Vec<ConfFile>, Error> {
    let mut files = Vec::new();
    for path in entries(directory).map_err(Error::reading(directory))? {
        let name = name(&path);
        let is_directory = path.is_dir() && !path.is_symlink();
        // Our copy says nothing of its own.
        if !is_directory && name != vcn::COPIED_CONFLIST_FILE && ENDS.iter().any(|end| name.ends_with(end)) {
            files.push(ConfFile::new(name, ConfAt::any(&path)));
        }
    }
    Ok(files)
}
