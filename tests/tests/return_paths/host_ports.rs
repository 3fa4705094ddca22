//! Host ports, by the reference portmap chained behind ours.

use std::path::Path;
use std::sync::Arc;

use sandbox::Runtime;
use serde_json::json;
use vcn::Family;

use crate::kube_proxy::{LOCAL, Mode, withdraw_nftables};
use crate::world::{Connection, PORT, World};

#[test]
fn a_host_port_answers_where_it_was_asked() {
    let mut world = World::booted();
    let node = Arc::clone(&world.node);
    // From the distribution's package; the agent chains it where it is.
    let copy = || sandbox::copy_program(Path::new("/usr/lib/cni/portmap"), Path::new("/opt/cni/bin/portmap"));
    node.run(copy).unwrap().unwrap();
    world.start_agent(&node);
    let mappings = |port: u16| json!([{ "hostPort": port, "containerPort": PORT, "protocol": "tcp" }]);
    let runtime = |port| Runtime::of(&node).unwrap().with_capability("portMappings", mappings(port));
    let (one, on_one) = world.server_by(&node, "one", &runtime(9001));
    let (two, on_two) = world.server_by(&node, "two", &runtime(9002));
    assert_ne!(world.vnic_of(&one), world.vnic_of(&two), "pods are spread over VNICs");
    // Its rules and kube-proxy's are in the same chains on most nodes.
    for kube_proxy in [None, Some(Mode::Nftables), Some(Mode::Iptables)] {
        if matches!(kube_proxy, Some(Mode::Iptables)) {
            withdraw_nftables(&world);
        }
        if let Some(mode) = kube_proxy {
            mode.publish(&world, &one);
        }
        for (server, port) in [(&one, 9001), (&two, 9002)] {
            for family in Family::ALL {
                for address in world.own_addresses(family) {
                    let what = format!("{kube_proxy:?}, {} asked by {address} port {port}", server.label);
                    let mut connection = world.works(&what, world.ask(address, port));
                    assert_eq!(Some(connection.seen), world.client.address(family), "{what}");
                    world.works(&what, connection.echo());
                    // Another pod asks, then the pod itself.
                    for asking in [&one, &two] {
                        let outcome = asking.pod.run(|| Connection::open((address, port).into())).unwrap();
                        let what = format!("{what}, by {}", asking.label);
                        let mut connection = world.works(&what, outcome);
                        world.works(&what, connection.echo());
                    }
                }
            }
        }
    }
    // Its rules and kube-proxy's are both there.
    let mut connection = world.works("a node port", world.ask(world.address(Family::Ipv4), LOCAL));
    world.works("a node port", connection.echo());
    world.assert_nothing_spoofed();
    for (server, attachment, port) in [(one, on_one, 9001), (two, on_two, 9002)] {
        runtime(port).del(&server.pod, &attachment).unwrap();
        assert!(world.ask(world.address(Family::Ipv4), port).is_err(), "{} is gone", server.label);
    }
}
