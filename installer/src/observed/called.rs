//! What a plugin calls that gives pods no network itself (Multus), as far as its own entry says.

use std::ffi::OsStr;
use std::path::Path;

use super::gives::{Gives, LOOPBACK, META};
use crate::conf_json;
use crate::document::Document;
use crate::entry::{MAIN, OURS};

/// What pods get by what a configuration calls. One that says nothing calls what the directory holds.
pub(super) fn called(contents: &[u8]) -> Gives {
    let text = conf_json::text(contents);
    let entries = Document::object(&text).map(entries).unwrap_or_default();
    let calling = |entry: &Document<'_>| entry.kind().is_some_and(|kind| META.contains(&kind.as_str()));
    together(entries.iter().filter(|entry| calling(entry)).map(of_entry))
}

/// A list's entries, or the only one.
fn entries(document: Document<'_>) -> Vec<Document<'_>> {
    match document.folded("plugins").and_then(Document::array) {
        Some(list) => list.parts.iter().filter_map(|part| Document::object(part.value)).collect(),
        None => vec![document],
    }
}

fn of_entry(entry: &Document<'_>) -> Gives {
    // It counts before the delegates. A name may be an object's of the API server; a path is the host's as Multus sees it.
    if let Some(network) = entry.folded("clusterNetwork").and_then(conf_json::string).filter(|it| !it.is_empty()) {
        let is_ours = Path::new(&network).file_name() == Some(OsStr::new(vcn::CONFLIST_FILE));
        return if is_ours { Gives::Others } else { Gives::Unknown };
    }
    let delegates = entry.folded("delegates").and_then(Document::array);
    together(delegates.iter().flat_map(|list| &list.parts).map(|part| of_delegate(part.value)))
}

/// The first is the one that gives pods their network; of any other they may have a second.
fn together(mut each: impl Iterator<Item = Gives>) -> Gives {
    match each.next() {
        None => Gives::Others,
        Some(Gives::Others) if each.any(|other| other != Gives::Others) => Gives::Unknown,
        Some(first) => first,
    }
}

/// What is chained behind our plugin is of our network.
fn of_delegate(text: &str) -> Gives {
    let kinds: Option<Vec<String>> =
        Document::object(text).and_then(|delegate| entries(delegate).iter().map(Document::kind).collect());
    let Some(kinds) = kinds else { return Gives::Unknown };
    let others = || kinds.iter().map(String::as_str).filter(|kind| *kind != LOOPBACK && !OURS.contains(kind));
    if kinds.iter().any(|kind| kind == MAIN) || others().next().is_none() {
        Gives::Others
    } else if others().all(|kind| META.contains(&kind)) {
        Gives::Unknown
    } else {
        Gives::Network
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_multus_calls_is_told_by_its_delegates_and_doubted_where_they_stand_elsewhere() {
        for (text, gives) in [
            (r#"{"type":"multus-shim"}"#, Gives::Others),
            (r#"{"type":"multus","delegates":[]}"#, Gives::Others),
            (r#"{"type":"multus","delegates":[{"type":"flannel"}]}"#, Gives::Network),
            (r#"{"type":"multus","Delegates":[{"Type":"flannel"}]}"#, Gives::Network),
            (
                r#"{"type":"multus","delegates":[{"plugins":[{"type":"flannel"},{"type":"vnic-attach"}]}]}"#,
                Gives::Network,
            ),
            (
                r#"{"type":"multus","delegates":[{"plugins":[{"type":"vcn-native"},{"type":"portmap"}]}]}"#,
                Gives::Others,
            ),
            (r#"{"type":"multus","delegates":[{"type":"vcn-native"},{"type":"vnic-attach"}]}"#, Gives::Others),
            (r#"{"type":"multus","delegates":[{"type":"vcn-native"},{"type":"bridge"}]}"#, Gives::Unknown),
            (r#"{"type":"multus","delegates":[{"type":"multus"}]}"#, Gives::Unknown),
            (r#"{"type":"multus","delegates":[{"name":"a"}]}"#, Gives::Unknown),
            (r#"{"plugins":[{"type":"multus","delegates":[{"type":"flannel"}]}]}"#, Gives::Network),
            (r#"{"type":"multus-shim","clusterNetwork":"cbr0"}"#, Gives::Unknown),
            (r#"{"type":"multus","clusterNetwork":"cbr0","delegates":[{"type":"vcn-native"}]}"#, Gives::Unknown),
            (r#"{"type":"multus-shim","clusterNetwork":"/host/etc/cni/net.d/05-vcn-native.conflist"}"#, Gives::Others),
            (r#"{"type":"multus-shim","clusterNetwork":"/host/etc/cni/net.d/10-flannel.conflist"}"#, Gives::Unknown),
            (r#"{"type":"bridge","delegates":[{"type":"flannel"}]}"#, Gives::Others),
            ("{", Gives::Others),
        ] {
            assert_eq!(called(text.as_bytes()), gives, "{text}");
        }
    }
}
