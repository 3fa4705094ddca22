//! Several writers of one configuration at the same time, each like a program in the field.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use installer::{Args, Settings};
use serde_json::{Value, json};

use crate::node::{Node, PORTMAP};

const LASTS: Duration = Duration::from_secs(3);

/// How long a busy machine may take.
const PATIENCE: Duration = Duration::from_secs(90);

fn settings(chain: &str) -> Settings {
    let arguments = ["installer", "--pod-network", "vcn-native", "--cni-chain", chain];
    let Args { options, state, .. } = Args::try_parse_from(arguments).unwrap();
    Settings::new(options, state).unwrap()
}

/// A writer that adds its plugin to the chain if it is missing; whether it was.
fn appended(path: &Path, kind: &str, write: impl FnOnce(&str)) -> bool {
    let Ok(text) = fs::read(path) else { return false };
    let Ok(mut document) = serde_json::from_slice::<Value>(&text) else { return false };
    let Some(plugins) = document["plugins"].as_array_mut() else { return false };
    if plugins.iter().any(|plugin| plugin["type"] == kind) {
        return false;
    }
    plugins.push(json!({"type": kind, "uid": 1_000_000_000_000_000_000_u64}));
    write(&format!("{document:#}"));
    true
}

/// istio-cni: a temporary file, then a rename.
fn istio(path: &Path) -> bool {
    appended(path, "istio-cni", |text| {
        let temporary = path.with_extension("istio");
        fs::write(&temporary, text).unwrap();
        fs::rename(temporary, path).unwrap();
    })
}

/// linkerd-cni: in place, so that a reader may see half of it.
fn linkerd(path: &Path) -> bool {
    appended(path, "linkerd-cni", |text| {
        fs::write(path, &text[..text.len() / 2]).unwrap();
        thread::sleep(Duration::from_millis(2));
        fs::write(path, text).unwrap();
    })
}

/// Multus: copies it into a file of its own, which sorts first.
fn multus(path: &Path) -> bool {
    if let Ok(text) = fs::read_to_string(path) {
        let own =
            json!({"type": "multus-shim", "delegates": [serde_json::from_str::<Value>(&text).unwrap_or_default()]});
        fs::write(path.with_file_name("00-multus.conf"), own.to_string()).unwrap();
    }
    false
}

#[test]
fn writers_of_one_file_keep_their_plugins_and_agree() {
    let node = Node::new();
    for name in ["portmap", "bandwidth", "istio-cni", "linkerd-cni"] {
        node.executable(&format!("bin/{name}"), PORTMAP);
    }
    let path = node.conflist();
    let variants = ["portmap", "portmap,bandwidth"].map(settings);
    let (done, times) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for (writer, every) in [(istio as fn(&Path) -> bool, 3), (linkerd, 7), (multus, 5)] {
            let (path, done, times) = (&path, &done, &times);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    times.fetch_add(usize::from(writer(path)), Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(every));
                }
            });
        }
        let begun = Instant::now();
        let mut ours = 0;
        for variant in variants.iter().cycle() {
            // Our settings change all the time, so we write all the time.
            ours += usize::from(!node.reconcile(variant).steps.is_empty());
            let both_wrote = ours > 5 && times.load(Ordering::Relaxed) >= 2;
            if begun.elapsed() >= LASTS && both_wrote || begun.elapsed() >= PATIENCE {
                break;
            }
        }
        assert!(ours > 5, "we wrote {ours} times");
        // No program wants anything new any more.
        let agreed = Instant::now() + PATIENCE;
        while !node.reconcile(&variants[1]).steps.is_empty() {
            assert!(Instant::now() < agreed, "we write again and again");
        }
        done.store(true, Ordering::Relaxed);
    });
    let foreign = times.load(Ordering::Relaxed);
    istio(&path);
    linkerd(&path);
    let report = node.reconcile(&variants[1]);
    assert!(report.steps.is_empty() && report.failures.is_empty(), "{report}");
    let mut sorted = node.kinds();
    sorted.sort();
    assert_eq!(sorted, ["bandwidth", "istio-cni", "linkerd-cni", "portmap", "vcn-native"]);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches("1000000000000000000").count(), 2, "{text}");
    assert!(foreign >= 2, "both added foreign at least once");
}
