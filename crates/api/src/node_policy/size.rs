//! How large a NodePolicy may be: rules that count bytes as etcd holds them. Keys and values have no characters that JSON
//! writes longer.

use crate::node_policy::NodePolicySpec;

/// The rule of settings without files: at most 3 KiB as JSON.
pub(super) fn settings() -> String {
    format!("{} <= 3072", without_files())
}

/// The rule of all settings: the object holds two copies of them.
pub(super) fn with_files() -> String {
    // Characters that JSON writes with several bytes; etcd has <, > and & with six. Each is counted apart: the API server estimates the
    // cost of a chain of replacements by the longest text that it could give.
    let written = [("\\\\", 1), ("\\n", 1), ("\\t", 1), ("\"", 1), ("<", 5), (">", 5), ("&", 5)];
    let more = written.map(|(of, bytes)| format!("{bytes} * (size(f.content) - size(f.content.replace('{of}', '')))"));
    let file = format!("size(f.path) + 40 + size(f.content) + {}", more.join(" + "));
    let amounts = ["systemReserved", "kubeReserved", "evictionHard"].map(|field| {
        let of = format!("self.kubelet.{field}");
        format!("(has({of}) ? 20 + {of}.map(k, size(k) + size({of}[k]) + 6).sum() : 0)")
    });
    format!(
        "!has(self.files) && !has(self.kubelet) || {} + (has(self.files) ? 11 + self.files.map(f, {file}).sum() : 0) + \
         (has(self.restart) ? 13 + self.restart.map(u, size(u) + 3).sum() : 0) + \
         (has(self.kubelet) ? 13 + {} : 0) <= 10752",
        without_files(),
        amounts.join(" + ")
    )
}

fn without_files() -> String {
    let sysctls = |of: &str| format!("{of}.sysctls.map(k, size(k) + size({of}.sysctls[k]) + 6).sum()");
    // The numbers are what the fields take at their longest, with their names.
    let scalars = [("mtu", 11), ("txQueueLength", 23), ("ring", 30), ("channels", 48), ("offloads", 150)];
    let scalars = scalars.map(|(field, bytes)| format!("(has(l.{field}) ? {bytes} : 0)")).join(" + ");
    let select = "28 + (has(l.select.driver) ? 11 + size(l.select.driver) : 0) + \
                  (has(l.select.name) ? 9 + size(l.select.name) : 0) + (has(l.select.mac) ? 26 : 0)";
    let link = format!("{select} + {scalars} + (has(l.sysctls) ? 13 + {} : 0)", sysctls("l"));
    format!(
        "2 + (has(self.sysctls) ? 13 + {} : 0) + (has(self.transparentHugePages) ? 46 : 0) + \
         (has(self.links) ? 10 + self.links.map(l, {link}).sum() : 0)",
        sysctls("self")
    )
}

/// The most bytes that etcd holds of a NodePolicy, whatever its spec and its status say. Labels, annotations and finalizers of other
/// writers come on top.
pub const OBJECT_MAX: usize = 9 * 1024;

/// The same, of a NodePolicy with files.
pub const OBJECT_WITH_FILES_MAX: usize = 24 * 1024;

/// The bound of an object with this spec. Its status may still have settings with files, which an update removed.
pub(super) fn object_max(spec: &NodePolicySpec, stable: Option<&super::NodeSettings>) -> usize {
    let has_files = spec.settings.has_files() || stable.is_some_and(super::NodeSettings::has_files);
    if has_files { OBJECT_WITH_FILES_MAX } else { OBJECT_MAX }
}

/// The bytes that etcd holds of a value.
pub(super) fn stored(value: &impl serde::Serialize) -> usize {
    let text = serde_json::to_vec(value).unwrap_or_default();
    text.len() + 5 * text.iter().filter(|byte| b"<>&".contains(byte)).count()
}

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
