//! How large a VnicAttachment may be in etcd, whatever its spec and its status say: 2.1 KB, and 0.6 KB more for the addresses
//! of a VNIC that pods share. What of that is a name or a
//! spec, the definitions bound by counting bytes as etcd holds them; the rest is the controller's own to keep small. Lists
//! have bounds of their own, but no two of them can be filled.

/// The most bytes that etcd holds of a VnicAttachment, without the addresses for pods.
pub const OBJECT_MAX: usize = 2144;

/// The most bytes of the addresses for pods.
pub const POD_ADDRESSES_MAX: usize = 16 + 18 * SHARED_ADDRESSES as usize;

/// The most bytes of a VnicAttachment's name and its spec as JSON, the label with its profile's name included: what
/// [`OBJECT_MAX`] leaves when all else is at its largest (`controller/tests/cluster/size`). Five security groups fit.
pub const NAME_AND_SPEC_MAX: usize = 900;

/// What is said where it is more.
pub(crate) fn message() -> String {
    format!(
        "is too large: with the object's name it may take {NAME_AND_SPEC_MAX} bytes, of which an OCID is about 100: fewer security \
         groups, routes, namespaces or tags"
    )
}

/// The CEL rule of a VnicAttachment: its name and spec stay within [`NAME_AND_SPEC_MAX`].
pub(crate) fn attachment() -> String {
    let spec = template("self.spec");
    let more = "16 + size(self.spec.instanceId) + \
                (has(self.spec.requestedAddresses) ? 24 + self.spec.requestedAddresses.map(a, size(a) + 3).sum() : 0)";
    unless_unchanged(&format!("size(self.metadata.name) + {more} + {spec} <= {NAME_AND_SPEC_MAX}"))
}

/// A VnicProfile's rule: no object made from it may be too large. Its name is in the label and in the objects' names, which have
/// twelve more digits and two dots. An instance's OCID is as long as a subnet's, except for the type's name.
pub(crate) fn profile() -> String {
    let spec = template("t");
    let names = "2 * size(self.metadata.name) + 14 + size(t.name)";
    let instance = "18 + size(t.subnetId)";
    unless_unchanged(&format!("self.spec.attachments.all(t, {names} + {instance} + {spec} <= {NAME_AND_SPEC_MAX})"))
}

/// The most IPv4 addresses of a VNIC that pods share: all of them are in its status, in 18 bytes each.
const SHARED_ADDRESSES: u8 = 32;

/// The CEL rule of a template: a VNIC that pods share has at most [`SHARED_ADDRESSES`] IPv4 addresses.
pub(crate) fn shared() -> String {
    format!(
        "self.purpose != 'Attach' || (has(self.mode) && self.mode == 'Exclusive') || !has(self.ipv4Count) || \
         self.ipv4Count <= {SHARED_ADDRESSES}"
    )
}

/// An object from before the rule can still be deleted and have its status updated.
fn unless_unchanged(rule: &str) -> String {
    format!("oldSelf.hasValue() && oldSelf.value().spec == self.spec || {rule}")
}

/// The bytes of a template's fields as JSON, each with its name, quotes and comma.
fn template(of: &str) -> String {
    let scalars = [
        ("mode", 19),
        ("nicIndex", 13),
        ("ipv4Count", 16),
        ("ipv6Count", 16),
        ("mtu", 11),
        // With the longest IPv4 address.
        ("privateIp", 30),
        ("subnetRoute", 19),
        ("skipSourceDestCheck", 28),
        ("assignPublicIp", 23),
        ("onDelete", 20),
    ];
    let scalars = scalars.map(|(field, bytes)| format!("(has({of}.{field}) ? {bytes} : 0)")).join(" + ");
    let lists = [
        ("nsgIds", 12, "size(x) + 3"),
        ("allowedNamespaces", 23, "size(x) + 3"),
        ("routes", 12, "size(x.destination) + 19 + (has(x.via) ? size(x.via) + 9 : 0)"),
    ];
    let lists = lists
        .map(|(field, bytes, each)| format!("(has({of}.{field}) ? {bytes} + {of}.{field}.map(x, {each}).sum() : 0)"));
    let lists = lists.join(" + ");
    let name = format!("(has({of}.displayName) ? 17 + {} : 0)", text(&format!("{of}.displayName")));
    let tag = text(&format!("(k + {of}.freeformTags[k])"));
    let tags = format!("(has({of}.freeformTags) ? 18 + {of}.freeformTags.map(k, 6 + {tag}).sum() : 0)");
    // The name and the subnet, with the purpose and the braces.
    format!("45 + size({of}.name) + size({of}.subnetId) + {scalars} + {lists} + {name} + {tags}")
}

/// The bytes of a text that may have any characters but control characters: the API server writes some of them longer.
fn text(of: &str) -> String {
    let longer = [(r"\\", 2), (r#"""#, 2), ("<", 6), (">", 6), ("&", 6)];
    let replaced = longer
        .iter()
        .fold(of.to_owned(), |text, (char, bytes)| format!("{text}.replace('{char}', '{}')", "x".repeat(*bytes)));
    format!("size(bytes({replaced}))")
}
