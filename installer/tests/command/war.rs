//! Several writers of one configuration at the same time, each in the manner of one that is in the field.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use installer::{Args, Settings};
use serde_json::{Value, json};

use crate::node::{Node, PORTMAP, mode};

const LASTS: Duration = Duration::from_secs(3);

/// How long it may take a busy machine to come to what a war is.
const PATIENCE: Duration = Duration::from_secs(90);

fn settings(chain: &str) -> Settings {
    let arguments = ["installer", "--pod-network", "vcn-native", "--chain", chain];
    let Args { options, keeping, .. } = Args::try_parse_from(arguments).unwrap();
    Settings::new(options).unwrap().keeping(&keeping.state_dir, &keeping.data_dir).unwrap()
}

/// One look of a writer that wants its plugin in the chain. It puts it in if it is not, and says whether it had to.
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

/// linkerd-cni: in place, so that others may see half of it.
fn linkerd(path: &Path) -> bool {
    appended(path, "linkerd-cni", |text| {
        fs::write(path, &text[..text.len() / 2]).unwrap();
        thread::sleep(Duration::from_millis(2));
        fs::write(path, text).unwrap();
    })
}

/// Multus: takes a copy into a file of its own, which sorts first.
fn multus(path: &Path) -> bool {
    if let Ok(text) = fs::read_to_string(path) {
        let own =
            json!({"type": "multus-shim", "delegates": [serde_json::from_str::<Value>(&text).unwrap_or_default()]});
        fs::write(path.with_file_name("00-multus.conf"), own.to_string()).unwrap();
    }
    false
}

/// Cilium, exclusive: whatever is not its own is renamed.
fn cilium(path: &Path) -> bool {
    fs::rename(path, path.with_extension("conflist.cilium_bak")).is_ok()
}

fn kinds(path: &PathBuf) -> Vec<String> {
    let document: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let mut kinds: Vec<_> =
        document["plugins"].as_array().unwrap().iter().map(|it| it["type"].as_str().unwrap().to_owned()).collect();
    kinds.sort();
    kinds
}

#[test]
fn with_others_at_the_same_file_all_keep_what_is_theirs_and_it_comes_to_rest() {
    let node = Node::new();
    for name in ["portmap", "bandwidth", "istio-cni", "linkerd-cni"] {
        node.executable(&format!("bin/{name}"), PORTMAP);
    }
    let path = node.conflist();
    let wishes = ["portmap", "portmap,bandwidth"].map(settings);
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
        for wish in wishes.iter().cycle() {
            // What we want changes all the time, so we write all the time.
            ours += usize::from(node.reconcile(wish).changed());
            let war = ours > 5 && times.load(Ordering::Relaxed) >= 2;
            if begun.elapsed() >= LASTS && war || begun.elapsed() >= PATIENCE {
                break;
            }
        }
        assert!(ours > 5, "there was a war: {ours}");
        // Nobody wants anything new any more: they agree.
        let agreed = Instant::now() + PATIENCE;
        while node.reconcile(&wishes[1]).changed() {
            assert!(Instant::now() < agreed, "we write and write");
        }
        done.store(true, Ordering::Relaxed);
    });
    let theirs = times.load(Ordering::Relaxed);
    istio(&path);
    linkerd(&path);
    let report = node.reconcile(&wishes[1]);
    assert!(!report.changed() && report.failures.is_empty(), "{report}");
    assert_eq!(kinds(&path), ["bandwidth", "istio-cni", "linkerd-cni", "portmap", "vcn-native"]);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches("1000000000000000000").count(), 2, "{text}");
    assert!(theirs >= 2, "both had to put theirs in at least once");
}

#[test]
fn against_somebody_who_takes_it_away_every_time_we_give_up_for_a_while_and_say_why() {
    let node = Node::new();
    let (path, wish) = (node.conflist(), settings(""));
    let done = AtomicBool::new(false);
    let mut written = 0;
    let last = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                cilium(&path);
                thread::sleep(Duration::from_millis(1));
            }
        });
        let begun = Instant::now();
        let mut last;
        loop {
            last = node.reconcile(&wish);
            written += last.steps.iter().filter(|step| step.to_string().contains("05-vcn-native.conflist")).count();
            let given_up = last.to_string().contains("[contention]");
            if begun.elapsed() >= LASTS && given_up || begun.elapsed() >= PATIENCE {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
        last
    });
    assert_eq!(written, 6, "once, and five repairs");
    let text = last.to_string();
    assert!(text.contains("it was removed") && text.contains("[contention]"), "{text}");
    assert!(path.with_extension("conflist.cilium_bak").exists(), "what is theirs is not touched");
}

/// Two releases on one node, say, whose agents do not know of each other.
#[test]
fn a_binary_that_somebody_replaces_again_and_again_is_put_back_five_times_and_then_told() {
    let node = Node::new();
    let arguments = ["--pod-network", "vcn-native", "--usable"];
    assert_eq!(node.run(&arguments).0, 0);
    let theirs = || node.executable("bin/vcn-native", "theirs");
    for _ in 0..5 {
        theirs();
        let (code, text) = node.run(&arguments);
        assert!(code == 0 && text.contains("did: replace"), "{text}");
    }
    theirs();
    let (code, text) = node.run(&arguments);
    assert!(code == 1 && text.contains("[contention]") && text.contains("replaced by another file"), "{text}");
    assert_eq!(fs::read_to_string(node.path("bin/vcn-native")).unwrap(), "theirs");
    fs::remove_file(node.path("bin/vcn-native")).unwrap();
    let (code, text) = node.run(&arguments);
    assert!(code == 0 && text.contains("did: install"), "{text}");
}

#[test]
fn a_binary_whose_mode_somebody_changes_again_and_again_is_made_executable_five_times_and_then_told() {
    let node = Node::new();
    let arguments = ["--pod-network", "vcn-native", "--usable"];
    assert_eq!(node.run(&arguments).0, 0);
    let binary = node.path("bin/vcn-native");
    for _ in 0..5 {
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o644)).unwrap();
        let (code, text) = node.run(&arguments);
        assert!(code == 0 && text.contains("did: chmod 0755"), "{text}");
    }
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, text) = node.run(&arguments);
    assert!(code == 1 && text.contains("[contention]") && text.contains("its mode was changed to 0644"), "{text}");
    assert_eq!(mode(&binary), 0o644);
}
