//! The CNI configurations in the runtime's directory, read as the runtime reads them.

use std::fs;
use std::io;
use std::path::Path;

use super::At;
use super::called::called;
use super::gives::{Gives, LOOPBACK, META};
use crate::conf_json;
use crate::document::Document;
use crate::entry::MAIN;
use crate::{Error, OKE_CONFLIST};

/// A file that a runtime would consider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfFile {
    /// Its name in the directory.
    pub name: String,
    /// What it holds.
    pub contents: Contents,
    /// What pods get by what it calls, where it gives them nothing itself.
    pub called: Gives,
}

/// What a configuration holds, as far as it concerns us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// The types of its plugins, in order.
    Plugins(Vec<String>),
    /// The same, and why containerd refuses it nevertheless, with every file of the directory that comes after it.
    Refused(Vec<String>, String),
    /// No configuration, which containerd refuses as well.
    Malformed(String),
    /// It cannot be read from here, and why; the runtime may.
    Unread(String),
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

    /// Whether a runtime can give pods a network by it, and not ours.
    #[must_use]
    pub fn gives_another_network(&self) -> bool {
        self.is_usable_and_not_ours() && self.gives() == Gives::Network
    }

    /// The same, or it cannot be told.
    #[must_use]
    pub fn may_give_another_network(&self) -> bool {
        self.is_usable_and_not_ours() && matches!(self.gives(), Gives::Network | Gives::Unknown)
    }

    /// Whether a runtime can give pods a network by it, whatever network that is, or it cannot be told.
    #[must_use]
    pub fn may_give_a_network(&self) -> bool {
        match self.contents {
            Contents::Plugins(_) => self.gives() != Gives::Nothing,
            Contents::Unread(_) => true,
            Contents::Refused(..) | Contents::Malformed(_) => false,
        }
    }

    /// What pods get by it from a runtime that can use it.
    #[must_use]
    pub fn gives(&self) -> Gives {
        let mut others = self.types().iter().filter(|kind| *kind != LOOPBACK).peekable();
        if others.peek().is_none() {
            Gives::Nothing
        } else if others.all(|kind| META.contains(&kind.as_str())) {
            self.called
        } else {
            Gives::Network
        }
    }

    fn is_usable_and_not_ours(&self) -> bool {
        matches!(self.contents, Contents::Plugins(_)) && self.name != vcn::CONFLIST_FILE
    }

    fn types(&self) -> &[String] {
        match &self.contents {
            Contents::Plugins(types) | Contents::Refused(types, _) => types,
            Contents::Malformed(_) | Contents::Unread(_) => &[],
        }
    }
}

impl Contents {
    /// Reads a configuration, a list of plugins or a single one.
    #[must_use]
    pub fn parse(contents: &[u8]) -> Self {
        let text = conf_json::text(contents);
        match conf_json::complaint(&text) {
            None => Self::of(&text),
            Some(complaint) => Self::Malformed(complaint),
        }
    }

    /// Reads a file as libcni does, which is stricter, and goes by the extension.
    fn of_file(name: &str, contents: &[u8]) -> Self {
        let Self::Plugins(types) = Self::parse(contents) else { return Self::parse(contents) };
        let text = conf_json::text(contents);
        let Some(document) = Document::object(&text) else { return Self::Plugins(types) };
        let list = document.get("plugins").is_some();
        let complaint = match (name.ends_with(".conflist"), list) {
            (true, true) if types.is_empty() => Some("its list of plugins is empty"),
            (true, false) => Some("it is a single plugin's, and its name promises a list"),
            (true, true) if document.string("name").is_none_or(|name| name.is_empty()) => Some("it has no name"),
            (false, true) if document.kind().is_none() => {
                Some("it is a list of plugins, and its name does not end in .conflist")
            }
            _ => None,
        };
        match complaint {
            Some(complaint) => Self::Refused(types, complaint.to_owned()),
            None => Self::Plugins(types),
        }
    }

