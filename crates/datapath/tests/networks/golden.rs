//! The planner by example. Each folder of `golden/` is a sentence with what is desired, what is observed and the plan. The
//! plan is the text that logs, errors and dry runs show. A new case needs no code; `UPDATE_GOLDEN=1 cargo test -p datapath
//! --test networks golden` writes the plan of a case that has none, for you to read.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use datapath::{Object, Place, host, plan, pod};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Desired {
    Pod(pod::PodNetwork),
    Host(Box<host::HostNetwork>),
    Nothing,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Observed {
    Nothing,
    /// What this network would have, less or plus what follows.
    Whole {
        of: Desired,
        /// Texts of objects that are missing.
        #[serde(default)]
        without: Vec<String>,
        /// Objects that are there too, or instead of those in the same slot.
        #[serde(default)]
        with: Vec<(Place, Object)>,
    },
}

fn objects(desired: &Desired) -> Vec<(Place, Object)> {
    match desired {
        Desired::Pod(network) => pod::desired(network),
        Desired::Host(network) => host::placed(host::desired(network)),
        Desired::Nothing => Vec::new(),
    }
}

fn seen(observed: &Observed, case: &str) -> Vec<(Place, Object)> {
    let Observed::Whole { of, without, with } = observed else { return Vec::new() };
    let mut all = objects(of);
    for text in without {
        let before = all.len();
        all.retain(|(_, object)| object.to_string() != *text);
        assert_ne!(all.len(), before, "{case}: no object reads {text:?}");
    }
    for (place, extra) in with {
        match all.iter_mut().find(|(p, object)| p == place && object.same_slot(extra)) {
            Some((_, object)) => *object = extra.clone(),
            None => all.push((*place, extra.clone())),
        }
    }
    all
}

#[test]
fn every_case_has_its_plan() {
    let mut cases: Vec<_> = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    assert!(cases.len() >= 10, "the cases were not found");
    for case in cases {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let read = |file: &str| fs::read_to_string(case.join(file)).unwrap_or_else(|e| panic!("{name}/{file}: {e}"));
        let desired: Desired = serde_json::from_str(&read("desired.json")).unwrap_or_else(|e| panic!("{name}: {e}"));
        let observed: Observed = serde_json::from_str(&read("observed.json")).unwrap_or_else(|e| panic!("{name}: {e}"));
        let steps = plan(&objects(&desired), &seen(&observed, &name));
        let text = steps.iter().fold(String::new(), |mut text, step| {
            writeln!(text, "{step}").unwrap();
            text
        });
        let path = case.join("plan.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() && !path.exists() {
            fs::write(&path, &text).unwrap();
        }
        assert_eq!(read("plan.txt"), text, "{name}");
        // Undoing a plan twice is the plan: nothing is lost on the way.
        assert!(steps.iter().all(|step| step.undo().undo() == *step), "{name}");
    }
}
