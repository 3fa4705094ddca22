//! What a runtime sends: environment, configuration, previous result. The answer must be one of the two that there are.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use cni::{
    AddRequest, AddResult, CheckRequest, DelRequest, Error, GcRequest, Interface, Ip, Plugin, Route, StatusRequest,
    Success, Verb, Version,
};
use serde_json::Value;
use vcn_native::Conf;

/// A plugin that does what chained plugins do with what it is given: reads it, adds to it and passes it on.
struct Reader;

impl Plugin for Reader {
    type Conf = Conf;
    const ABOUT: &'static str = "fuzz: reads";

    fn add(&self, request: &AddRequest<Conf>) -> Result<AddResult, Error> {
        let _ = (request.config.ipam(), request.config.args());
        let _ = request.config.pod_annotations();
        let Some(mut previous) = request.config.prev_result.clone() else { return Ok(sample().into()) };
        let before = previous.read();
        let added = sample();
        for interface in &added.interfaces {
            assert_eq!(previous.add_interface(interface), before.interfaces.len(), "the index of what was added");
        }
        added.ips.iter().for_each(|ip| previous.add_ip(*ip));
        let after = previous.read();
        assert_eq!(after.ips.len(), before.ips.len() + added.ips.len());
        Ok(previous.into())
    }

    fn del(&self, request: &DelRequest<Conf>) -> Result<(), Error> {
        request.config.prev_result.iter().for_each(|previous| drop(previous.read()));
        Ok(())
    }

    fn check(&self, request: &CheckRequest<Conf>) -> Result<(), Error> {
        drop(request.prev_result.read());
        Ok(())
    }

    fn status(&self, _: &StatusRequest<Conf>) -> Result<(), Error> {
        Ok(())
    }

    fn gc(&self, request: &GcRequest<Conf>) -> Result<(), Error> {
        let ours = |key: &cni::AttachmentKey| key.network == request.config.name;
        assert!(request.valid.iter().flatten().all(ours), "GC keeps attachments of its own network only");
        Ok(())
    }
}

/// The first byte chooses the verb, the others are stdin.
pub(super) fn configuration(input: &[u8]) {
    let Some((&choice, stdin)) = input.split_first() else { return };
    let verbs = Verb::ALL.map(Verb::as_str);
    let verb = verbs.get(usize::from(choice) % verbs.len()).copied().unwrap_or_default();
    read(&call(verb), stdin);
}

/// Five variables, a line each.
pub(super) fn environment(input: &[u8]) {
    const NAMES: [&str; 5] = ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_IFNAME", "CNI_ARGS", "CNI_NETNS"];
    let lines = input.split(|byte| *byte == b'\n').map(|line| OsString::from_vec(line.to_vec()));
    let variables = NAMES.into_iter().map(str::to_owned).zip(lines).collect();
    read(&variables, br#"{"cniVersion":"1.1.0","name":"n","type":"t","cni.dev/valid-attachments":[]}"#);
}

/// The first byte chooses the version, the others are `prevResult`.
pub(super) fn previous_result(input: &[u8]) {
    let Some((&choice, document)) = input.split_first() else { return };
    let version = Version::ALL.get(usize::from(choice) % Version::ALL.len()).copied().unwrap_or(Version::NEWEST);
    let head = format!(r#"{{"cniVersion":"{version}","name":"n","type":"t","prevResult":"#);
    read(&call("ADD"), &[head.as_bytes(), document, b"}"].concat());
}

pub(super) fn configurations() -> Vec<Vec<u8>> {
    let document = r#"{"cniVersion":"1.1.0","name":"vcn-native","type":"vcn-native","mtu":9000,
        "capabilities":{"portMappings":true},"ipam":{},"dns":{"nameservers":["10.0.0.2"],"search":["a.b"]},
        "runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"a":"b"},"mac":"02:00:17:00:00:01"},
        "args":{"cni":{"ips":["10.0.0.9"]}},"disableGC":"false",
        "cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}],"prevResult":"#;
    (0..6).map(|verb| [&[verb], document.as_bytes(), sample_text(Version::NEWEST).as_bytes(), b"}"].concat()).collect()
}

pub(super) fn results() -> Vec<Vec<u8>> {
    (0..).zip(Version::ALL).map(|(choice, version)| [&[choice], sample_text(version).as_bytes()].concat()).collect()
}

pub(super) fn call(verb: &str) -> BTreeMap<String, OsString> {
    [("CNI_COMMAND", verb), ("CNI_CONTAINERID", "c"), ("CNI_NETNS", "/run/netns/absent"), ("CNI_IFNAME", "eth0")]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect()
}

/// Makes the call of a plugin that refuses nothing by itself: an error has one of the specification's codes.
fn read(variables: &BTreeMap<String, OsString>, stdin: &[u8]) {
    let error = answer(&Reader, variables, stdin);
    let code = error.as_ref().and_then(|error| error.get("code")?.as_u64());
    assert!(error.is_none() || matches!(code, Some(1..=8)), "{error:?}");
}

/// Makes the call and checks the answer: a result, nothing, or one whole error, and an exit that agrees. Returns the error.
pub(super) fn answer<P: Plugin>(plugin: &P, variables: &BTreeMap<String, OsString>, mut stdin: &[u8]) -> Option<Value> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let env = |name: &str| variables.get(name).cloned();
    match cni::run(plugin, &env, &mut stdin, &mut stdout, &mut stderr) == ExitCode::SUCCESS {
        true if stdout.is_empty() => None,
        true => {
            let result: Value = serde_json::from_slice(&stdout).unwrap_or_default();
            assert!(result.get("cniVersion").is_some_and(Value::is_string), "a result of some version");
            assert!(result.get("code").is_none() || variables.get("CNI_COMMAND").is_some_and(|verb| verb == "ADD"));
            None
        }
        false => {
            let error: Value = serde_json::from_slice(&stdout).unwrap_or_default();
            assert_eq!(stdout.iter().filter(|byte| **byte == b'\n').count(), 1, "one line");
            assert!(error.get("cniVersion").is_some_and(Value::is_string), "an error of some version");
            assert!(error.get("code").is_some_and(Value::is_u64), "{error}");
            assert!(error.get("msg").and_then(Value::as_str).is_some_and(|msg| !msg.is_empty()), "{error}");
            assert!(stdout.len() < 4096, "an error is read by a person: {} bytes", stdout.len());
            Some(error)
        }
    }
}

fn sample() -> Success {
    let address = std::net::IpAddr::from([10, 0, 0, 9]);
    let interface = Interface {
        name: "eth0".to_owned(),
        mac: Some(vcn::MacAddr([2, 0, 23, 0, 0, 1])),
        mtu: Some(vcn::Mtu(9000)),
        sandbox: "/run/netns/x".to_owned(),
    };
    Success {
        interfaces: vec![interface],
        ips: vec![Ip { address: address.into(), gateway: Some(address), interface: Some(0) }],
        routes: vec![Route { dst: address.into(), gw: Some(address) }],
        ..Success::default()
    }
}

fn sample_text(version: Version) -> String {
    sample().to_json(version)
}