    fn of(text: &str) -> Self {
        let Some(document) = Document::object(text) else { return Self::Malformed("it is no object".to_owned()) };
        let types: Option<Vec<_>> = match document.get("plugins") {
            Some(plugins) => Document::array(plugins)
                .and_then(|plugins| plugins.parts.iter().map(|part| Document::object(part.value)?.kind()).collect()),
            None => document.kind().map(|kind| vec![kind]),
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
        let entry = entry.map_err(failed)?;
        let folder = entry.file_type().map_err(failed)?.is_dir();
        // A name that is no text is one for the runtime all the same.
        let name = entry.file_name().to_string_lossy().into_owned();
        if !folder && ENDS.iter().any(|end| name.ends_with(end)) {
            let (contents, called) = contents(&name, &entry.path());
            files.push((entry.file_name(), ConfFile { name, contents, called }));
        }
    }
    files.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(files.into_iter().map(|(_, file)| file).collect())
}

/// What a runtime loads (libcni, ConfFiles): by the end of the name, even where nothing is before it.
const ENDS: [&str; 3] = [".conf", ".conflist", ".json"];

fn contents(name: &str, path: &Path) -> (Contents, Gives) {
    let found = At::look(path);
    let contents = match (&found, found.unread()) {
        (At::File(found), _) => return (Contents::of_file(name, &found.contents), called(&found.contents)),
        (_, Some(why)) => Contents::Unread(why),
        (_, None) => Contents::Malformed("it went away while it was looked at".to_owned()),
    };
    (contents, Gives::Others)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn types(names: &[&str]) -> Contents {
        Contents::Plugins(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn files_are_listed_in_the_runtimes_order_and_only_those_it_would_load() {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("87-podman.conflist", r#"{"name":"podman","plugins":[{"type":"bridge"},{"type":"portmap"}]}"#),
            ("10-oci.conflist", r#"{"name":"oci","plugins":[{"type":"oci-ipvlan"},{"type":"oci-ptp"}]}"#),
            ("99-dummy.conf", ""),
            ("20-single.conf", r#"{"type":"flannel"}"#),
            ("30-nameless.json", r#"{"plugins":[{}]}"#),
            (".conf", r#"{"type":"hidden"}"#),
            ("00-old.conflist.bak", "{"),
            (".oke-cni-installer.1.tmp", "{"),
        ] {
            fs::write(directory.path().join(name), text).unwrap();
        }
        fs::create_dir(directory.path().join("50-folder.conf")).unwrap();
        std::os::unix::fs::symlink("nowhere", directory.path().join("40-link.conf")).unwrap();
        fs::write(directory.path().join(OsStr::from_bytes(b"20-\xff.conf")), r#"{"type":"x"}"#).unwrap();
        let files = conf_files(directory.path()).unwrap();
        let found: Vec<_> = files.iter().map(|file| (file.name.as_str(), &file.contents)).collect();
        let malformed = |why: &str| Contents::Malformed(why.to_owned());
        assert_eq!(
            found,
            [
                (".conf", &types(&["hidden"])),
                ("10-oci.conflist", &types(&["oci-ipvlan", "oci-ptp"])),
                ("20-single.conf", &types(&["flannel"])),
                ("20-\u{fffd}.conf", &types(&["x"])),
                ("30-nameless.json", &malformed("a plugin has no type")),
                ("40-link.conf", &Contents::Unread("it is a link to nowhere, which is not there".to_owned())),
                ("87-podman.conflist", &types(&["bridge", "portmap"])),
                ("99-dummy.conf", &malformed("EOF while parsing a value at line 1 column 0")),
            ]
        );
    }

    #[test]
    fn what_the_runtime_refuses_is_told_from_what_it_takes() {
        for (name, text, refused) in [
            ("10-a.conflist", r#"{"name":"a","plugins":[{"type":"bridge"}]}"#, None),
            ("10-a.conflist", r#"{"plugins":[{"type":"bridge"}]}"#, Some("it has no name")),
            ("10-a.conflist", r#"{"name":"a","plugins":[]}"#, Some("its list of plugins is empty")),
            ("10-a.conflist", r#"{"name":"a","type":"bridge"}"#, Some("its name promises a list")),
            ("10-a.conf", r#"{"name":"a","type":"bridge"}"#, None),
            ("10-a.conf", r#"{"name":"a","plugins":[{"type":"bridge"}]}"#, Some("does not end in .conflist")),
            ("10-a.conflist", r#"{"name":"a","plugins":[{"Type":"bridge"}]}"#, None),
            ("10-a.conf", r#"{"TYPE":"none","type":"bridge"}"#, None),
        ] {
            let found = Contents::of_file(name, text.as_bytes());
            match refused {
                None => assert_eq!(found, types(&["bridge"]), "{name}: {text}"),
                Some(why) => assert!(matches!(&found, Contents::Refused(_, said) if said.contains(why)), "{found:?}"),
            }
        }
    }

    #[test]
    fn what_is_nested_deep_is_sound_as_deep_as_the_runtime_reads_it() {
        let list = |levels: usize| {
            let (open, close) = ("[".repeat(levels), "]".repeat(levels));
            format!(r#"{{"name":"a","plugins":[{{"type":"bridge","x":{open}{close}}}]}}"#)
        };
        let found = |levels| Contents::of_file("10-a.conflist", list(levels).as_bytes());
        assert_eq!(found(200), types(&["bridge"]));
        assert_eq!(found(9997), types(&["bridge"]));
        assert_eq!(found(9998), Contents::Malformed("it is nested deeper than 10000 levels".to_owned()));
    }

    #[test]
    fn a_plugin_without_a_name_is_none() {
        for text in [r#"{"name":"a","plugins":[{"type":""}]}"#, r#"{"name":"a","plugins":[{"type":1}]}"#, r#"[]"#] {
            assert!(matches!(Contents::of_file("10-a.conflist", text.as_bytes()), Contents::Malformed(_)), "{text}");
        }
    }

    #[test]
    fn owners_are_told_by_name_or_by_plugins() {
        let file = |name: &str, contents| ConfFile { name: name.to_owned(), contents, called: Gives::Others };
        assert!(file("10-oci.conflist", Contents::Malformed(String::new())).is_oke());
        assert!(file("05-renamed.conflist", types(&["oci-ipvlan", "oci-ptp"])).is_oke());
        assert!(file("10-flannel.conflist", types(&[])).is_flannel());
        assert!(file("10-cbr0.conflist", types(&["flannel", "portmap"])).is_flannel());
        let ours = file("05-vcn-native.conflist", types(&["vcn-native", "portmap"]));
        assert!(!ours.is_oke() && !ours.is_flannel());
    }

    #[test]
    fn what_only_calls_others_or_is_refused_gives_no_network() {
        let gives = |name: &str, contents| {
            ConfFile { name: name.to_owned(), contents, called: Gives::Others }.gives_another_network()
        };
        assert!(gives("10-flannel.conflist", types(&["flannel", "portmap"])));
        assert!(gives("00-multus.conflist", types(&["multus", "bridge"])));
        for (name, kind) in [
            ("00-multus.conf", "multus"),
            ("00-multus.conf", "multus-shim"),
            ("99-loopback.conf", "loopback"),
            (vcn::CONFLIST_FILE, "vcn-native"),
        ] {
            assert!(!gives(name, types(&[kind])), "{name} {kind}");
        }
        let refused = Contents::Refused(vec!["flannel".to_owned()], "it has no name".to_owned());
        assert!(!gives("10-flannel.conflist", refused));
    }

    #[test]
    fn what_pods_get_is_told_by_the_plugins() {
        for (kinds, gives) in [
            (&["flannel", "portmap"][..], Gives::Network),
            (&["multus", "bridge"], Gives::Network),
            (&["loopback", "multus-shim"], Gives::Others),
            (&["multus"], Gives::Others),
            (&["loopback"], Gives::Nothing),
        ] {
            let file = ConfFile { name: "00-x.conflist".to_owned(), contents: types(kinds), called: Gives::Others };
            assert_eq!(file.gives(), gives, "{kinds:?}");
        }
    }

    #[test]
    fn no_directory_means_no_files() {
        assert_eq!(conf_files(Path::new("/nowhere/at/all")).unwrap(), []);
    }
}
