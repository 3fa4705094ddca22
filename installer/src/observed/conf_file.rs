//! The CNI configurations in the runtime's directory, read as the runtime reads them.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde_json::Value;

use crate::entry::MAIN;
use crate::{Error, OKE_CONFLIST};

/// Longer than any configuration; more is not read.
const LONGEST: u64 = 1 << 20;

/// A file that a runtime would consider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfFile {
    /// Its name in the directory.
    pub name: String,
    /// What it holds.
    pub contents: Contents,
}

/// What a configuration holds, as far as it concerns us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// The types of its plugins, in order.
    Plugins(Vec<String>),
    /// No configuration: containerd then refuses every file of the directory that comes after it.
    Malformed(String),
}

impl ConfFile {
    /// Whether it is our configuration, with our plugin in it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.name == vcn::CONFLIST_FILE && self.types().iter().any(|name| name == MAIN)
    }

    /// Whether it is of OKE's own CNI: by the name or by the plugins, as it may have been renamed.
    #[must_use]
    pub fn is_oke(&self) -> bool {
        self.name == OKE_CONFLIST || self.types().iter().any(|name| name == "oci-ipvlan" || name == "oci-ptp")
    }

    /// Whether it is of Flannel.
    #[must_use]
    pub fn is_flannel(&self) -> bool {
        self.name.contains("flannel") || self.types().iter().any(|name| name == "flannel")
    }

    fn types(&self) -> &[String] {
        match &self.contents {
            Contents::Plugins(types) => types,
            Contents::Malformed(_) => &[],
        }
    }
}

impl Contents {
    /// Reads a configuration, a list of plugins or a single one.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let value: Value = match serde_json::from_slice(text) {
            Ok(value) => value,
            Err(error) => return Self::Malformed(error.to_string()),
        };
        let kind = |plugin: &Value| plugin.get("type").and_then(Value::as_str).map(str::to_owned);
        let types: Option<Vec<_>> = match value.get("plugins") {
            Some(Value::Array(plugins)) => plugins.iter().map(kind).collect(),
            Some(_) => None,
            None => kind(&value).map(|name| vec![name]),
        };
        types.map_or_else(|| Self::Malformed("a plugin has no type".to_owned()), Self::Plugins)
    }
}

/// The files that a runtime would consider, in its order: by name. No directory means no files.
pub(crate) fn conf_files(directory: &Path) -> Result<Vec<ConfFile>, Error> {
    let failed = |source| Error::Read { path: directory.to_path_buf(), source };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let considered = path.extension().is_some_and(|end| end == "conf" || end == "conflist" || end == "json");
        let name = path.file_name().and_then(|name| name.to_str());
        if let (true, Some(name)) = (considered, name)
            && let Some(contents) = contents(&path)
        {
            files.push(ConfFile { name: name.to_owned(), contents });
        }
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(files)
}

/// `None` for what is no file: a runtime skips directories, and reading a pipe would hang.
fn contents(path: &Path) -> Option<Contents> {
    let read = || {
        let mut text = Vec::new();
        File::open(path)?.take(LONGEST).read_to_end(&mut text)?;
        Ok::<_, io::Error>(text)
    };
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => None,
        Ok(_) => {
            Some(read().map_or_else(|error| Contents::Malformed(error.to_string()), |text| Contents::parse(&text)))
        }
        Err(error) => Some(Contents::Malformed(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(names: &[&str]) -> Contents {
        Contents::Plugins(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn files_are_listed_in_the_runtimes_order_and_only_those_it_would_load() {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("87-podman.conflist", r#"{"plugins":[{"type":"bridge"},{"type":"portmap"}]}"#),
            ("10-oci.conflist", r#"{"plugins":[{"type":"oci-ipvlan"},{"type":"oci-ptp"}]}"#),
            ("99-dummy.conf", ""),
            ("20-single.conf", r#"{"type":"flannel"}"#),
            ("30-nameless.json", r#"{"plugins":[{}]}"#),
            ("00-old.conflist.bak", "{"),
            (".oke-cni-installer.1.tmp", "{"),
        ] {
            fs::write(directory.path().join(name), text).unwrap();
        }
        fs::create_dir(directory.path().join("50-folder.conf")).unwrap();
        std::os::unix::fs::symlink("nowhere", directory.path().join("40-link.conf")).unwrap();
        let files = conf_files(directory.path()).unwrap();
        let names: Vec<_> = files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "10-oci.conflist",
                "20-single.conf",
                "30-nameless.json",
                "40-link.conf",
                "87-podman.conflist",
                "99-dummy.conf"
            ]
        );
        assert_eq!(files[0].contents, types(&["oci-ipvlan", "oci-ptp"]));
        assert_eq!(files[1].contents, types(&["flannel"]));
        for malformed in [2, 3, 5] {
            assert!(matches!(files[malformed].contents, Contents::Malformed(_)));
        }
        assert_eq!(files[4].contents, types(&["bridge", "portmap"]));
    }

    #[test]
    fn owners_are_told_by_name_or_by_plugins() {
        let file = |name: &str, contents| ConfFile { name: name.to_owned(), contents };
        assert!(file("10-oci.conflist", Contents::Malformed(String::new())).is_oke());
        assert!(file("05-renamed.conflist", types(&["oci-ipvlan", "oci-ptp"])).is_oke());
        assert!(file("10-flannel.conflist", types(&[])).is_flannel());
        assert!(file("10-cbr0.conflist", types(&["flannel", "portmap"])).is_flannel());
        let ours = file("05-vcn-native.conflist", types(&["vcn-native", "portmap"]));
        assert!(!ours.is_oke() && !ours.is_flannel());
    }

    #[test]
    fn no_directory_means_no_files() {
        assert_eq!(conf_files(Path::new("/nowhere/at/all")).unwrap(), []);
    }
}
