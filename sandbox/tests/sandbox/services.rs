//! Metadata, DNS and time, as a program on a node sees them.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};

use crate::fixture::{SOON, two_nodes, two_nodes_of};
use imds::{Imds, Metadata};
use sandbox::{MetadataFault, NodeSpec, SERVICES_V4, Vcn};
use simple_dns::{CLASS, Name, Packet, QCLASS, QTYPE, Question, TYPE};
use vcn::{Family, MachineKind};

/// A request in our own bytes: the status, and all of the answer.
fn get(vcn: &Vcn, path: &str) -> (u16, String) {
    let fetch = || {
        let mut stream = TcpStream::connect((SERVICES_V4, 80)).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let header = "Connection: close\r\nAuthorization: Bearer Oracle";
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: imds\r\n{header}\r\n\r\n").as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    };
    let reply = vcn.node("node-a").unwrap().run(fetch).unwrap();
    let status = reply.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status line");
    (status, reply)
}

#[test]
fn a_field_can_be_requested() {
    let vcn = two_nodes();
    let (_, reply) = get(&vcn, "/opc/v2/instance/region");
    assert!(reply.ends_with("\r\n\r\niad"), "{reply}");
    let (_, reply) = get(&vcn, "/opc/v2/vnics/1/macAddr");
    assert!(reply.ends_with("02:00:17:00:00:02"), "{reply}");
}

#[test]
fn the_agents_client_reads_the_documents() {
    let vcn = two_nodes_of(|name| {
        NodeSpec::virtual_machine(name, "nodes").shape("VM.Standard3.Flex", 8).metadata("oke-max-pods", "7")
    });
    let a = vcn.node("node-a").unwrap();
    let (instance, vnics) = a.run(|| ask(&client())).unwrap();
    assert_eq!((instance.id, instance.shape.as_str()), (a.id().clone(), "VM.Standard3.Flex"));
    assert_eq!((instance.region.as_str(), instance.max_vnic_attachments), ("us-ashburn-1", Some(8)));
    assert_eq!(instance.metadata["oke-max-pods"], "7");
    assert_eq!(MachineKind::of(&vnics), MachineKind::Virtual);
    let ours = a.vnics();
    assert_eq!(vnics.len(), ours.len());
    for (seen, ours) in vnics.iter().zip(&ours) {
        assert_eq!((&seen.id, seen.mac), (&ours.id, ours.mac));
        for family in Family::ALL {
            let addressing = seen.addressing.of(family).expect("both families");
            let secondary = ours.secondary.of(family).into_iter().flatten().filter(|_| family == Family::Ipv6);
            let all: BTreeSet<_> = ours.address.of(family).into_iter().chain(secondary).copied().collect();
            assert_eq!(addressing.listed().collect::<BTreeSet<_>>(), all);
            assert_eq!(Some(addressing.router), ours.subnet.router(family));
            assert_eq!(Some(&addressing.subnet), ours.subnet.blocks.of(family));
        }
    }
}

#[test]
fn faults_come_and_go() {
    let vcn = two_nodes();
    let a = vcn.node("node-a").unwrap();
    a.set_metadata_fault(Some(MetadataFault::Status(429)));
    assert_eq!(get(&vcn, "/opc/v2/vnics/").0, 429);
    a.set_metadata_fault(None);
    assert_eq!(get(&vcn, "/opc/v2/vnics/").0, 200);
}

#[test]
fn the_resolver_knows_the_nodes() {
    let vcn = two_nodes();
    let (a, b) = (vcn.node("node-a").unwrap(), vcn.node("node-b").unwrap());
    for (database, family) in [("ahostsv4", Family::Ipv4), ("ahostsv6", Family::Ipv6)] {
        let found = a.command("getent").args([database, "node-b.sandbox.internal"]).output().unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        let first = found.split_whitespace().next().and_then(|word| word.parse::<IpAddr>().ok());
        assert_eq!(first, b.address(family), "{found}");
    }
    let unknown = a.command("getent").args(["ahosts", "unknown.sandbox.internal"]).output().unwrap();
    assert!(!unknown.status.success());
}

#[test]
fn the_resolver_answers_over_tcp() {
    let vcn = two_nodes();
    let mut query = Packet::new_query(9);
    let name = Name::new("node-b.sandbox.internal").unwrap();
    query.questions.push(Question::new(name, QTYPE::TYPE(TYPE::A), QCLASS::CLASS(CLASS::IN), false));
    let query = query.build_bytes_vec().unwrap();
    let reply = vcn.node("node-a").unwrap().run(|| {
        let mut stream = TcpStream::connect((SERVICES_V4, 53)).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(&u16::try_from(query.len()).unwrap().to_be_bytes()).unwrap();
        stream.write_all(&query).unwrap();
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut reply = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut reply).unwrap();
        reply
    });
    assert_eq!(Packet::parse(&reply.unwrap()).unwrap().answers.len(), 1);
}

fn client() -> Imds {
    Imds::new(imds::DEFAULT_BASE_URL, imds::POLICY).expect("a client")
}

fn ask(client: &Imds) -> (vcn::Instance, Vec<vcn::Vnic>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        (client.instance().await.expect("the instance"), client.vnics().await.expect("VNICs").vnics)
    })
}
