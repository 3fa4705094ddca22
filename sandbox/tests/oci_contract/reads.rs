//! What is only read: subnets, instances, shapes.

use serde_json::json;

use crate::scene::by_each;

#[test]
fn a_subnet_has_its_blocks_and_routers() {
    by_each(|scene, client| {
        let subnet = client.call("getSubnet", json!({ "id": scene.subnet() })).unwrap().value;
        assert_eq!((&subnet["cidrBlock"], &subnet["virtualRouterIp"]), (&"10.0.32.0/24".into(), &"10.0.32.1".into()));
        assert_eq!(subnet["ipv6CidrBlocks"], json!(["2603:c020:0:2::/64"]));
        let own = scene.vcn.subnet("pods").unwrap();
        assert_eq!(subnet["ipv6VirtualRouterIp"], own.router_v6().unwrap().to_string());
    });
}

#[test]
fn an_instance_lists_the_plugins_of_its_cloud_agent() {
    by_each(|scene, client| {
        let compartment = scene.api.compartment();
        let question = json!({ "compartmentId": compartment, "instanceId": scene.instance() });
        assert_eq!(client.call("listAgentPlugins", question.clone()).unwrap().value, json!([]));
        scene.api.set_agent_plugin("node-a", "Bastion", "DISABLED", "STOPPED");
        scene.api.set_agent_plugin("node-a", "Compute HPC RDMA Authentication", "ENABLED", "NOT_SUPPORTED");
        let plugins = client.call("listAgentPlugins", question).unwrap().value;
        let shown = |number: usize| (plugins[number]["name"].clone(), plugins[number]["status"].clone());
        assert_eq!(shown(0), ("Bastion".into(), "STOPPED".into()));
        assert_eq!(shown(1), ("Compute HPC RDMA Authentication".into(), "NOT_SUPPORTED".into()));
        let instance = client.call("getInstance", json!({ "id": scene.instance() })).unwrap().value;
        let wanted = &instance["agentConfig"]["pluginsConfig"][1];
        assert_eq!(wanted, &json!({ "name": "Compute HPC RDMA Authentication", "desiredState": "ENABLED" }));
    });
}

#[test]
fn an_instance_has_a_shape_and_the_shape_a_limit() {
    by_each(|scene, client| {
        let instance = client.call("getInstance", json!({ "id": scene.instance() })).unwrap().value;
        assert_eq!(
            (&instance["lifecycleState"], &instance["shape"]),
            (&"RUNNING".into(), &"VM.Standard.E5.Flex".into())
        );
        let shapes = client.call("listShapes", json!({ "compartmentId": scene.api.compartment() })).unwrap().value;
        assert_eq!((&shapes[0]["shape"], &shapes[0]["maxVnicAttachments"]), (&instance["shape"], &4.into()));
        assert_eq!(shapes[0]["maxVnicAttachmentOptions"]["max"], 4.0);
    });
}
