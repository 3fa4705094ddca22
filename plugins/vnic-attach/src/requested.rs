//! What a pod requests: by its annotation, or by the configuration of a delegate. Users write both, so each refusal names the
//! field, and nothing that they wrote is in it but short and printable.

use std::net::IpAddr;

use cni::{Args, Config, Error, ErrorCode, RequestedAddresses, RequestedKind, requested_fields};
use serde::Deserialize;
use serde_json::Value;
use vcn::{Family, INTERFACES_ANNOTATION, IfName, excerpt, printable};

use crate::Conf;

/// More than an instance has VNICs, by far.
const MAX_ENTRIES: usize = 32;

/// Far more than as many entries need, in bytes.
const MAX_BYTES: usize = 16 << 10;

/// Of what is quoted, in characters.
const QUOTED: usize = 64;

/// The longest name of a VNIC: a label of Kubernetes (RFC 1123).
const MAX_NAME: usize = 63;

/// A pod's request for an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceRequest {
    /// The VNIC's name on the node.
    pub vnic: String,
    /// The interface's name; the first of net1, net2, … that is free if absent.
    pub interface: Option<IfName>,
    /// Addresses of the VNIC, at most one per family.
    pub ips: Vec<IpAddr>,
    /// Whether it has the pod's default route.
    pub default_route: bool,
}

/// An entry as it is written.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    vnic: String,
    #[serde(default)]
    interface: Option<String>,
    #[serde(default)]
    ips: RequestedAddresses,
    #[serde(default)]
    default_route: bool,
}

/// What a call requests; nothing of a pod without the annotation.
///
/// # Errors
/// Code 11 where it cannot be understood: the pod must not start without it. Code 7 where a delegate's configuration has other
/// keys, and 2 where the caller requests of a delegate what it cannot do.
pub fn by(conf: &Conf, args: &Args, config: &Config, ifname: &IfName) -> Result<Vec<InterfaceRequest>, Error> {
    let requested = match &conf.vnic {
        Some(vnic) => {
            config.refuse_unknown_keys(Conf::KEYS)?;
            of_delegate(vnic, conf, args, config, ifname)?
        }
        None => match config.pod_annotations()?.and_then(|all| all.get(INTERFACES_ANNOTATION)) {
            None => return Ok(Vec::new()),
            Some(Value::String(text)) => listed(text, ifname),
            Some(_) => Err("it is not a string".to_owned()),
        }
        .map_err(|complaint| format!("annotation {INTERFACES_ANNOTATION}: {complaint}")),
    };
    requested.map_err(|complaint| Error::new(ErrorCode::TRY_AGAIN_LATER, complaint))
}

/// The interface of a delegate. In a chain, what the caller requests belongs to the first plugin; here it is of this interface.
fn of_delegate(
    vnic: &str,
    conf: &Conf,
    args: &Args,
    config: &Config,
    ifname: &IfName,
) -> Result<Result<Vec<InterfaceRequest>, String>, Error> {
    let mut ips = conf.ips.clone();
    for field in requested_fields(args, config) {
        let next = match field.kind {
            RequestedKind::Addresses => match field.addresses() {
                Ok(RequestedAddresses(more)) => {
                    ips.0.extend(more);
                    continue;
                }
                Err(complaint) => return Ok(Err(complaint)),
            },
            RequestedKind::AddressPlugin => {
                "addresses come from the VNIC: leave ipam out; \"ips\" requests some of them"
            }
            RequestedKind::Mac | RequestedKind::SharedMac => "the fabric knows the VNIC's MAC alone: leave it out",
        };
        return Err(field.refused("vnic-attach", next));
    }
    let interface = Some(ifname.as_str().to_owned());
    let entry = Entry { vnic: vnic.to_owned(), interface, ips, default_route: conf.default_route };
    Ok(checked(entry).map(|only| vec![only]))
}

