//! An instance metadata service on a node's loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use netlink::Netns;
use serde_json::{Value, json};

/// What is wrong with every answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// A failure with this HTTP status.
    Status(u16),
    /// A body that is not the document.
    Garbage(&'static str),
    Silent,
}

/// The service. Its thread lives as long as the test process.
pub(crate) struct Metadata {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Clone)]
struct State {
    fault: Fault,
    /// Of questions for the instance, every one is answered with 404.
    fails_instance: bool,
    vnics: Vec<Value>,
    /// Questions for the list of VNICs so far.
    list_requests: usize,
}

impl Metadata {
    /// Starts in a namespace whose loopback is up.
    pub(crate) fn start(netns: &Netns) -> Self {
        let listener = netns.run(|| TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State {
            fault: Fault::None,
            fails_instance: false,
            vnics: Vec::new(),
            list_requests: 0,
        }));
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = shared.clone();
                // On its own thread, so that a slow client delays no other. The client may have given up.
                thread::spawn(move || stream.and_then(|stream| answer(stream, &shared)));
            }
        });
        Self { address, state }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/opc/v2", self.address)
    }

    /// From now on the instance has these VNICs.
    pub(crate) fn set_vnics(&self, vnics: Vec<Value>) {
        self.state.lock().unwrap().vnics = vnics;
    }

    /// How often the list of VNICs was requested.
    pub(crate) fn list_requests(&self) -> usize {
        self.state.lock().unwrap().list_requests
    }

    /// From now on every answer has this status.
    pub(crate) fn set_status(&self, status: u16) {
        self.set_fault(if status == 200 { Fault::None } else { Fault::Status(status) });
    }

    /// Whether requests for the instance fail, while the list of VNICs is answered.
    pub(crate) fn fail_instance(&self, fails: bool) {
        self.state.lock().unwrap().fails_instance = fails;
    }

    /// From now on this is wrong with every answer.
    pub(crate) fn set_fault(&self, fault: Fault) {
        self.state.lock().unwrap().fault = fault;
    }
}

/// A VNIC whose Ethernet address ends with `last` and whose subnet is `10.0.<last>.0/24`.
pub(crate) fn vnic(name: &str, last: u8) -> Value {
    json!({
        "vnicId": format!("ocid1.vnic.oc1.iad.{name}"),
        "macAddr": format!("02:00:17:00:00:{last:02X}"),
        "privateIp": format!("10.0.{last}.7"),
        "subnetCidrBlock": format!("10.0.{last}.0/24"),
        "virtualRouterIp": format!("10.0.{last}.1"),
        "vlanTag": 1234,
    })
}

/// The same with IPv6.
pub(crate) fn dual_stack(name: &str, last: u8) -> Value {
    let mut vnic = vnic(name, last);
    vnic["ipv6Addresses"] = json!([format!("2603:c020:0:{last}::7")]);
    vnic["ipv6SubnetCidrBlock"] = json!(format!("2603:c020:0:{last}::/64"));
    vnic["ipv6VirtualRouterIp"] = json!("fe80::200:17ff:fe00:1");
    vnic
}

fn answer(mut stream: TcpStream, shared: &Mutex<State>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    let mut authorised = false;
    for line in lines {
        let line = line?.to_ascii_lowercase();
        authorised |= line == "authorization: bearer oracle";
        if line.is_empty() {
            break;
        }
    }
    let state = {
        let mut state = shared.lock().unwrap();
        state.list_requests += usize::from(request.contains("/vnics/"));
        state.clone()
    };
    let is_bare_metal = state.vnics.iter().any(|vnic| vnic.get("nicIndex").is_some());
    let instance = json!({
        "id": "ocid1.instance.oc1.iad.node",
        "shape": if is_bare_metal { "BM.Standard.E5.192" } else { "VM.Standard.E5.Flex" },
        "canonicalRegionName": "us-ashburn-1",
        "metadata": {"oke-native-pod-networking": "true", "user_data": "c2VjcmV0"},
    });
    let body = match request.split(' ').nth(1) {
        Some("/opc/v2/instance/") => instance,
        Some("/opc/v2/vnics/") => json!(state.vnics),
        _ => Value::Null,
    };
    let (mut status, mut body) = (if authorised { 200 } else { 401 }, body.to_string());
    if state.fails_instance && request.contains("/instance/") {
        status = 404;
    }
    match state.fault {
        Fault::None => {}
        Fault::Status(other) => status = other,
        Fault::Garbage(text) => body = text.to_owned(),
        Fault::Silent => {
            // Until the client gives up.
            let _ = stream.read(&mut [0])?;
            return Ok(());
        }
    }
    let length = body.len();
    write!(stream, "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}
