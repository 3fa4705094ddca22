//! `attachments` for people.

use std::fmt::Write as _;

use super::table::{age, columns};
use crate::attachments::Attachment;

/// A line for each, and below, for each that something is wrong with, what.
pub(super) fn text(all: &[Attachment]) -> String {
    if all.is_empty() {
        return "No pod has an address of this node's pools.\n".to_owned();
    }
    let mut text = columns(
        &["POD", "ADDRESSES", "VNIC LINK", "TABLE", "HOST LINK", "AGE", "STATE", "CONTAINER", "INTERFACE", "VNIC"],
        all.iter().map(row),
    );
    let wrong: Vec<&Attachment> = all.iter().filter(|one| !one.problems.is_empty()).collect();
    let _ = writeln!(text, "\n{} attachment(s), {} with problems", all.len(), wrong.len());
    for one in wrong {
        let _ =
            writeln!(text, "\n{} ({}, {})", holder(one), joined(one, |held| held.address.to_string()), one.host_link);
        for problem in &one.problems {
            let _ = writeln!(text, "  {problem}");
        }
    }
    text
}

fn row(one: &Attachment) -> Vec<String> {
    let state = one.state.word().to_owned() + if one.problems.is_empty() { "" } else { " !" };
    vec![
        one.pod.clone().unwrap_or_else(|| "-".into()),
        joined(one, |held| held.address.to_string()),
        joined(one, |held| held.vnic_link.to_string()),
        joined(one, |held| held.table.to_string()),
        one.host_link.to_string(),
        age(one.age_seconds),
        state,
        // Enough for `crictl`.
        one.container.chars().take(13).collect(),
        one.interface.to_string(),
        joined(one, |held| held.vnic_id.to_string()),
    ]
}

fn holder(one: &Attachment) -> &str {
    one.pod.as_deref().unwrap_or(&one.container)
}

/// What its addresses have, each once.
fn joined(one: &Attachment, what: impl Fn(&crate::attachments::Held) -> String) -> String {
    let mut all: Vec<String> = one.addresses.iter().map(what).collect();
    all.dedup();
    all.join(",")
}
