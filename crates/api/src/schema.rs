//! Schemas of fields whose types belong to other crates, or whose bounds we set. Every list and text has a bound: the API
//! server's cost estimate of the validation rules needs them, and they limit the size of an object in etcd.

use schemars::{Schema, SchemaGenerator, json_schema};

/// The longest OCID: what OKE's own NativePodNetwork allows for one. Those of a network security group in the region of the
/// longest name have 108 characters.
const OCID_MAX: u32 = 128;

/// An OCID of an instance.
pub(crate) fn instance(_: &mut SchemaGenerator) -> Schema {
    ocid("instance")
}

/// An OCID of a subnet.
pub(crate) fn subnet(_: &mut SchemaGenerator) -> Schema {
    ocid("subnet")
}

/// OCIDs of node pools.
pub(crate) fn node_pools(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "maxItems": 16, "x-kubernetes-list-type": "set", "items": ocid("nodepool") })
}

/// OCIDs of up to five network security groups, which is what a VNIC may have.
pub(crate) fn security_groups(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": 5, "x-kubernetes-list-type": "set", "items": ocid("networksecuritygroup")
    })
}

/// The OCID of a VNIC, in a status.
pub(crate) fn vnic(_: &mut SchemaGenerator) -> Schema {
    ocid("vnic")
}

/// A whole number without a `format`, which the API server would only warn about.
pub(crate) fn integer<const MIN: u32, const MAX: u32>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
}

/// A count in a status: whatever is read.
pub(crate) fn count(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "minimum": 0, "maximum": u32::MAX })
}

/// The largest number that every JSON reader keeps exactly.
const GENERATION_MAX: u64 = (1 << 53) - 1;

/// The generation of an object: at most 2^53 - 1.
pub(crate) fn generation(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int64", "minimum": 0, "maximum": GENERATION_MAX })
}

/// The characters that [`vcn::printable`] escapes are in no text: control characters, line ends, and marks that are invisible or
/// change the direction of what follows.
const NO_CONTROL_CHARACTERS: &str =
    r"^[^\x00-\x1f\x7f-\x9f\x{61c}\x{200b}\x{200e}\x{200f}\x{2028}-\x{202e}\x{2060}-\x{206f}\x{feff}]*$";

/// A word of a program, such as a reason.
const WORD: &str = "^[A-Za-z0-9]*$";

/// A DNS label (RFC 1123): 1 to 63 lower-case letters, digits and hyphens.
pub(crate) fn dns_label(_: &mut SchemaGenerator) -> Schema {
    label()
}

/// A set of at most 32 names of namespaces.
pub(crate) fn namespaces(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "maxItems": 32, "x-kubernetes-list-type": "set", "items": label() })
}

/// A text in a status.
pub(crate) fn text<const MAX: u32>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": MAX, "pattern": NO_CONTROL_CHARACTERS })
}

/// A text that must say something.
pub(crate) fn some_text<const MAX: u32>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX, "pattern": NO_CONTROL_CHARACTERS })
}

/// A stable word in a status.
pub(crate) fn word<const MIN: u32, const MAX: u32>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": MIN, "maxLength": MAX, "pattern": WORD })
}

/// The name of a namespace.
pub(crate) fn namespace(_: &mut SchemaGenerator) -> Schema {
    label()
}

/// A name in the OCI console.
pub(crate) fn display_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 255, "pattern": NO_CONTROL_CHARACTERS })
}

/// A host name of at most 253 characters, with or without a final dot.
pub(crate) fn host_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": 253,
        "pattern": "^[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?(\\.[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?)*\\.?$"
    })
}

/// The path of an HTTP request, without spaces and control characters.
pub(crate) fn http_path(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^/[!-~]*$" })
}

/// A URL without user and fragment.
pub(crate) fn url(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "minLength": 8, "maxLength": 253,
        "pattern": "^https?://([-A-Za-z0-9._]+|\\[[0-9a-fA-F:.]+\\])(:[0-9]{1,5})?([/?][!-\"$-~]*)?$"
    })
}

/// Up to so many texts, in a status.
pub(crate) fn texts<const ITEMS: u32, const MAX: u32>(_: &mut SchemaGenerator) -> Schema {
    let text = json_schema!({ "type": "string", "maxLength": MAX, "pattern": NO_CONTROL_CHARACTERS });
    json_schema!({ "type": "array", "maxItems": ITEMS, "items": text })
}

/// Up to so many addresses of at most so many characters, in a status.
pub(crate) fn held_addresses<const ITEMS: u32, const MAX: u32>(generator: &mut SchemaGenerator) -> Schema {
    let mut address = address(generator);
    address.insert("maxLength".to_owned(), MAX.into());
    json_schema!({ "type": "array", "maxItems": ITEMS, "items": address })
}

/// An address of either family.
pub(crate) fn address(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "minLength": 2, "maxLength": 39,
        "x-kubernetes-validations": [{ "rule": "isIP(self)", "message": "must be an IPv4 or IPv6 address" }]
    })
}

/// An IPv4 address, as the API server's `isIP` accepts it.
pub(crate) fn ipv4_address(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "minLength": 7, "maxLength": 15,
        "x-kubernetes-validations": [{ "rule": "isIP(self) && ip(self).family() == 4", "message": "must be an IPv4 address" }]
    })
}

/// Different addresses of either family.
pub(crate) fn addresses(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "maxItems": 8, "x-kubernetes-list-type": "set", "items": address(generator) })
}

