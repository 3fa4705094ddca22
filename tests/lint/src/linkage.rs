//! What a plugin may link. The pod path is synchronous, node-local and small. An asynchronous runtime, an HTTP or a
//! Kubernetes client in a plugin's tree means that a change broke that promise, usually through a library.

use std::collections::BTreeSet;
use std::path::Path;

use crate::finding::Finding;
use crate::workspace::cargo;

/// Crates that no plugin may link, with the promise each would break.
const FORBIDDEN: &[(&str, &str)] = &[
    ("tokio", "plugins are synchronous"),
    ("kube", "plugins never call the API server"),
    ("kube-client", "plugins never call the API server"),
    ("hyper", "plugins speak no HTTP"),
    ("reqwest", "plugins speak no HTTP"),
    ("h2", "plugins speak no HTTP"),
    ("rustls", "plugins speak no TLS"),
    ("tracing-subscriber", "plugins write events through crates/telemetry; a subscriber doubles their size"),
];

/// Our crates, each with a registry crate that it does without.
const WITHOUT: &[(&str, &str, &str)] = &[("imds", "kube-core", "the metadata service knows nothing of Kubernetes")];

/// Every one of our crates that links what it must do without.
///
/// # Errors
/// When cargo fails.
pub fn check_without(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let mut found = Vec::new();
    for (package, other, why) in WITHOUT {
        if linked_crates(root, package, None)?.contains(*other) {
            found.push(Finding::new("linkage", *package, format!("links {other}, but {why}")));
        }
    }
    Ok(found)
}

/// The names of all crates that end up in `package`, for this machine or for a target. Its features are resolved as if it were
/// built alone, because in a build of the whole workspace the features of other packages would leak in. Test and build
/// dependencies do not count.
///
/// # Errors
/// When cargo fails.
pub fn linked_crates(root: &Path, package: &str, target: Option<&str>) -> anyhow::Result<BTreeSet<String>> {
    let mut args = vec!["tree", "--package", package, "--edges", "normal", "--prefix", "none", "--format", "{p}"];
    args.extend(target.iter().flat_map(|target| ["--target", target]));
    Ok(crate_names(&String::from_utf8_lossy(&cargo(root, &args)?)))
}

/// Every forbidden crate among those that `plugin` links.
#[must_use]
pub fn check(plugin: &str, linked: &BTreeSet<String>) -> Vec<Finding> {
    let forbidden = FORBIDDEN.iter().filter(|(name, _)| linked.contains(*name));
    forbidden
        .map(|(name, promise)| {
            let how = format!("links {name}, but {promise}; see: cargo tree -p {plugin} -e normal -i {name}");
            Finding::new("linkage", plugin, how)
        })
        .collect()
}

fn crate_names(tree: &str) -> BTreeSet<String> {
    tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_crate_deep_in_the_tree_is_found() {
        let tree = "vcn-native v0.1.0 (/w/plugins/vcn-native)\nserde v1.0.0\nnetlink v0.1.0 (/w/crates/netlink)\n\
                    tokio v1.54.1\ntokio v1.54.1 (*)\n";
        let found = check("vcn-native", &crate_names(tree));
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].to_string(),
            "vcn-native: links tokio, but plugins are synchronous; see: cargo tree -p vcn-native -e normal -i tokio \
             [linkage]"
        );
    }

    #[test]
    fn a_crate_that_only_starts_with_a_forbidden_name_passes() {
        assert_eq!(check("vcn-native", &crate_names("hyperloglog v1.0.0\nkubernetes-names v1.0.0\n")), []);
    }

    #[test]
    fn cargo_lists_this_crate_without_its_test_dependencies() {
        let linked = linked_crates(Path::new(env!("CARGO_MANIFEST_DIR")), "lint", None).unwrap();
        assert!(linked.contains("serde_json") && !linked.contains("tempfile"), "{linked:?}");
    }
}
