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
        let expected = &instance["agentConfig"]["pluginsConfig"][1];
        assert_eq!(expected, &json!({ "name": "Compute HPC RDMA Authentication", "desiredState": "ENABLED" }));
    });
}

#[test]
fn instances_have_maintenance_and_bare_metal_has_hosts_in_the_tenancy() {
    by_each(|scene, client| {
        let compartment = json!({ "compartmentId": scene.api.compartment() });
        assert_eq!(client.call("listMaintenanceEvents", compartment.clone()).unwrap().value, json!([]));
        scene.api.set_maintenance("node-a", "REBOOT_MIGRATION", "SCHEDULED");
        let events = client.call("listMaintenanceEvents", compartment.clone()).unwrap().value;
        let shown = |field: &str| events[0][field].clone();
        assert_eq!((shown("instanceId"), shown("lifecycleState")), (scene.instance().into(), "SCHEDULED".into()));
        assert_eq!((shown("instanceAction"), shown("canReschedule")), ("REBOOT_MIGRATION".into(), true.into()));
        // Only bare metal has a host that is listed, in the root compartment.
        scene.api.set_host_health("metal", false);
        let tenancy = json!({ "compartmentId": scene.api.tenancy() });
        let hosts = client.call("listComputeHosts", tenancy).unwrap().value;
        assert_eq!((hosts.as_array().unwrap().len(), hosts[0]["instanceId"].is_string()), (1, true));
        assert_eq!((&hosts[0]["health"], &hosts[0]["hasImpactedComponents"]), (&"UNHEALTHY".into(), &true.into()));
        assert_eq!(client.call("listComputeHosts", compartment).unwrap_err().status, 404);
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
        let all = shapes.as_array().unwrap();
        let shape = all.iter().find(|shape| shape["shape"] == instance["shape"]).unwrap();
        assert_eq!(shape["maxVnicAttachments"], 4);
        assert_eq!(shape["maxVnicAttachmentOptions"]["max"], 4.0);
    });
}
