//! CNI_ARGS: `KEY=VALUE;KEY=VALUE`. What Kubernetes runtimes say about the pod is in here.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use vcn::excerpt;

use crate::error::QUOTED;

/// The key that permits unknown ones.
const IGNORE_UNKNOWN: &str = "IgnoreUnknown";

/// CNI_ARGS as found. Unknown keys are refused unless `IgnoreUnknown` says otherwise, as the reference library does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args {
    /// K8S_POD_NAMESPACE: the namespace of the pod.
    pub pod_namespace: Option<String>,
    /// K8S_POD_NAME: the name of the pod.
    pub pod_name: Option<String>,
    /// K8S_POD_UID: the uid of the pod.
    pub pod_uid: Option<String>,
    /// IP: an address for the interface.
    pub ip: Option<String>,
    /// MAC: one for the interface.
    pub mac: Option<String>,
}

impl Args {
    /// Reads CNI_ARGS. The error is the complaint alone; the caller knows which variable it was.
    ///
    /// # Errors
    /// When it is not UTF-8, a part has no `=`, a key other than `IgnoreUnknown` has two values, or there are unknown keys without `IgnoreUnknown`.
    pub fn parse(text: &OsStr) -> Result<Self, String> {
        let text = text.to_str().ok_or("it is not UTF-8")?;
        let mut args = Self::default();
        let (mut keys, mut unknown) = (BTreeMap::new(), Vec::new());
        let mut ignore_unknown = false;
        for part in text.split(';').filter(|part| !part.is_empty()) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| format!("{:?} is not KEY=VALUE", excerpt(part, QUOTED)))?;
            // Another reader may use the other value, so the pod would have two namespaces. Multus writes the runtime's keys again,
            // with the same values, and an IgnoreUnknown of its own.
            if keys.insert(key, value).is_some_and(|before| before != value) && key != IGNORE_UNKNOWN {
                return Err(format!("the key {:?} has two values: give it once", excerpt(key, QUOTED)));
            }
            // Runtimes send empty values for what they do not know; that is the same as not sending them.
            let given = || (!value.is_empty()).then(|| value.to_owned());
            match key {
                IGNORE_UNKNOWN => ignore_unknown = truthy(value),
                "K8S_POD_NAMESPACE" => args.pod_namespace = given(),
                "K8S_POD_NAME" => args.pod_name = given(),
                "K8S_POD_UID" => args.pod_uid = given(),
                "IP" => args.ip = given(),
                "MAC" => args.mac = given(),
                "K8S_POD_INFRA_CONTAINER_ID" => {}
                _ => unknown.push(key),
            }
        }
        if !unknown.is_empty() && !ignore_unknown {
            let names = unknown.join(", ");
            let names = excerpt(&names, QUOTED);
            return Err(format!("it has unknown keys ({names}): add IgnoreUnknown=1 or remove them"));
        }
        Ok(args)
    }
}

/// What the reference library's tolerant boolean takes for true.
fn truthy(value: &str) -> bool {
    value == "1" || value.eq_ignore_ascii_case("true")
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn containerd_args_are_parsed() {
        let args = Args::parse(OsStr::new(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web=0;K8S_POD_INFRA_CONTAINER_ID=ab;K8S_POD_UID=u;X=y",
        ))
        .unwrap();
        assert_eq!(args.pod_namespace.as_deref(), Some("default"));
        assert_eq!(args.pod_name.as_deref(), Some("web=0"));
        assert_eq!(args.pod_uid.as_deref(), Some("u"));
    }

    #[test]
    fn unknown_keys_are_refused_unless_ignored() {
        for refused in ["X=y", "IgnoreUnknown=0;X=y", "IgnoreUnknown=false;X=y", "IgnoreUnknown=;X=y"] {
            assert!(Args::parse(OsStr::new(refused)).unwrap_err().contains("(X)"), "{refused}");
        }
        for taken in ["", ";", "X=y;IgnoreUnknown=TRUE", "IgnoreUnknown=true", "K8S_POD_NAME="] {
            assert!(Args::parse(OsStr::new(taken)).is_ok(), "{taken}");
        }
    }

    #[test]
    fn key_with_two_values_is_refused() {
        for (text, key) in [
            ("K8S_POD_NAMESPACE=a;K8S_POD_NAME=x;K8S_POD_NAMESPACE=b", "K8S_POD_NAMESPACE"),
            ("K8S_POD_UID=a;K8S_POD_UID=", "K8S_POD_UID"),
            ("IP=10.0.0.1;IP=10.0.0.2", "IP"),
            ("K8S_POD_NAMESPACE=;K8S_POD_NAMESPACE=b", "K8S_POD_NAMESPACE"),
            ("IgnoreUnknown=1;X=y;X=z", "X"),
        ] {
            let error = Args::parse(OsStr::new(text)).unwrap_err();
            assert_eq!(error, format!("the key {key:?} has two values: give it once"), "{text}");
        }
        let of_multus = "IgnoreUnknown=true;K8S_POD_NAMESPACE=a;X=y;IgnoreUnknown=1;K8S_POD_NAMESPACE=a";
        assert_eq!(Args::parse(OsStr::new(of_multus)).unwrap().pod_namespace.as_deref(), Some("a"));
    }

    #[test]
    fn args_that_are_no_list_of_pairs_are_refused() {
        assert!(Args::parse(OsStr::new("IgnoreUnknown=1;oops")).unwrap_err().contains("oops"));
        assert!(Args::parse(OsStr::from_bytes(b"A=\xff")).is_err());
    }
}
