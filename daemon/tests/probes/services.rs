//! The services of a node: metadata, resolver, gateway, API server, and their limits.

use std::io::Write as _;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use api::TargetService;
use nettest::probe::{Party, ProbeKind, ProbeTarget};
use nettest::{Cause, Label};
use sandbox::MetadataFault;

use crate::hosts::run;
use crate::lab::{Lab, PORT};

#[test]
fn services_without_fault_are_reachable() {
    let lab = Lab::new();
    for (kind, service) in [
        (ProbeKind::Http, TargetService::Imds),
        (ProbeKind::Dns, TargetService::Dns),
        (ProbeKind::Icmp, TargetService::Gateway),
        (ProbeKind::Tcp, TargetService::ApiServer),
    ] {
        assert_eq!(lab.named(lab.service(kind, service)), (Label::Reachable, vec![]), "{service:?}");
    }
}

/// As the controller requests targets outside the cluster: by a name that the source's node resolves.
#[test]
fn url_host_name_and_oci_services_are_resolved_and_probed() {
    let lab = Lab::new();
    let web = lab.on("back-1", || TcpListener::bind(("::", 80)).unwrap());
    thread::spawn(move || {
        for mut stream in web.incoming().flatten() {
            let mut request = [0; 1024];
            let _ = std::io::Read::read(&mut stream, &mut request)
                .and_then(|_| stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n"));
        }
    });
    let named = |kind, port, service| {
        let mut case = lab.case(kind, port);
        (case.target, case.target_has_agent, case.service) = (Party::default(), false, service);
        case.send.target = ProbeTarget::Host("back-1.sandbox.internal".to_owned());
        case.send.path = (kind == ProbeKind::Http).then(|| "/path".to_owned());
        lab.named(case)
    };
    let oci = Some(TargetService::OciServices);
    for (kind, port, service) in [(ProbeKind::Http, 80, None), (ProbeKind::Icmp, 0, None), (ProbeKind::Tcp, PORT, oci)]
    {
        assert_eq!(named(kind, port, service), (Label::Reachable, vec![]), "{kind:?}");
    }
    for (kind, service) in [(ProbeKind::Http, None), (ProbeKind::Tcp, oci)] {
        assert_eq!(named(kind, PORT + 1, service), (Label::Proven, vec![Cause::PortClosed]), "{kind:?}");
    }
}

/// A name that does not exist, and resolvers that do not answer within the deadline.
#[test]
fn name_without_an_address_is_named() {
    let lab = Lab::new();
    let named = |kind, host: &str| {
        let mut case = lab.case(kind, if kind == ProbeKind::Tcp { PORT } else { 0 });
        (case.target, case.target_has_agent) = (Party::default(), false);
        case.send.target = ProbeTarget::Host(host.to_owned());
        let began = Instant::now();
        let found = lab.investigate(case);
        // The probe, and again.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert_eq!((found.label, found.causes), (Label::Proven, vec![Cause::NameResolution]), "{host}");
        found.failure
    };
    for kind in [ProbeKind::Http, ProbeKind::Tcp, ProbeKind::Route] {
        let failure = named(kind, "missing.sandbox.internal");
        assert!(failure.starts_with("cannot resolve missing.sandbox.internal: "), "{failure}");
    }
    lab.filter("front-1", "input", "udp sport 53 drop");
    let failure = named(ProbeKind::Tcp, "back-1.sandbox.internal");
    assert_eq!(failure, "cannot resolve back-1.sandbox.internal: no answer within 5s");
}

#[test]
fn throttled_metadata_service_is_named() {
    let lab = Lab::new();
    lab.vcn.node("front-1").unwrap().set_metadata_fault(Some(MetadataFault::Status(429)));
    let case = lab.service(ProbeKind::Http, TargetService::Imds);
    assert_eq!(lab.named(case), (Label::Proven, vec![Cause::MetadataThrottled]));
}

#[test]
fn rule_of_the_host_that_refuses_metadata_is_named() {
    let lab = Lab::new();
    lab.filter("front-1", "output", "ip daddr 169.254.169.254 tcp dport 80 reject with tcp reset");
    let case = lab.service(ProbeKind::Http, TargetService::Imds);
    assert_eq!(lab.named(case), (Label::Likely, vec![Cause::HostFirewall]));
}

#[test]
fn missing_or_wrong_route_to_metadata_is_named() {
    let lab = Lab::new();
    let case = || lab.service(ProbeKind::Http, TargetService::Imds);
    lab.on("front-1", || run("ip route add unreachable 169.254.169.254"));
    assert_eq!(lab.named(case()), (Label::Proven, vec![Cause::HostRoute]));
    // To a link behind which nothing answers.
    lab.on("front-1", || {
        run("ip route delete unreachable 169.254.169.254");
        run("ip link add wrong type bridge");
        run("ip link set wrong up");
        run("ip route add 169.254.169.254 dev wrong");
    });
    assert_eq!(lab.named(case()), (Label::Proven, vec![Cause::HostRoute]));
    // Packets leave, and no answer comes.
    lab.on("front-1", || run("ip neighbour replace 169.254.169.254 lladdr 02:00:00:00:00:01 dev wrong"));
    assert_eq!(lab.named(case()), (Label::Proven, vec![Cause::HostRoute]));
}

/// No security list and no route table applies to them, and no agent runs there.
#[test]
fn service_of_the_link_that_does_not_answer_is_named() {
    let lab = Lab::new();
    // Its packets leave by the right link, with a MAC that the VCN drops.
    lab.on("front-1", || {
        run("ip link set ens3 address 02:00:00:00:00:01");
        run("ip neighbour replace 169.254.169.254 lladdr 02:00:00:00:00:02 dev ens3 nud permanent");
    });
    for (kind, service) in [(ProbeKind::Http, TargetService::Imds), (ProbeKind::Dns, TargetService::Dns)] {
        assert_eq!(lab.named(lab.service(kind, service)), (Label::Likely, vec![Cause::ServiceSilent]), "{service:?}");
    }
}

#[test]
fn resolver_with_a_limit_is_named() {
    let lab = Lab::new();
    lab.vcn.limit_dns(Some(20)).unwrap();
    let mut case = lab.service(ProbeKind::Dns, TargetService::Dns);
    case.send.name = Some("front-1.sandbox.internal".to_owned());
    (case.send.count, case.send.interval_ms) = (100, 10);
    assert_eq!(lab.named(case), (Label::Likely, vec![Cause::DnsRate]));
}
