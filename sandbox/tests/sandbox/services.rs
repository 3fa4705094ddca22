//! The metadata, as the agent's client reads it on a node.

use std::collections::BTreeSet;

use crate::fixture::two_nodes_of;
use imds::{Imds, Metadata};
use sandbox::NodeSpec;
use vcn::{Family, MachineKind};

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

fn client() -> Imds {
    Imds::new(imds::DEFAULT_BASE_URL, imds::POLICY).expect("a client")
}

fn ask(client: &Imds) -> (vcn::Instance, Vec<vcn::Vnic>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        (client.instance().await.expect("the instance"), client.vnics().await.expect("VNICs").vnics)
    })
}
