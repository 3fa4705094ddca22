//! What the agent refuses, whatever the controller asks: checked at the agent, after a name was resolved.

use api::TargetService;
use api::probe::{ProbeError, ProbeKind, ProbeRequest, ProbeTarget, Task};
use oke_node_agent::probes::TaskError;

use crate::lab::{Lab, PORT};

#[test]
fn agent_refuses_what_exceeds_its_bounds_and_forbidden_addresses() {
    let lab = Lab::new();
    let base = lab.case(ProbeKind::Tcp, PORT).send;
    let asked = |change: &dyn Fn(&mut api::probe::SendTask)| {
        let mut send = base.clone();
        change(&mut send);
        lab.ask("front-1", &ProbeRequest::new(Task::Send(send)))
    };
    let too_many = asked(&|send| send.count = 101);
    assert!(matches!(too_many, Err(TaskError::Refused(ProbeError::OutOfBounds { field: "count", .. }))));
    for address in ["169.254.169.254", "127.0.0.1", "169.254.0.2"] {
        let refused = asked(&|send| send.target = ProbeTarget::Address(address.parse().unwrap()));
        assert!(matches!(refused, Err(TaskError::Refused(ProbeError::Forbidden(_)))), "{address}");
    }
    let peers = asked(&|send| send.target = ProbeTarget::Service(TargetService::Peers));
    assert!(matches!(peers, Err(TaskError::Refused(ProbeError::Unfit(_)))));
}

/// The names are in the sandbox's resolver. A name of a node shows that names are resolved at all.
#[test]
fn name_that_resolves_to_a_forbidden_address_is_refused() {
    let lab = Lab::new();
    let asked = |kind, name: &str| {
        let mut send = lab.case(kind, PORT).send;
        send.source = Some(lab.address("front-1"));
        send.target = ProbeTarget::Host(format!("{name}.sandbox.internal"));
        lab.ask("front-1", &ProbeRequest::new(Task::Send(send)))
    };
    assert_eq!(asked(ProbeKind::Tcp, "back-1").unwrap().target, Some(lab.address("back-1")));
    for kind in [ProbeKind::Tcp, ProbeKind::Http, ProbeKind::Https] {
        let refused = asked(kind, "metadata");
        assert!(matches!(refused, Err(TaskError::Refused(ProbeError::Forbidden(_)))), "{kind:?}: {refused:?}");
    }
}