/// The interfaces of an annotation: `storage@net1,db`, or a JSON list. `own` is the pod's own interface.
fn listed(text: &str, own: &IfName) -> Result<Vec<InterfaceRequest>, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("it has {} bytes, and {MAX_BYTES} are allowed", text.len()));
    }
    let text = text.trim();
    let entries = if text.starts_with('[') { of_json(text)? } else { of_list(text) };
    if entries.len() > MAX_ENTRIES {
        return Err(format!("it requests {} interfaces, and {MAX_ENTRIES} are allowed", entries.len()));
    }
    let mut requested: Vec<InterfaceRequest> = Vec::with_capacity(entries.len());
    for (index, entry) in entries.into_iter().enumerate() {
        let one = checked(entry).map_err(|complaint| format!("[{index}]: {complaint}"))?;
        if one.interface.as_ref() == Some(own) {
            return Err(format!("[{index}]: interface {own} is the pod's own"));
        }
        if let Some(name) =
            one.interface.as_ref().filter(|name| requested.iter().any(|it| it.interface.as_ref() == Some(*name)))
        {
            return Err(format!("[{index}]: interface {name} is requested twice"));
        }
        if requested.iter().any(|other| other.vnic == one.vnic) {
            return Err(format!("[{index}]: VNIC {} is requested twice; a pod has one interface on a VNIC", one.vnic));
        }
        if one.default_route && requested.iter().any(|other| other.default_route) {
            return Err(format!("[{index}]: a second interface requests the default route"));
        }
        requested.push(one);
    }
    Ok(requested)
}

fn of_json(text: &str) -> Result<Vec<Entry>, String> {
    let items: Vec<Value> =
        serde_json::from_str(text).map_err(|error| quoted(&format!("it is not a JSON list: {error}")))?;
    if items.len() > MAX_ENTRIES {
        return Err(format!("it requests {} interfaces, and {MAX_ENTRIES} are allowed", items.len()));
    }
    let entry = |(index, item)| {
        serde_json::from_value(item).map_err(|error| format!("[{index}]: {}", quoted(&error.to_string())))
    };
    items.into_iter().enumerate().map(entry).collect()
}

fn of_list(text: &str) -> Vec<Entry> {
    let entry = |part: &str| {
        let (vnic, interface) = part.split_once('@').map_or((part, None), |(vnic, name)| (vnic, Some(name)));
        let interface = interface.map(|name| name.trim().to_owned());
        Entry { vnic: vnic.trim().to_owned(), interface, ips: RequestedAddresses::default(), default_route: false }
    };
    text.split(',').filter(|_| !text.is_empty()).map(entry).collect()
}

fn checked(entry: Entry) -> Result<InterfaceRequest, String> {
    let Entry { vnic, interface, ips: RequestedAddresses(requested), default_route } = entry;
    let mut ips: Vec<IpAddr> = Vec::new();
    requested.into_iter().for_each(|ip| {
        if !ips.contains(&ip) {
            ips.push(ip)
        }
    });
    let alphanumeric = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let is_name = vnic.len() <= MAX_NAME
        && alphanumeric(vnic.bytes().next())
        && alphanumeric(vnic.bytes().last())
        && vnic.bytes().all(|byte| alphanumeric(Some(byte)) || byte == b'-');
    if !is_name {
        return Err(format!("vnic: \"{}\" is not the name of a VNIC", quoted(&vnic)));
    }
    let interface = interface.map(|name| match IfName::new(&name) {
        Ok(known) if known.as_str() != "lo" && name.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(known),
        _ => Err(format!("interface: \"{}\" is not a name for an interface", quoted(&name))),
    });
    for family in Family::ALL {
        let mut of_family = ips.iter().filter(|ip| Family::of(**ip) == family);
        if let (Some(one), Some(other)) = (of_family.next(), of_family.next()) {
            return Err(format!("ips: more than one {family} address: {one} and {other}"));
        }
    }
    Ok(InterfaceRequest { vnic, interface: interface.transpose()?, ips, default_route })
}

