//! The answers of `policy`, `stop`, and of `node` and `status` about policies.

use api::NodePolicy;
use serde_json::{Value, json};
use tunables::view::PolicyView;

use super::{NARROW, WIDE, path, read, shows, status};
use crate::answer::{Answer as _, Exit};
use crate::commands::node::{NodeAnswer, NodeObject};
use crate::commands::policy::{OnePolicy, PolicyList, PolicySummary};
use crate::commands::stop::{StopState, Switched};
use crate::commands::vnics::Vnics;

fn summaries() -> Vec<PolicySummary> {
    read::<Vec<NodePolicy>>("policy/objects.json").iter().map(PolicySummary::of).collect()
}

fn named(name: &str) -> PolicySummary {
    summaries().into_iter().find(|policy| policy.name == name).unwrap()
}

fn stopped() -> StopState {
    let reason = "since 2026-11-29T00:10:01Z by alice: nodes lose packets";
    StopState { reason: Some(reason.to_owned()), error: None }
}

#[test]
fn policies_that_are_not_done_are_listed_first() {
    let list = || PolicyList::new(StopState::default(), summaries(), Vec::new());
    shows(&list(), NARROW, "policy/list.txt");
    assert_eq!(list().exit(), Exit::Problem);
    let one = |stop| PolicyList::new(stop, vec![named("base")], Vec::new());
    assert_eq!((one(StopState::default()).exit(), one(stopped()).exit()), (Exit::Fine, Exit::Problem));
    assert_eq!(PolicyList::new(StopState::default(), Vec::new(), vec!["later".to_owned()]).exit(), Exit::Problem);
}

#[test]
fn policy_shows_which_node_lacks_it_and_why() {
    let view = || read::<PolicyView>("policy/view.json");
    let one = OnePolicy::new(StopState::default(), named("web"), Ok(view()));
    shows(&one, NARROW, "policy/one.txt");
    let text = serde_json::to_string_pretty(&one).unwrap() + "\n";
    assert_eq!(documents::compare_file(&path("policy/output.json"), &text), Ok(()));
    assert_eq!(one.exit(), Exit::Problem);
    let why = "there is no Lease a/b".to_owned();
    let one = OnePolicy::new(stopped(), named("web"), Err(why));
    shows(&one, NARROW, "policy/no-controller.txt");
    let done = |view| OnePolicy::new(StopState::default(), named("base"), view).exit();
    assert_eq!((done(Ok(PolicyView::default())), done(Err(String::new()))), (Exit::Fine, Exit::Problem));
}

/// Of ten thousand nodes, the text has those that say something.
#[test]
fn policy_shows_failed_nodes_of_many() {
    let node = |number: usize| {
        json!({ "node": format!("n{number:05}"), "isSelected": true, "revision": "a", "due": "a",
            "progress": if number == 9_999 { "Failed" } else { "Done" } })
    };
    let view = json!({ "name": "web", "nodes": (0..10_000).map(node).collect::<Vec<Value>>() });
    let one = OnePolicy::new(StopState::default(), named("web"), Ok(serde_json::from_value(view).unwrap()));
    let lines = |wide| {
        let mut page = command::page::Page::default();
        one.show(&mut page, crate::answer::Style { wide, now_unix_millis: 0 });
        page.into_text().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let narrow = lines(NARROW);
    assert!(narrow.len() < 80 && narrow.contains(&"and 9950 more: -o wide".to_owned()), "{narrow:?}");
    assert!(narrow.iter().any(|line| line.starts_with("n09999")));
    assert!(lines(WIDE).len() > 10_000);
}

#[test]
fn node_shows_each_setting_with_its_policy() {
    let mut view: Value = json!({ "node": { "name": "10.0.0.2", "state": "Healthy", "summary": { "ready": true } } });
    view["details"] = read("policy/node.json");
    let answer = |view: &Value| {
        let view = serde_json::from_value(view.clone()).unwrap();
        NodeAnswer::of_view(view, NodeObject::default(), Vnics::default())
    };
    shows(&answer(&view), NARROW, "policy/node.txt");
    // The agent has a newer document than the answer is about.
    view["details"]["policy"]["document"]["revision"] = json!("d2");
    assert!(answer(&view).policies.iter().any(|setting| setting.state == "not reported yet"));
    for unreadable in [json!(null), json!(7), json!({ "document": 7 })] {
        view["details"]["policy"] = unreadable;
        assert_eq!(answer(&view).policies, []);
    }
}

#[test]
fn stop_is_shown_before_everything_else() {
    let mut stopped_status = status();
    stopped_status.stop = stopped();
    shows(&stopped_status, NARROW, "policy/status.txt");
    let shown = |now: StopState, before: Option<&str>| {
        let mut page = command::page::Page::default();
        let switched = Switched { now, before: before.map(str::to_owned) };
        switched.show(&mut page, crate::answer::Style { wide: NARROW, now_unix_millis: 0 });
        page.into_text()
    };
    assert!(shown(stopped(), None).starts_with("All rollouts have been stopped since 2026-11-29T00:10:01Z by alice"));
    assert_eq!(shown(StopState::default(), Some("since x")), "Rollouts continue. They had been stopped since x\n");
    assert_eq!(shown(StopState::default(), None), "Rollouts were not stopped.\n");
}
