//! The cloud in memory keeps the rules that the contract test finds in the emulated API.

use vcn::Ocid;

use crate::instance::{Instance, InstanceState};
use crate::{
    AttachVnic, AttachmentState, Cloud, CloudView, CreateAddress, CreateVnic, FakeCloud, Kind, RetryToken, Subnet,
};

fn ocid(text: &str) -> Ocid {
    text.parse().unwrap()
}

const COMPARTMENT: &str = "ocid1.compartment.oc1..c";

fn cloud() -> FakeCloud {
    let cloud = FakeCloud::new();
    let subnet = r#"{"id":"ocid1.subnet.oc1.iad.s","compartmentId":"ocid1.compartment.oc1..c","cidrBlock":"10.0.0.0/24",
        "ipv6CidrBlock":"2603:c020::/64"}"#;
    let subnet: Subnet = serde_json::from_str(subnet).unwrap();
    cloud.add_subnet(subnet.clone());
    let instance = Instance {
        id: ocid("ocid1.instance.oc1.iad.i"),
        compartment_id: ocid(COMPARTMENT),
        lifecycle_state: InstanceState::Running,
        shape: "VM.Standard.E5.Flex".to_owned(),
        shape_config: None,
        availability_domain: None,
        display_name: None,
        freeform_tags: Default::default(),
    };
    cloud.add_instance(instance, &subnet.id, 2);
    cloud
}

fn wish() -> AttachVnic {
    let details = CreateVnic {
        subnet_id: Some(ocid("ocid1.subnet.oc1.iad.s")),
        assign_ipv6_ip: Some(true),
        ..Default::default()
    };
    AttachVnic {
        instance_id: ocid("ocid1.instance.oc1.iad.i"),
        create_vnic_details: details,
        display_name: None,
        nic_index: None,
    }
}

fn token(text: &str) -> RetryToken {
    RetryToken::derive(&[text])
}

#[tokio::test]
async fn a_vnic_is_attached_once_per_token_and_one_at_a_time() {
    let cloud = cloud();
    let first = cloud.attach_vnic(&wish(), &token("a")).await.unwrap().value;
    assert_eq!((first.lifecycle_state, &first.vnic_id), (AttachmentState::Attaching, &None));
    assert_eq!(cloud.attach_vnic(&wish(), &token("a")).await.unwrap().value.id, first.id);
    assert!(cloud.attach_vnic(&wish(), &token("b")).await.unwrap_err().is_busy());
    cloud.settle();
    assert!(cloud.attach_vnic(&wish(), &token("b")).await.unwrap_err().is_limit());
    let attached = cloud.vnic_attachment(&first.id).await.unwrap();
    let vnic = cloud.vnic(attached.value.vnic_id.as_ref().unwrap()).await.unwrap().value;
    assert_eq!((vnic.private_ip, vnic.ipv6_addresses.len()), ("10.0.0.3".parse().ok(), 1));

    cloud.detach_vnic(&first.id, attached.etag.as_ref()).await.unwrap();
    cloud.settle();
    assert!(cloud.vnic(&vnic.id).await.unwrap_err().is_not_found_or_forbidden());
    assert!(cloud.attach_vnic(&wish(), &token("a")).await.unwrap_err().is_conflict());
    let all = cloud.vnic_attachments(&ocid(COMPARTMENT), Some(&wish().instance_id)).await.unwrap();
    let states: Vec<_> = all.iter().map(|attachment| attachment.lifecycle_state).collect();
    assert_eq!(states, [AttachmentState::Attached, AttachmentState::Detached]);
}

#[tokio::test]
async fn a_lost_answer_leaves_what_was_done() {
    let cloud = cloud();
    cloud.fail_next("AttachVnic", (503, "ServiceUnavailable"), true);
    cloud.fail_next("AttachVnic", (429, "TooManyRequests"), false);
    let lost = cloud.attach_vnic(&wish(), &token("a")).await.unwrap_err();
    assert!(lost.outcome_unknown() && lost.is_retryable());
    let throttled = cloud.attach_vnic(&wish(), &token("a")).await.unwrap_err();
    assert_eq!((throttled.kind(), throttled.outcome_unknown()), (Kind::Throttled, false));
    cloud.attach_vnic(&wish(), &token("a")).await.unwrap();
    assert_eq!(cloud.attachments().len(), 2, "the primary one and one more");
    assert_eq!(cloud.calls().len(), 3);
}

#[tokio::test]
async fn addresses_are_the_lowest_free_ones() {
    let cloud = cloud();
    let all = cloud.vnic_attachments(&ocid(COMPARTMENT), None).await.unwrap();
    let vnic = all[0].vnic_id.clone().unwrap();
    let wish = CreateAddress { vnic_id: Some(vnic.clone()), ..Default::default() };
    let one = cloud.create_address(vcn::Family::Ipv4, &wish, &token("x")).await.unwrap().value;
    assert_eq!(one.network().to_string(), "10.0.0.3/32");
    let block = CreateAddress { cidr_prefix_length: Some(28), ..wish.clone() };
    let block = cloud.create_address(vcn::Family::Ipv4, &block, &token("y")).await.unwrap().value;
    assert_eq!(block.network().to_string(), "10.0.0.16/28");
    cloud.delete_address(vcn::Family::Ipv4, &one.id).await.unwrap();
    assert_eq!(cloud.addresses(&vnic, vcn::Family::Ipv4).await.unwrap().len(), 2, "its own and the block");
    let again = cloud.create_address(vcn::Family::Ipv4, &wish, &token("x")).await.unwrap_err();
    assert!(again.is_conflict(), "the token's address is gone");
}
