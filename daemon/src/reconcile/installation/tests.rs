//! A node of ours, one of whose plugins becomes another.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::sync::mpsc;

use clap::Parser;
use tempfile::TempDir;

use super::*;
use crate::args::Args;

/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

struct Node {
    directory: TempDir,
    settings: Settings,
    installation: Installation,
    tellings: mpsc::Receiver<()>,
}

impl Node {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = vec!["oke-node-agent".to_owned()];
        command.extend(["--pod-network", "vcn-native", "--chain", "portmap"].map(str::to_owned));
        let named = |option: &str| option.trim_start_matches("--").to_owned();
        for option in ["--state-dir", "--data-dir", "--cni-bin-dir", "--cni-conf-dir", "--source-dir"] {
            fs::create_dir(directory.path().join(named(option))).unwrap();
            command.extend([option.to_owned(), directory.path().join(named(option)).display().to_string()]);
        }
        for option in ["--cni-cache-dir", "--oke-state-dir"] {
            command.extend([option.to_owned(), directory.path().join(named(option)).display().to_string()]);
        }
        let settings = Settings::new(Args::try_parse_from(command).unwrap().options).unwrap();
        let (told, tellings) = mpsc::channel();
        // The test may be over by then.
        let installation = Installation::new(move || _ = told.send(()));
        Self { directory, settings, installation, tellings }
    }

    fn plugin(&self, path: &str, before: &str, versions: &str) {
        let script = format!("#!/bin/sh\n{before}\necho '{{\"supportedVersions\":[{versions}]}}'\n");
        sandbox::write_program(&self.directory.path().join(path), script.as_bytes()).unwrap();
    }

    /// Plugins that read a line from there wait until there is one.
    fn pipe(&self) -> File {
        let path = self.directory.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        OpenOptions::new().read(true).write(true).open(path).unwrap()
    }

    /// One look; how much it changed.
    fn look(&mut self, cause: Cause) -> usize {
        let mut findings = Findings::default();
        self.installation.stage(&self.settings, &World::default(), (true, true, cause), &mut findings);
        findings.changes.len()
    }

    fn promises(&self, version: &str) -> bool {
        let conflist = self.settings.installer.cni_conf_dir.join(vcn::CONFLIST_FILE);
        fs::read_to_string(conflist).is_ok_and(|text| text.contains("portmap") && text.contains(version))
    }

    fn holds(&self) -> bool {
        self.installation.last.as_ref().is_some_and(|last| last.still_holds(&self.settings))
    }

    /// Looks when a plugin has answered, or as a timer would, until that is so.
    fn look_until(&mut self, mut is_so: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < end, "{:?}", self.installation);
            let _ = self.tellings.recv_timeout(Duration::from_millis(50));
            self.look(Cause::Retry);
        }
    }
}

#[test]
fn what_a_plugin_answers_after_the_look_is_gone_by_although_no_file_has_changed_since() {
    let mut node = Node::new();
    let mut pipe = node.pipe();
    node.plugin("source-dir/vcn-native", "", r#""1.0.0","1.1.0""#);
    node.plugin("cni-bin-dir/portmap", "", r#""1.0.0","1.1.0""#);
    node.look_until(|node| node.promises("1.1.0") && node.holds());

    node.plugin("cni-bin-dir/portmap", "read line <${0%/*}/../pipe", r#""1.0.0""#);
    assert_eq!(node.look(Cause::Timer), 0);
    assert!(node.promises("1.1.0") && node.holds(), "what the binary before answered stands meanwhile");
    pipe.write_all(b"\n").unwrap();
    node.tellings.recv_timeout(PATIENCE).unwrap();
    assert_eq!(node.look(Cause::Kernel), 0);
    assert_ne!(node.look(Cause::Preview), 0, "it tells what is to be done, and the next look does it");
    node.look_until(|node| !node.promises("1.1.0") && node.holds());
}

/// What is said of notes, in short.
fn told(runtime: ContainerRuntime, notes: Vec<Note>) -> Vec<(Reason, bool, String)> {
    let decision = installer::Decision {
        install: true,
        another: false,
        oke: false,
        decided_by: Signal::NodeLabel,
        against: vec![],
        reason: "for the test".into(),
    };
    let (steps, failures, conflist) = (vec![], vec![], Conflist::InPlace);
    let report = Report { decision, steps, applied: true, conflist, notes, failures };
    let told = conditions(&report, runtime, Path::new("/nowhere"));
    told.into_iter().map(|it| (it.reason, it.blocks(), it.subject.unwrap_or_default())).collect()
}

#[test]
fn what_cri_o_passes_over_stops_no_pods_there_and_what_it_does_not_stops_them_everywhere() {
    let file = || "00-x.conflist".to_owned();
    let second = |gives| Note::SortsBefore { file: file(), gives, taken: Taken::Never, missing: vec![] };
    let noted = |gives, taken, missing: &[&str]| {
        let missing = missing.iter().map(|kind| (*kind).to_owned()).collect();
        Note::SortsBefore { file: file(), gives, taken, missing }
    };
    let before = |gives, missing: &[&str]| noted(gives, Taken::First, missing);
    let next = |gives, missing: &[&str]| noted(gives, Taken::Next, missing);
    let (blocked, preceded) = (Reason::RuntimeConfigurationBlocked, Reason::RuntimeConfigurationPreceded);
    for runtime in [ContainerRuntime::CriO, ContainerRuntime::Unknown] {
        let refuses = runtime == ContainerRuntime::Unknown;
        for (note, expected) in [
            (Note::MalformedBefore { file: file(), reason: "{".into() }, vec![(blocked, refuses, file())]),
            (Note::UnreadBefore { file: file(), reason: "a link".into() }, vec![(blocked, refuses, file())]),
            (before(Gives::Network, &["cilium-cni"]), vec![(preceded, refuses, file())]),
            (before(Gives::Others, &["multus"]), vec![(preceded, refuses, file())]),
            (before(Gives::Nothing, &["loopback"]), vec![(preceded, refuses, file())]),
            (before(Gives::Network, &[]), vec![(preceded, false, file())]),
            (before(Gives::Others, &[]), vec![]),
            (before(Gives::Unknown, &[]), vec![]),
            (before(Gives::Nothing, &[]), vec![(preceded, true, file())]),
            // What sorts before it lacks a binary.
            (next(Gives::Nothing, &["loopback"]), vec![(preceded, refuses, file())]),
            (next(Gives::Nothing, &[]), vec![(preceded, true, file())]),
            (next(Gives::Network, &[]), vec![(preceded, false, file())]),
            (second(Gives::Network), vec![(preceded, false, file())]),
            (second(Gives::Others), vec![]),
            (second(Gives::Nothing), vec![(preceded, false, file())]),
            (
                Note::MissingInChain { plugin: "istio-cni".into() },
                vec![(Reason::PluginMissing, true, "istio-cni".to_owned())],
            ),
        ] {
            assert_eq!(told(runtime, vec![note.clone()]), expected, "{runtime:?} {note:?}");
        }
    }
}
