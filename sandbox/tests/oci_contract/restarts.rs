//! The restart of an instance: a retry token makes it happen once.

use serde_json::{Value, json};

use crate::client::Client;
use crate::scene::{Scene, by_each, wait_for};

fn restart(scene: &Scene, token: &str) -> Value {
    json!({ "id": scene.instance(), "action": "SOFTRESET", "retryToken": token })
}

fn state(scene: &Scene, client: &mut dyn Client) -> String {
    let instance = client.call("getInstance", json!({ "id": scene.instance() })).unwrap().value;
    instance["lifecycleState"].as_str().unwrap().to_owned()
}

#[test]
fn restarted_instance_stops_and_runs_again() {
    by_each(|scene, client| {
        let instance = client.call("instanceAction", restart(scene, "first")).unwrap().value;
        assert_eq!((&instance["id"], &instance["lifecycleState"]), (&scene.instance().into(), &"STOPPING".into()));
        wait_for("it runs again", || state(scene, client) == "RUNNING");
        assert_eq!(scene.api.restarts(), ["node-a"]);
    });
}

#[test]
fn repeated_restart_with_the_same_token_happens_once() {
    by_each(|scene, client| {
        let first = client.call("instanceAction", restart(scene, "once")).unwrap().value;
        // Also while the instance is STOPPING, where another restart is refused.
        assert_eq!(client.call("instanceAction", restart(scene, "once")).unwrap().value, first);
        client.call("instanceAction", restart(scene, "another")).unwrap_err().expect(409, "IncorrectState");
        wait_for("it runs again", || state(scene, client) == "RUNNING");
        assert_eq!(client.call("instanceAction", restart(scene, "once")).unwrap().value, first);
        assert_eq!((state(scene, client).as_str(), scene.api.restarts().len()), ("RUNNING", 1));
        client.call("instanceAction", restart(scene, "another")).unwrap();
        assert_eq!(scene.api.restarts().len(), 2, "a refused one may be requested again");
    });
}

#[test]
fn stopped_unknown_and_forbidden_instances_are_not_restarted() {
    by_each(|scene, client| {
        scene.api.set_instance_state("node-a", "STOPPED").unwrap();
        client.call("instanceAction", restart(scene, "stopped")).unwrap_err().expect(409, "IncorrectState");
        scene.api.set_instance_state("node-a", "RUNNING").unwrap();
        let unknown = json!({ "id": "ocid1.instance.oc1.iad.unknown", "action": "SOFTRESET", "retryToken": "u" });
        client.call("instanceAction", unknown).unwrap_err().expect(404, "NotAuthorizedOrNotFound");
        scene.api.forbid(&[sandbox::Operation::InstanceAction]);
        client.call("instanceAction", restart(scene, "forbidden")).unwrap_err().expect(404, "NotAuthorizedOrNotFound");
        assert_eq!(scene.api.restarts(), [""; 0]);
    });
}