/// Where a route leads: never a default, never the host's own link-local range.
pub(crate) fn destination(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "minLength": 4, "maxLength": 43,
        "x-kubernetes-validations": [
            {
                "rule": "isCIDR(self) && cidr(self) == cidr(self).masked()",
                "message": "must be a CIDR block without host bits, such as 10.1.0.0/16 or fd00:1::/48"
            },
            {
                "rule": "!isCIDR(self) || cidr(self).prefixLength() >= (cidr(self).ip().family() == 4 ? 8 : 7)",
                "message": "must not be a default route, whole or in pieces: /8 is the widest for IPv4, /7 for IPv6"
            },
            {
                // Not containsCIDR: that of Kubernetes 1.32 finds a block only in one that begins with the same address.
                "rule": "!isCIDR(self) || !(cidr('169.254.0.0/16').containsIP(cidr(self).ip()) && cidr(self).prefixLength() >= 16 || cidr('fe80::/10').containsIP(cidr(self).ip()) && cidr(self).prefixLength() >= 10)",
                "message": "must not be link-local: that traffic is the host's own"
            },
        ]
    })
}

/// Free-form tags as users give them. The service allows ten on a VNIC; three are the controller's.
pub(crate) fn freeform_tags(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": 7,
        "additionalProperties": { "type": "string", "maxLength": 256, "pattern": NO_CONTROL_CHARACTERS },
        "x-kubernetes-validations": [
            {
                "rule": "self.all(key, key.matches('^[!-~]{1,100}$') && !key.contains('.'))",
                "message": "keys are 1 to 100 printable ASCII characters without spaces and periods"
            },
            {
                "rule": "!self.exists(key, key.lowerAscii().startsWith('oke-node-manager/'))",
                "message": "keys that begin with oke-node-manager/ are the controller's own"
            },
        ]
    })
}

/// A label selector, with bounds. An empty one selects everything.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "matchLabels": {
                "description": "Labels that an object must have, with their values; none if absent.",
                "type": "object", "maxProperties": 16, "additionalProperties": { "type": "string", "maxLength": 63, "pattern": NO_CONTROL_CHARACTERS }
            },
            "matchExpressions": {
                "description": "Requirements on labels, at most 16, which an object must all meet; none if absent.",
                "type": "array", "maxItems": 16, "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object", "required": ["key", "operator"],
                    "properties": {
                        "key": { "description": "The label.", "type": "string", "minLength": 1, "maxLength": 317, "pattern": NO_CONTROL_CHARACTERS },
                        "operator": { "description": "The comparison of the label.", "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"] },
                        "values": {
                            "description": "The values of In and NotIn, at most 64; none for Exists and DoesNotExist.",
                            "type": "array", "maxItems": 64, "x-kubernetes-list-type": "atomic",
                            "items": { "type": "string", "maxLength": 63, "pattern": NO_CONTROL_CHARACTERS }
                        }
                    },
                    "x-kubernetes-validations": [{
                        "rule": "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0",
                        "message": "values are for In and NotIn, which need at least one"
                    }]
                }
            }
        }
    })
}

/// Kernel settings: at most so many keys with their values. The characters take one byte each as JSON.
pub(crate) fn sysctls<const MAX: u32>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object", "maxProperties": MAX,
        "additionalProperties": { "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[-A-Za-z0-9 _.,:/+]+$" }
    })
}

/// Amounts of resources by name, and percentages.
pub(crate) fn quantities<const MAX: u32>(_: &mut SchemaGenerator) -> Schema {
    let pattern = "^[0-9]{1,12}([.][0-9]{1,3})?(m|k|M|G|Ki|Mi|Gi|%)?$";
    json_schema!({
        "type": "object", "maxProperties": MAX,
        "additionalProperties": { "type": "string", "minLength": 1, "maxLength": 18, "pattern": pattern }
    })
}

/// The name of a link's driver.
pub(crate) fn driver(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 32, "pattern": "^[A-Za-z0-9_-]+$" })
}

/// The name of a link; an asterisk at its end matches any suffix.
pub(crate) fn link_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 16, "pattern": "^[A-Za-z0-9_.-]+[*]?$" })
}

/// The name of one link.
pub(crate) fn one_link_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 15, "pattern": "^[A-Za-z0-9_.-]+$" })
}

/// A SHA-256 in hexadecimal digits.
pub(crate) fn sha256(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 64, "maxLength": 64, "pattern": "^[0-9a-f]{64}$" })
}

/// One to eight units of systemd, whose names have no more than 64 characters and begin with a letter or a digit.
pub(crate) fn units(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "minItems": 1, "maxItems": 8, "x-kubernetes-list-type": "set",
        "items": {
            "type": "string", "minLength": 3, "maxLength": 64,
            "pattern": "^[A-Za-z0-9][-A-Za-z0-9_.@:]*\\.(service|socket|timer|mount|scope|slice|target)$"
        }
    })
}

/// A MAC address of six octets, in lower case and with colons.
pub(crate) fn mac(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 17, "maxLength": 17, "pattern": "^([0-9a-f]{2}:){5}[0-9a-f]{2}$" })
}

/// A part of the nodes: a number, or a percentage.
pub(crate) fn node_share(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [{ "type": "integer" }, { "type": "string" }], "x-kubernetes-int-or-string": true,
        "minimum": 1, "maximum": 100_000, "maxLength": 4, "pattern": "^([1-9][0-9]?|100)%$"
    })
}

/// A time in the form of RFC 3339.
pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

fn label() -> Schema {
    json_schema!({
        "type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
    })
}

/// Never wider than what [`vcn::Ocid`] reads: one object that cannot be read would hide the others of its list.
fn ocid(kind: &str) -> Schema {
    json_schema!({
        "type": "string", "maxLength": OCID_MAX, "pattern": format!(r"^ocid1\.{kind}\.[A-Za-z0-9._-]*\.[A-Za-z0-9_-]+$")
    })
}
