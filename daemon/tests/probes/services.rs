//! The services of a node: metadata, resolver, gateway, API server, and their limits.

use api::TargetService;
use api::probe::ProbeKind;
use nettest::{Cause, Label};
use sandbox::{Fault, FaultKind};

use crate::hosts::run;
use crate::lab::Lab;

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

#[test]
fn throttled_metadata_service_is_named() {
    let lab = Lab::new();
    let fault = Fault::lasting(FaultKind::Status(429));
    lab.vcn.node("front-1").unwrap().set_metadata_fault(Some(fault));
    let case = lab.service(ProbeKind::Http, TargetService::Imds);
    assert_eq!(lab.named(case), (Label::Proven, vec![Cause::MetadataThrottled]));
}

#[test]
fn rule_of_the_host_that_refuses_metadata_is_named() {
    let lab = Lab::new();
    lab.on("front-1", || {
        run("nft add table inet filter");
        run("nft add chain inet filter output { type filter hook output priority 0 ; }");
        run("nft add rule inet filter output ip daddr 169.254.169.254 tcp dport 80 reject with tcp reset");
    });
    let case = lab.service(ProbeKind::Http, TargetService::Imds);
    assert_eq!(lab.named(case), (Label::Likely, vec![Cause::HostFirewall]));
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
