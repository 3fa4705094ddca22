//! What a pod requests from `vnic-attach`: its annotation, and the configuration of a delegate. Users write both.

use std::collections::BTreeSet;

use cni::{
    AddRequest, AddResult, CheckRequest, DelRequest, Error, ErrorCode, GcRequest, Plugin, StatusRequest, Success,
};
use serde_json::{Value, json};
use vcn::{Family, INTERFACES_ANNOTATION, IfName};
use vnic_attach::Conf;
use vnic_attach::requested::{self, InterfaceRequest};

use super::protocol::{answer, call};

const ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";

/// A plugin that reads what a pod requests and makes nothing.
struct Reader;

impl Plugin for Reader {
    type Conf = Conf;
    const ABOUT: &'static str = "fuzz: reads what a pod requests";

    fn add(&self, request: &AddRequest<Conf>) -> Result<AddResult, Error> {
        let requested = requested::by(&request.conf, &request.args, &request.config, &request.key.ifname)?;
        sound(&requested, request.conf.vnic.is_none().then_some(&request.key.ifname));
        Ok(Success::default().into())
    }

    fn del(&self, _: &DelRequest<Conf>) -> Result<(), Error> {
        Ok(())
    }

    fn check(&self, request: &CheckRequest<Conf>) -> Result<(), Error> {
        requested::by(&request.conf, &request.args, &request.config, &request.key.ifname).map(drop)
    }

    fn status(&self, _: &StatusRequest<Conf>) -> Result<(), Error> {
        Ok(())
    }

    fn gc(&self, _: &GcRequest<Conf>) -> Result<(), Error> {
        Ok(())
    }
}

/// What holds of every request that is not refused. `own` is the pod's own interface in a chain.
fn sound(requested: &[InterfaceRequest], own: Option<&IfName>) {
    assert!(requested.len() <= 32, "{} interfaces", requested.len());
    let vnics: BTreeSet<_> = requested.iter().map(|one| &one.vnic).collect();
    assert_eq!(vnics.len(), requested.len(), "one interface per VNIC");
    let named = || requested.iter().filter_map(|one| one.interface.as_ref());
    assert_eq!(named().map(IfName::as_str).collect::<BTreeSet<_>>().len(), named().count(), "names differ");
    assert!(!named().any(|name| Some(name) == own || name.as_str() == "lo"), "the pod's own interfaces");
    assert!(requested.iter().filter(|one| one.default_route).count() <= 1, "one default route");
    for one in requested {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        assert!((1..=63).contains(&one.vnic.len()) && one.vnic.bytes().all(is_plain), "{one:?}");
        for family in Family::ALL {
            assert!(one.ips.iter().filter(|ip| Family::of(**ip) == family).count() <= 1, "{one:?}");
        }
    }
}

/// The input is the annotation's text.
pub(super) fn annotation(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let conf = json!({"cniVersion": "1.1.0", "name": "n", "type": "vnic-attach",
        "runtimeConfig": {ANNOTATIONS: {INTERFACES_ANNOTATION: text}}});
    let Some(error) = answer(&Reader, &call("ADD"), conf.to_string().as_bytes()) else { return };
    assert_eq!(code(&error), Some(ErrorCode::TRY_AGAIN_LATER.0.into()), "a pod with a request fails closed: {error}");
    let message = error.get("msg").and_then(Value::as_str).unwrap_or_default();
    // At most 64 characters of the user's, each escaped by up to ten.
    assert!(message.starts_with("annotation ") && message.len() < 800, "{message}");
    assert!(!message.contains(char::is_control), "{message:?}");
}

/// The first byte chooses ADD or CHECK, the others are stdin.
pub(super) fn configuration(input: &[u8]) {
    let Some((&choice, stdin)) = input.split_first() else { return };
    let error = answer(&Reader, &call(if choice % 2 == 0 { "ADD" } else { "CHECK" }), stdin);
    assert!(matches!(error.as_ref().and_then(code), None | Some(1..=8 | 11)), "{error:?}");
}

fn code(error: &Value) -> Option<u64> {
    error.get("code")?.as_u64()
}

pub(super) fn annotations() -> Vec<Vec<u8>> {
    [
        "storage@net1, db",
        r#"[{"vnic":"storage","interface":"net1","ips":["10.0.1.9","2001:db8::9"],"defaultRoute":true},{"vnic":"db"}]"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

pub(super) fn configurations() -> Vec<Vec<u8>> {
    let delegate = r#"{"cniVersion":"1.0.0","name":"storage","type":"vnic-attach","vnic":"storage","ips":["10.0.1.9"],
        "defaultRoute":true,"prevResult":{"cniVersion":"1.0.0","interfaces":[],"ips":[]}}"#;
    (0..2).map(|verb| [&[verb], delegate.as_bytes()].concat()).collect()
}
