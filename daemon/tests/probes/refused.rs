//! What the agent refuses, whatever the controller requests: checked at the agent, after a name was resolved.

use api::TargetService;
use nettest::probe::{Flow, ProbeError, ProbeKind, ProbeRequest, ProbeTarget, ReceiveTask, SendTask, Task, Transport};
use oke_node_agent::probes::TaskError;

use crate::lab::{Lab, PORT};

#[test]
fn agent_refuses_what_exceeds_its_bounds_and_forbidden_addresses() {
    let lab = Lab::new();
    let base = lab.case(ProbeKind::Tcp, PORT).send;
    let requested = |change: &dyn Fn(&mut nettest::probe::SendTask)| {
        let mut send = base.clone();
        change(&mut send);
        lab.probe("front-1", &ProbeRequest::new(Task::Send(send)))
    };
    let too_many = requested(&|send| send.count = 101);
    assert!(matches!(too_many, Err(TaskError::Refused(ProbeError::OutOfBounds { field: "count", .. }))));
    for address in ["169.254.169.254", "127.0.0.1", "169.254.0.2"] {
        let refused = requested(&|send| send.target = ProbeTarget::Address(address.parse().unwrap()));
        assert!(matches!(refused, Err(TaskError::Refused(ProbeError::Forbidden(_)))), "{address}");
    }
    // Of a pod, of another node, of none.
    for address in ["10.244.1.7", "10.0.20.2", "203.0.113.9", "2001:db8::7", "2603:c020:0:2::2"] {
        let address: std::net::IpAddr = address.parse().unwrap();
        let base = if address.is_ipv4() { lab.case(ProbeKind::Tcp, PORT) } else { lab.case_v6(ProbeKind::Tcp, PORT) };
        for kind in [ProbeKind::Icmp, ProbeKind::Tcp, ProbeKind::Udp, ProbeKind::Route] {
            let send = SendTask { kind, source: Some(address), ..base.send.clone() };
            let refused = lab.probe("front-1", &ProbeRequest::new(Task::Send(send)));
            assert!(matches!(refused, Err(TaskError::ForeignSource(_))), "{kind:?} {address}: {refused:?}");
        }
        let flow =
            Flow { protocol: Transport::Udp, source: lab.address("back-1"), target: address, source_port: 1, port: 1 };
        let refused = lab.probe("front-1", &ProbeRequest::new(Task::Open(flow)));
        assert!(matches!(refused, Err(TaskError::ForeignSource(_))), "{address}: {refused:?}");
        let receive = ReceiveTask { address, port: 5201, from: lab.address("back-1"), for_ms: 100 };
        let refused = lab.probe("front-1", &ProbeRequest::new(Task::Receive(receive)));
        assert!(matches!(refused, Err(TaskError::ForeignSource(_))), "{address}: {refused:?}");
    }
    let peers = requested(&|send| send.target = ProbeTarget::Service(TargetService::Peers));
    assert!(matches!(peers, Err(TaskError::Refused(ProbeError::Unfit(_)))));
}

/// The names are in the sandbox's resolver. A name of a node shows that names are resolved at all.
#[test]
fn name_that_resolves_to_a_forbidden_address_is_refused() {
    let lab = Lab::new();
    let answer_of = |kind, name: &str| {
        let mut send = lab.case(kind, PORT).send;
        send.source = Some(lab.address("front-1"));
        send.target = ProbeTarget::Host(format!("{name}.sandbox.internal"));
        lab.probe("front-1", &ProbeRequest::new(Task::Send(send)))
    };
    assert_eq!(answer_of(ProbeKind::Tcp, "back-1").unwrap().target, Some(lab.address("back-1")));
    for kind in [ProbeKind::Tcp, ProbeKind::Http, ProbeKind::Https] {
        let refused = answer_of(kind, "metadata");
        assert!(matches!(refused, Err(TaskError::Refused(ProbeError::Forbidden(_)))), "{kind:?}: {refused:?}");
    }
}
