//! The CNI configurations in the runtime's directory, read as the runtime reads them.

use std::fs;
use std::io;
use std::path::Path;

use super::ConfAt;
use super::conf_text::{kind, parse};
use crate::decide::OKE_CONFLIST;
use crate::error::Error;
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
    /// Its name in the directory.
    pub(crate) name: String,
    /// Its contents.
    pub(crate) contents: Contents,
}

/// A configuration's contents, as far as the installer is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// The types of its plugins, in order.
    Plugins(Vec<String>),
    /// The same, and why containerd refuses it nevertheless, with every file of the directory after it.
    Refused(Vec<String>, String),
    /// Not a configuration, which containerd refuses as well.
    Malformed(String),
    /// It cannot be read from here, and why; the runtime may be able to.
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
    /// Whether it is our configuration and names our plugin.
    pub(crate) fn is_ours(&self) -> bool {
        self.name == vcn::CONFLIST_FILE && self.has(MAIN)
    }

    /// Whether it is of OKE's own CNI: by its name or, as it may have been renamed, by its plugins.
    pub(crate) fn is_oke(&self) -> bool {
        self.name == OKE_CONFLIST || self.has("oci-ipvlan") || self.has("oci-ptp")
    }

    /// Whether it is of Flannel.
    pub(crate) fn is_flannel(&self) -> bool {
        self.name.contains("flannel") || self.has("flannel")
    }

    /// Whether a runtime can give pods a foreign network with it.
    pub(crate) fn gives_another_network(&self) -> bool {
        self.is_usable_and_not_ours() && self.gives() == ProvidedNetwork::Network
    }

    /// As [`Self::gives_another_network`], or it cannot be known.
    pub(crate) fn may_give_another_network(&self) -> bool {
        self.is_usable_and_not_ours() && self.gives() != ProvidedNetwork::Nothing
    }

    /// Whether a runtime can give pods any network by it, or it cannot be known.
    pub(crate) fn may_give_a_network(&self) -> bool {
        match self.contents {
            Contents::Plugins(_) => self.gives() != ProvidedNetwork::Nothing,
            Contents::Unread(_) => true,
            Contents::Refused(..) | Contents::Malformed(_) => false,
        }
    }

    /// What pods get by it from a runtime that can use it.
    pub(crate) fn gives(&self) -> ProvidedNetwork {
        let mut others = self.kinds().iter().filter(|kind| *kind != LOOPBACK).peekable();
        if others.peek().is_none() {
            ProvidedNetwork::Nothing
        } else if others.all(|kind| META.contains(&kind.as_str())) {
            ProvidedNetwork::CalledNetwork
        } else {
            ProvidedNetwork::Network
        }
    }

    fn is_usable_and_not_ours(&self) -> bool {
        matches!(self.contents, Contents::Plugins(_)) && self.name != vcn::CONFLIST_FILE
    }

    fn has(&self, plugin: &str) -> bool {
        self.kinds().iter().any(|kind| kind == plugin)
    }

    fn kinds(&self) -> &[String] {
        match &self.contents {
            Contents::Plugins(kinds) | Contents::Refused(kinds, _) => kinds,
            Contents::Malformed(_) | Contents::Unread(_) => &[],
        }
    }
}

impl Contents {
    /// Reads a configuration, a list of plugins or a single one.
    pub(crate) fn parse(contents: &[u8]) -> Self {
        let document = match parse(contents) {
            Ok(document) if document.is_object() => document,
            Ok(_) => return Self::Malformed("it is not an object".to_owned()),
            Err(error) => return Self::Malformed(error.to_string()),
        };
        let own = |value| kind(value).map(str::to_owned);
        let kinds: Option<Vec<_>> = match document.get("plugins") {
            Some(plugins) => plugins.as_array().and_then(|plugins| plugins.iter().map(own).collect()),
            None => own(&document).map(|kind| vec![kind]),
        };
        kinds.map_or_else(|| Self::Malformed("a plugin has no type".to_owned()), Self::Plugins)
    }

    /// Reads a file as libcni does, which is stricter, and uses the extension.
    pub(super) fn of_file(name: &str, contents: &[u8]) -> Self {
        let (kinds, document) = match (Self::parse(contents), parse(contents)) {
            (Self::Plugins(kinds), Ok(document)) => (kinds, document),
            (other, _) => return other,
        };
        let list = document.get("plugins").is_some();
        let nameless = || document.get("name").and_then(|name| name.as_str()).is_none_or(str::is_empty);
        let complaint = match (name.ends_with(".conflist"), list) {
            (true, true) if kinds.is_empty() => "its list of plugins is empty",
            (true, false) => "it is a single plugin's, and its name promises a list",
            (true, true) if nameless() => "it has no name",
            (false, true) if kind(&document).is_none() => {
                "it is a list of plugins, and its name does not end in .conflist"
            }
            _ => return Self::Plugins(kinds),
        };
        Self::Refused(kinds, complaint.to_owned())
    }
}

/// The files that a runtime loads, in its order: by name. A missing directory has no files.
pub(crate) fn conf_files(directory: &Path) -> Result<Vec<ConfFile>, Error> {
    let failed = |source| Error::Read { path: directory.to_path_buf(), source };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let is_directory = entry.file_type().map_err(failed)?.is_dir();
        // The runtime loads a name that is not UTF-8, too.
        let name = entry.file_name().to_string_lossy().into_owned();
        // Our copy says nothing of its own.
        if !is_directory && name != vcn::COPIED_CONFLIST_FILE && ENDS.iter().any(|end| name.ends_with(end)) {
            let contents = match ConfAt::any(&entry.path()) {
                ConfAt::File(found) => Contents::of_file(&name, &found.contents),
                ConfAt::Unread(why) => Contents::Unread(why),
                ConfAt::Nothing => Contents::Malformed("it was removed while it was read".to_owned()),
            };
            files.push((entry.file_name(), ConfFile { name, contents }));
        }
    }
    files.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(files.into_iter().map(|(_, file)| file).collect())
}
