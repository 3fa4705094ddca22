//! Shipped rules, overrides, invalid rules, and which rules are for which machine.

use std::ops::Add as _;

use super::*;

fn one(overrides: &str, name: &str) -> (Option<Rule>, Vec<String>) {
    let Rules { rules, problems } = Rules::read(&[RulesText { source: "HEALTH_RULES", text: overrides }]);
    (rules.into_iter().find(|rule| rule.name == name), problems)
}

#[test]
fn shipped_rules_are_valid_and_name_each_measured_signal() {
    let Rules { rules, problems } = Rules::shipped();
    assert_eq!(problems, Vec::<String>::new());
    let unjudged = collectors::signals()
        .filter(|signal| signal.unit != Unit::Text && !rules.iter().any(|rule| rule.signal == signal.name))
        .map(|signal| signal.name);
    assert_eq!(unjudged.collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn overrides_change_fields_switch_off_and_add() {
    let (rule, problems) =
        one(r#"{"rules": [{"name": "conntrack-nearly-full", "bound": 55}]}"#, "conntrack-nearly-full");
    let rule = rule.unwrap();
    assert_eq!((rule.bound, rule.signal.as_str(), problems), (55.0, "conntrack_use", Vec::new()));
    let off = r#"{"rules": [{"name": "conntrack-nearly-full", "off": true}]}"#;
    assert_eq!(one(off, "conntrack-nearly-full"), (None, Vec::new()));
    let new = r#"{"rules": [{"name": "x", "signal": "pids", "is": "above", "bound": 5, "message": "Many."}]}"#;
    assert!(one(new, "x").0.is_some());
}

#[test]
fn invalid_overrides_are_reported_and_shipped_rules_stay() {
    for (text, problem) in [
        (r#"{"rules": [{"name": "pids-nearly-used-up", "bound": "many"}]}"#, "neither a number nor a version"),
        (r#"{"rules": [{"name": "pids-nearly-used-up", "samples": {"bad": 3, "of": 2}}]}"#, "samples 3 of 2"),
        (r#"{"rules": [{"name": "pids-nearly-used-up", "bond": 3}]}"#, "unknown field `bond`"),
        (r#"{"rules": [{"name": "pids-nearly-used-up", "signal": "pidz"}]}"#, "there is no signal pidz"),
        (r#"{"rules": [{"name": "pids-nearly-used-up", "action": "repair"}]}"#, "there is no repair for pids"),
        (r#"{"rules": [{"name": "pids-nearly-used-up", "memoryGiB": {"from": 8, "below": 8}}]}"#, "more than `from`"),
        (r#"{"rules": [{"bound": 3}]}"#, "a rule has no name"),
        ("{", "the file is not valid"),
    ] {
        let (rule, problems) = one(text, "pids-nearly-used-up");
        assert!(rule.is_some_and(|rule| rule.bound == 70.0), "{text}");
        assert!(problems.len() == 1 && problems[0].contains(problem), "{text}: {problems:?}");
    }
}

#[test]
fn rules_apply_by_shape_with_exclusions() {
    let text = r#"{"rules": [{"name": "x", "signal": "pids", "is": "above", "bound": 5, "message": "M.",
        "shapes": ["BM.*", "VM.GPU*"], "exceptShapes": ["BM.GPU.H100*"]}]}"#;
    let rule = one(text, "x").0.unwrap();
    let applies = |shape| rule.applies(Hardware { shape, memory: None });
    assert!(applies(Some("BM.Standard.E5.192")) && applies(Some("VM.GPU.A10.1")));
    assert!(matches("*.GPU*.8", "BM.GPU.H100.8") && !matches("BM*M", "BM") && !matches(&"*".repeat(60).add("x"), "BM"));
    assert!(!applies(Some("BM.GPU.H100.8")) && !applies(Some("VM.Standard.E5.Flex")) && !applies(None));
}
#[test]
fn bound_of_eviction_depends_on_the_size_of_memory() {
    let rules = Rules::shipped().rules;
    let bounds = |memory| {
        let of_it = rules.iter().filter(|rule| rule.signal == "eviction_memory");
        of_it.filter(|rule| rule.applies(Hardware { shape: None, memory })).map(|rule| rule.bound).collect::<Vec<_>>()
    };
    assert_eq!(bounds(Some(3.6)), [50.0]);
    assert_eq!((bounds(Some(7.0)), bounds(Some(2000.0))), (vec![100.0], vec![100.0]));
    assert_eq!(bounds(None), Vec::<f64>::new());
}
