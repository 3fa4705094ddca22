//! The network configuration on stdin: what the protocol says about it. A plugin's own fields are its own type, decoded
//! from the same document.
//!
//! A key that is given twice counts as it was given last: libcni (Go) reads it so, and two readers of one document must
//! not see two configurations. Unknown keys are kept.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use vcn::{excerpt, printable};

use super::field;
use crate::error::QUOTED;
use crate::{AttachmentKey, Dns, Error, ErrorCode, NetworkName, PrevResult, Verb, Version};

/// The specification's key of the attachments that GC must keep, and the one libcni wrote first.
const VALID_ATTACHMENTS: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];

/// The capability under which CRI-O (1.29 and later) and containerd hand a pod's annotations to plugins.
const POD_ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";

/// A document is held as a tree, and each of its parts can need a hundred times the two bytes of its text. Braces, brackets, commas and colons bound their number; a list of 50,000 attachments for GC stays below.
const PARTS_LIMIT: usize = 1 << 18;

/// The keys that the specification, libcni and Multus write into a configuration, in addition to a plugin's own. Multus writes the
/// last two for a definition that names a resource of a device plugin.
const CALLERS_KEYS: [&str; 16] = [
    "cniVersion",
    "name",
    "type",
    "capabilities",
    "runtimeConfig",
    "args",
    "ipam",
    "dns",
    "prevResult",
    "disableCheck",
    "disableGC",
    "loadOnlyInlinedPlugins",
    VALID_ATTACHMENTS[0],
    VALID_ATTACHMENTS[1],
    "deviceID",
    "pciBusID",
];

/// The protocol's part of a network configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// cniVersion: results are written in it.
    pub version: Version,
    /// `name`: the name of the network.
    pub name: NetworkName,
    /// dns, as far as it was sound.
    pub dns: Dns,
    /// prevResult: what the chain has done so far (ADD), or had done in the end (CHECK, DEL).
    pub prev_result: Option<PrevResult>,
    /// disableGC: another runtime shares our state.
    pub disable_gc: bool,
    /// The whole document as it came.
    raw: Value,
}

impl Config {
    /// The document in `input` as an object.
    pub(crate) fn document(input: &[u8]) -> Result<Value, Error> {
        let bad = |msg: String| Error::new(ErrorCode::DECODING_FAILURE, msg);
        if input.trim_ascii().is_empty() {
            return Err(bad("stdin is empty: the network configuration (JSON) is expected there".to_owned()));
        }
        let text = std::str::from_utf8(input).map_err(|error| {
            bad(format!(
                "the configuration on stdin is not UTF-8 after byte {}: write it as UTF-8",
                error.valid_up_to()
            ))
        })?;
        if text.starts_with('\u{feff}') {
            return Err(bad("the configuration on stdin begins with a byte order mark: write it without".to_owned()));
        }
        if input.iter().filter(|byte| matches!(byte, b'{' | b'[' | b',' | b':')).count() > PARTS_LIMIT {
            return Err(bad(format!(
                "the configuration on stdin has more than {PARTS_LIMIT} fields and items: make it smaller"
            )));
        }
        let value: Value = serde_json::from_str(text).map_err(|error| {
            bad(format!(
                "the configuration on stdin ({} bytes) is not JSON: {error}; \
                 correct the file below /etc/cni/net.d, or see whether the runtime died while it wrote this",
                text.len()
            ))
        })?;
        if value.is_object() { Ok(value) } else { Err(field::wrong_type("the configuration", &value, "an object")) }
    }

    /// The version that a document requests.
    pub(crate) fn version_of(document: &Value) -> Result<Version, Error> {
        field::string("cniVersion", document.get("cniVersion"))?.unwrap_or_default().parse()
    }

    /// The protocol's part of `document`, as `verb` needs it. Verbs that clean up ignore wrong optional fields, because the
    /// configuration may have changed since ADD. A wrong `disableGC` is an error, because a disabled GC must not run.
    pub(crate) fn read(document: Value, verb: Verb) -> Result<Self, Error> {
        let version = Self::version_of(&document)?;
        let name = match field::string("name", document.get("name"))? {
            None | Some("") => return Err(invalid("the configuration has no name: give the network one".to_owned())),
            Some(name) => NetworkName::new(name)
                .map_err(|error| invalid(format!("name: {error}; correct the network configuration")))?,
        };
        let (dns, prev_result) = match Self::optional(&document, version) {
            Err(_) if matches!(verb, Verb::Del | Verb::Gc) => Default::default(),
            read => read?,
        };
        let disable_gc = match field::tolerant_bool("disableGC", document.get("disableGC")) {
            Err(_) if verb == Verb::Del => false,
            read => read?,
        };
        Ok(Self { version, name, dns, prev_result, disable_gc, raw: document })
    }

