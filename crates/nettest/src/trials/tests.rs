//! Which trials are planned for recorded evidence.

use super::*;

const NEIGHBOURS_OF_SOURCE: [&str; 4] = ["near-1", "near-2", "near-3", "near-4"];

fn recorded(name: &str) -> Evidence {
    let evidence = crate::golden::evidence(&crate::golden::folder().join(name));
    Evidence { trials: Vec::new(), ..evidence }
}

/// A pair of the recorded addresses, four neighbours of the source, and one node of another subnet.
fn case(evidence: &Evidence) -> Case {
    let near = NEIGHBOURS_OF_SOURCE.iter().zip(5..).map(|(name, host)| (*name, [10, 0, 10, host], host));
    let compared = |(name, v4, v6): (&str, [u8; 4], u8)| Compared {
        node: name.to_owned(),
        addresses: vec![v4.into(), format!("2001:db8::{v6}").parse().unwrap()],
    };
    Case {
        source: evidence.source.clone(),
        target: evidence.target.clone(),
        target_has_agent: true,
        service: None,
        send: SendTask {
            kind: evidence.kind,
            source: None,
            target: ProbeTarget::Address(evidence.target.address.unwrap()),
            port: evidence.port,
            source_port: 23_456,
            count: 5,
            interval_ms: 50,
            timeout_ms: 400,
            size: 0,
            force_link: false,
            name: None,
            path: None,
            over_tcp: false,
            mbits: None,
        },
        others: [("far", [10, 0, 30, 2], 30)].into_iter().chain(near).map(compared).collect(),
    }
}

fn requests(evidence: &Evidence) -> Vec<AgentRequest> {
    rounds(&case(evidence), evidence).into_iter().flatten().collect()
}

#[test]
fn three_neighbours_send_while_the_target_watches() {
    let requests = requests(&recorded("a_security_list_drops_one_port"));
    for (number, neighbour) in (0..3).zip(NEIGHBOURS_OF_SOURCE) {
        let of = |role| {
            requests
                .iter()
                .filter(|request| request.role == role)
                .map(|request| request.node.as_str())
                .collect::<Vec<_>>()
        };
        assert_eq!(of(Role::Neighbour(number)), [neighbour]);
        assert_eq!(of(Role::NeighbourArrival(number)), ["node-b"]);
    }
    assert_eq!(requests.iter().filter(|request| request.change() == Some(Change::SubnetNeighbour)).count(), 3);
}

/// One trial for each change, so that a busy cluster does no more than the proof needs.
#[test]
fn cause_that_a_host_shows_is_tried_only_without_it() {
    let changes = |name: &str| {
        let evidence = recorded(name);
        requests(&evidence).iter().map(|request| (request.node.clone(), request.change().unwrap())).collect::<Vec<_>>()
    };
    let own = |change| ("node-a".to_owned(), change);
    let near = ("near-1".to_owned(), Change::SubnetNeighbour);
    let stranger = ("far".to_owned(), Change::OtherSubnet);
    for (name, expected) in [
        ("the_targets_reverse_path_filter_drops", vec![own(Change::OtherTarget)]),
        ("the_targets_connections_are_at_their_limit", vec![own(Change::OtherTarget)]),
        ("the_sources_connections_are_at_their_limit", vec![near.clone(), stranger]),
        ("the_neighbour_table_is_full", vec![own(Change::OtherTarget), near]),
        (
            "the_targets_firewall_rejects",
            [Change::OtherPort, Change::OtherProtocol, Change::OtherTarget].map(own).into(),
        ),
        ("no_process_listens", vec![]),
    ] {
        assert_eq!(changes(name), expected, "{name}");
    }
}

#[test]
fn other_target_is_of_the_probes_family() {
    let mut evidence = recorded("a_security_list_drops_one_port");
    for (source, expected) in [("10.0.10.2", "10.0.30.2"), ("2001:db8::2", "2001:db8::30")] {
        evidence.attempt.source = Some(source.parse().unwrap());
        let other =
            requests(&evidence).into_iter().find(|request| request.change() == Some(Change::OtherTarget)).unwrap();
        let Task::Send(send) = other.probe.task else { panic!("{other:?}") };
        assert_eq!(send.target, ProbeTarget::Address(expected.parse().unwrap()));
    }
}
