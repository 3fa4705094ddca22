//! How large a NodePolicy may be: rules that count bytes as etcd holds them. Keys and values have no characters that JSON
//! writes longer.

/// The settings' rule: at most 3 KiB as JSON.
pub(super) fn settings() -> String {
    let sysctls = |of: &str| format!("{of}.sysctls.map(k, size(k) + size({of}.sysctls[k]) + 6).sum()");
    // The numbers are what the fields take at their longest, with their names.
    let scalars = [("mtu", 11), ("txQueueLength", 23), ("ring", 30), ("channels", 48), ("offloads", 150)];
    let scalars = scalars.map(|(field, bytes)| format!("(has(l.{field}) ? {bytes} : 0)")).join(" + ");
    let select = "28 + (has(l.select.driver) ? 11 + size(l.select.driver) : 0) + \
                  (has(l.select.name) ? 9 + size(l.select.name) : 0) + (has(l.select.mac) ? 26 : 0)";
    let link = format!("{select} + {scalars} + (has(l.sysctls) ? 13 + {} : 0)", sysctls("l"));
    format!(
        "2 + (has(self.sysctls) ? 13 + {} : 0) + (has(self.transparentHugePages) ? 46 : 0) + \
         (has(self.links) ? 10 + self.links.map(l, {link}).sum() : 0) <= 3072",
        sysctls("self")
    )
}

/// The most bytes that etcd holds of a NodePolicy, whatever its spec and its status say. Labels, annotations and finalizers of other
/// writers come on top.
pub const OBJECT_MAX: usize = 9 * 1024;

/// The most bytes that metadata take, with the names that JSON adds to spec and status.
pub(super) const METADATA: usize = 1100;

/// A selector's rule: characters of labels only, at most so many.
pub(crate) fn selector(most: u16) -> String {
    let labels = "(has(self.nodeSelector.matchLabels) ? self.nodeSelector.matchLabels.map(k, size(k) + \
                  size(self.nodeSelector.matchLabels[k]) + 6).sum() : 0)";
    let expressions = "(has(self.nodeSelector.matchExpressions) ? self.nodeSelector.matchExpressions.map(e, size(e.key) + 44 + \
                       (has(e.values) ? e.values.map(v, size(v) + 3).sum() : 0)).sum() : 0)";
    format!("!has(self.nodeSelector) || {labels} + {expressions} <= {most}")
}