    fn optional(document: &Value, version: Version) -> Result<(Dns, Option<PrevResult>), Error> {
        field::string("type", document.get("type"))?;
        field::object("runtimeConfig", document.get("runtimeConfig"))?;
        field::object("ipam", document.get("ipam"))?;
        let prev_result = field::object("prevResult", document.get("prevResult"))?;
        Ok((Dns::read(document.get("dns"))?, prev_result.map(|fields| PrevResult::of(version, fields))))
    }

    /// The whole document as it came, for what this type does not name.
    pub fn raw(&self) -> &Value {
        &self.raw
    }

    /// runtimeConfig: what the runtime knows of a capability. Only those that the configuration declares in `capabilities` arrive.
    pub fn runtime(&self, capability: &str) -> Option<&Value> {
        self.raw.get("runtimeConfig")?.get(capability)
    }

    /// The pod's annotations; none when the runtime does not send them or the configuration did not declare them.
    ///
    /// # Errors
    /// When they are not an object.
    pub fn pod_annotations(&self) -> Result<Option<&Map<String, Value>>, Error> {
        field::object(&format!("runtimeConfig.{POD_ANNOTATIONS}"), self.runtime(POD_ANNOTATIONS))
    }

    /// ipam; an empty object is common (no address management) and is not the same as none.
    pub fn ipam(&self) -> Option<&Map<String, Value>> {
        self.raw.get("ipam")?.as_object()
    }

    /// args.cni: what CNI_ARGS says in the conventions' newer form; it wins where both say something.
    pub fn args(&self) -> Option<&Map<String, Value>> {
        self.raw.get("args")?.get("cni")?.as_object()
    }

    /// Refuses keys that neither the caller nor the plugin knows, for configurations that users write: an ignored key would promise
    /// its author something.
    ///
    /// # Errors
    /// Code 7, with the first such key.
    pub fn refuse_unknown_keys(&self, own: &[&str]) -> Result<(), Error> {
        let keys = self.raw.as_object().into_iter().flat_map(Map::keys).map(String::as_str);
        let unknown = keys.into_iter().find(|key| !own.contains(key) && !CALLERS_KEYS.contains(key));
        unknown.map_or(Ok(()), |key| {
            let (key, own) = (printable(&excerpt(key, QUOTED)).into_owned(), own.join(", "));
            Err(invalid(format!("the configuration has the unknown key \"{key}\": remove it; the plugin knows {own}")))
        })
    }

    /// The plugin's own fields.
    pub(crate) fn own<T: DeserializeOwned>(&self) -> Result<T, Error> {
        field::decode(&self.raw)
    }

    /// The attachments that GC must keep: those under either key. An empty list means that none is valid. `None` where the list
    /// is null, which Go writes for one that was never made: by a runtime without pods (CRI-O), or by mistake. No list at all is
    /// refused.
    pub(crate) fn valid_attachments(&self) -> Result<Option<BTreeSet<AttachmentKey>>, Error> {
        let mut valid = None::<BTreeSet<AttachmentKey>>;
        for key in VALID_ATTACHMENTS {
            let items = match self.raw.get(key) {
                None | Some(Value::Null) => continue,
                Some(Value::Array(items)) => items,
                Some(other) => return Err(field::wrong_type(key, other, "an array")),
            };
            let valid = valid.get_or_insert_default();
            for (index, item) in items.iter().enumerate() {
                let path = format!("{key}[{index}]");
                let Value::Object(item) = item else { return Err(field::wrong_type(&path, item, "an object")) };
                let part = |name: &str| match item.get(name) {
                    Some(Value::String(text)) => Ok(text.as_str()),
                    found => {
                        Err(field::wrong_type(&format!("{path}.{name}"), found.unwrap_or(&Value::Null), "a string"))
                    }
                };
                // ADD refuses such identifiers, so no attachment has them.
                if let (Ok(container_id), Ok(ifname)) = (part("containerID")?.parse(), part("ifname")?.parse()) {
                    valid.insert(AttachmentKey { network: self.name.clone(), container_id, ifname });
                }
            }
        }
        if VALID_ATTACHMENTS.iter().any(|key| self.raw.get(*key).is_some()) {
            return Ok(valid);
        }
        Err(invalid(format!(
            "GC without {}: refused, because it would remove every attachment; give an empty list to mean that",
            VALID_ATTACHMENTS[0]
        )))
    }
}

fn invalid(msg: String) -> Error {
    Error::new(ErrorCode::INVALID_CONFIG, msg)
}
