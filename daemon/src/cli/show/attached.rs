//! `attachments` for people.

use std::fmt::Write as _;

use vcn::printable;

use super::table::{age, columns};
use crate::report::attachments::Attachment;

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
        let addresses = joined(one, |held| held.address.to_string());
        let _ = writeln!(text, "\n{} ({addresses}, {})", printable(holder(one)), one.host_link);
        for problem in &one.problems {
            let _ = writeln!(text, "  {}", printable(problem));
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
fn joined(one: &Attachment, what: impl Fn(&crate::report::attachments::Held) -> String) -> String {
    let mut all: Vec<String> = one.addresses.iter().map(what).collect();
    all.dedup();
    all.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::attachments::State;

    #[test]
    fn control_characters_are_escaped_in_a_row_and_below() {
        let foul = "\u{1b}[2J\n";
        let one = Attachment {
            pod: Some(foul.into()),
            pod_uid: None,
            network: "vcn-native".into(),
            container: "c".into(),
            interface: "eth0".parse().unwrap(),
            addresses: Vec::new(),
            host_link: "vcn0".parse().unwrap(),
            age_seconds: 0,
            state: State::Running,
            problems: vec![foul.into()],
        };
        assert_eq!(text(&[one]).matches("\\u{1b}[2J\\n").count(), 3);
    }
}
