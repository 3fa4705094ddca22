//! Documents of the Kubernetes API and of our own plugins, and single words.

use std::fmt::Display;
use std::str::FromStr;

use api::NativePodNetwork;
use telemetry::{LINE_LIMIT, VerbRecord};

pub(super) fn native_pod_network(input: &[u8]) {
    if let Err(error) = NativePodNetwork::parse(input) {
        assert!(!error.to_string().is_empty());
    }
}

/// The golden documents of `crates/api`.
pub(super) fn golden_networks() -> Vec<Vec<u8>> {
    [
        &include_bytes!("../../../../crates/api/golden/npn/dual_stack.json")[..],
        include_bytes!("../../../../crates/api/golden/npn/gva_cidr.json"),
        include_bytes!("../../../../crates/api/golden/npn/backoff.json"),
        include_bytes!("../../../../crates/api/golden/npn/ipv4_legacy.json"),
    ]
    .map(<[u8]>::to_vec)
    .into()
}

/// The agent reads these from a socket that any process on the node may write to.
pub(super) fn verb_record(input: &[u8]) {
    if let Ok(record) = VerbRecord::from_line(input) {
        let line = record.to_line();
        assert!(line.len() <= LINE_LIMIT, "{} bytes", line.len());
        assert_eq!(line.find('\n'), Some(line.len() - 1), "one line");
        assert!(VerbRecord::from_line(line.as_bytes()).is_ok(), "{line}");
    }
}

pub(super) fn written_records() -> Vec<Vec<u8>> {
    let mut record = VerbRecord::begin("vcn-native", "0.1.0", "ADD");
    record.network = "vcn-native".to_owned();
    record.container_id = "a".repeat(64);
    record.message = "no address is free".to_owned();
    record.addresses = vec![[10, 0, 0, 9].into()];
    vec![record.to_line().into_bytes()]
}

/// What reads itself must write itself: a key in a link's alias, a name in a file.
pub(super) fn identifiers(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    same::<cni::AttachmentKey>(text);
    same::<cni::ContainerId>(text);
    same::<vcn::Ocid>(text);
    same::<vcn::IfName>(text);
    same::<vcn::MacAddr>(text);
}

fn same<T: FromStr + Display + PartialEq>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        assert!(value.to_string().parse::<T>().is_ok_and(|again| again == value), "{text:?}");
    }
}