/// The beginning of a user's text, on one line.
fn quoted(text: &str) -> String {
    printable(&excerpt(text, QUOTED)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<InterfaceRequest>, String> {
        listed(text, &IfName::new("eth0").unwrap())
    }

    fn plain(vnic: &str, interface: Option<&str>) -> InterfaceRequest {
        let interface = interface.map(|name| IfName::new(name).unwrap());
        InterfaceRequest { vnic: vnic.to_owned(), interface, ips: Vec::new(), default_route: false }
    }

    #[test]
    fn both_forms_are_read() {
        assert_eq!(read("storage@net1, db"), Ok(vec![plain("storage", Some("net1")), plain("db", None)]));
        assert_eq!(read(" "), Ok(Vec::new()));
        assert_eq!(read("[]"), Ok(Vec::new()));
        let ips: Vec<IpAddr> = ["10.0.1.9", "2001:db8::9"].map(|ip| ip.parse().unwrap()).to_vec();
        for written in [r#"["10.0.1.9","2001:db8::9"]"#, r#""10.0.1.9/24, 2001:db8::9/64""#] {
            let long = format!(r#"[{{"vnic":"storage","interface":"net1","ips":{written},"defaultRoute":true}}]"#);
            let request = InterfaceRequest { ips: ips.clone(), default_route: true, ..plain("storage", Some("net1")) };
            assert_eq!(read(&long), Ok(vec![request]));
        }
        assert_eq!(read(r#"[{"vnic":"db","ips":null}]"#), Ok(vec![plain("db", None)]));
    }

    #[test]
    fn hostile_annotation_is_refused_with_one_short_line() {
        let many = format!("[{}]", vec![r#"{"vnic":"a"}"#; 1000].join(","));
        let (deep, huge) = ("[".repeat(10_000), "a".repeat(100_000));
        let long = format!("{}@net1", "a".repeat(200));
        for (text, complaint) in [
            (many.as_str(), "it requests 1000 interfaces"),
            (&deep, "it is not a JSON list: recursion limit"),
            (&huge, "it has 100000 bytes"),
            (&long, "[0]: vnic: \"aaaa"),
            (r#"[{"vnic":"a","stateDir":"/etc"}]"#, "[0]: unknown field `stateDir`"),
            (r#"[{"vnic":"a"},{"interface":"net1"}]"#, "[1]: missing field `vnic`"),
            (r#"[{"vnic":"a","ips":["10.0.0.300"]}]"#, "[0]: invalid IP address \"10.0.0.300\""),
            (
                r#"[{"vnic":"a","ips":["10.0.0.3","10.0.0.4"]}]"#,
                "[0]: ips: more than one IPv4 address: 10.0.0.3 and 10.0.0.4",
            ),
            (r#"[{"vnic":7}]"#, "[0]: invalid type: integer `7`"),
            (r#"{"vnic":"a"}"#, "[0]: vnic: \"{\"vnic\""),
            ("../../etc/passwd", "[0]: vnic: \"../../etc"),
            ("a@../x", "[0]: interface: \"../x\""),
            ("a@..", "[0]: interface: \"..\""),
            ("a@x%d", "[0]: interface: \"x%d\""),
            (r#"[{"vnic":"a","interface":"%"}]"#, "[0]: interface: \"%\""),
            ("a@eth0", "[0]: interface eth0 is the pod's own"),
            ("a@lo", "[0]: interface: \"lo\""),
            ("a@sixteen-letters0", "[0]: interface: "),
            ("a@net1,b@net1", "[1]: interface net1 is requested twice"),
            ("a@net1,a@net2", "[1]: VNIC a is requested twice"),
            ("a\u{1b}[2J@net1", "[0]: vnic: \"a\\u{1b}[2J\""),
            ("a@n\u{7}", "[0]: interface: \"n\\u{7}\""),
            ("a,,b", "[1]: vnic: \"\""),
            ("A_b", "[0]: vnic: \"A_b\""),
            (r#"[{"vnic":"a","defaultRoute":true},{"vnic":"b","defaultRoute":true}]"#, "[1]: a second interface"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(complaint), "{error}");
            assert!(error.len() < 300 && !error.contains(char::is_control), "{error}");
        }
    }
}
