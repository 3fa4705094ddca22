//! Changes on a folder, with units that a test breaks.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use tunables::files::{DesiredFile, FileGrant};

use super::*;

const UNIT_FILE: &str = "/etc/systemd/system/kubelet.service.d/50-web.conf";
/// Whatever its file has, the unit does not start.
const EVERYTHING: &str = "";
const PLAIN_FILE: &str = "/etc/modprobe.d/90-web.conf";

/// Units, of which one does not start with some content.
struct FakeUnits<'a> {
    host: &'a Host,
    broken: &'static str,
    /// The unit that runs here, or should.
    used: HostUnit,
    usage: UnitUsage,
    /// The file of the confirmation that the agent writes after the restart; none if the leader does not answer.
    confirmation: Option<&'static str>,
    calls: RefCell<Vec<String>>,
    guard: RefCell<Vec<GuardCommand>>,
}

impl FakeUnits<'_> {
    fn note(&self, call: &str) {
        self.calls.borrow_mut().push(call.to_owned());
    }
}

impl Units for FakeUnits<'_> {
    async fn reload(&self) -> Result<(), String> {
        self.note("reload");
        Ok(())
    }

    async fn usage(&self, unit: HostUnit) -> Result<UnitUsage, String> {
        Ok(if unit == self.used { self.usage } else { UnitUsage::Unused })
    }

    async fn restart(&self, unit: HostUnit, _: Instant) -> Result<(), String> {
        self.note(&format!("restart {unit}"));
        if content(self.host, UNIT_FILE).is_some_and(|content| content == self.broken) || self.broken == EVERYTHING {
            return Err(format!("{unit} is inactive"));
        }
        if let Some(order) = self.confirmation {
            fs::write(self.host.data(CONFIRMATION), format!("{order}\n")).unwrap();
        }
        Ok(())
    }

    async fn start(&self, name: &str, commands: &[GuardCommand]) -> Result<(), String> {
        self.note(&format!("start {name}"));
        self.guard.replace(commands.to_vec());
        Ok(())
    }

    async fn stop(&self, name: &str) -> Result<(), String> {
        if !self.guard.take().is_empty() {
            self.note(&format!("stop {name}"));
        }
        Ok(())
    }
}

struct Node {
    folder: tempfile::TempDir,
    host: Host,
}

fn node() -> Node {
    let folder = tempfile::tempdir().unwrap();
    for name in ["etc/systemd/system/kubelet.service.d", "etc/modprobe.d", "data"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    fs::write(folder.path().join(&UNIT_FILE[1..]), "old\n").unwrap();
    let host = Host::new(folder.path(), &folder.path().join("data"));
    Node { folder, host }
}

fn content(host: &Host, path: &str) -> Option<String> {
    // Through the same check of links and owners as the program.
    matches!(host.observe(path), ObservedFile::Present(_)).then(|| {
        let root = host.data("..");
        fs::read_to_string(root.join(&path[1..])).unwrap()
    })
}

fn desired(content: Option<&str>) -> DesiredFiles {
    let file = |content: &str| DesiredFile {
        content: content.to_owned(),
        mode: 0o644,
        policy: "web".to_owned(),
        is_rendered: false,
    };
    DesiredFiles {
        apply: content
            .into_iter()
            .flat_map(|content| [UNIT_FILE, PLAIN_FILE].map(|path| (path.to_owned(), file(content))))
            .collect(),
        restart: [HostUnit::Kubelet].into(),
        grants: vec![FileGrant::HostFiles, FileGrant::HostCode],
        ..DesiredFiles::default()
    }
}

fn units<'a>(host: &'a Host, confirmation: Option<&'static str>) -> FakeUnits<'a> {
    let (calls, guard) = (RefCell::default(), RefCell::default());
    FakeUnits { host, broken: "bad\n", used: HostUnit::Kubelet, usage: UnitUsage::Running, confirmation, calls, guard }
}

/// A run that is killed while it waits for the confirmation, with its units.
async fn killed_run(host: &Host) -> FakeUnits<'_> {
    let killed = units(host, None);
    let run = tokio::time::timeout(Duration::from_millis(100), apply(host, &killed, "a", Some("new\n")));
    assert!(run.await.is_err());
    killed
}

async fn apply(host: &Host, units: &FakeUnits<'_>, order: &str, content: Option<&str>) -> Outcome {
    let (margin, poll) = (Duration::from_millis(100), Duration::from_millis(10));
    let timing = Timing { guard: Duration::from_secs(2), margin, poll, hold: Duration::from_millis(500) };
    let identity = Identity { order, cluster: "cluster", instance: Some("instance") };
    Change { host, units, timing }.apply(identity, &desired(content)).await
}

#[tokio::test]
async fn confirmed_change_stays_and_its_undo_restores_the_earlier_files() {
    let Node { folder: _folder, host } = node();
    let first = units(&host, Some("a"));
    assert_eq!(apply(&host, &first, "a", Some("new\n")).await, Outcome::Applied(Vec::new()));
    assert_eq!(
        *first.calls.borrow(),
        [
            "start oke-node-files-guard.service",
            "reload",
            "restart kubelet.service",
            "stop oke-node-files-guard.service"
        ]
    );
    assert_eq!([UNIT_FILE, PLAIN_FILE].map(|path| content(&host, path).unwrap()), ["new\n", "new\n"]);
    let again = units(&host, Some("a"));
    assert_eq!(apply(&host, &again, "a", Some("new\n")).await, Outcome::Applied(Vec::new()));
    assert!(again.calls.borrow().is_empty(), "nothing changed, so nothing restarts");
    let undo = units(&host, Some("b"));
    assert_eq!(apply(&host, &undo, "b", None).await, Outcome::Applied(Vec::new()));
    assert_eq!((content(&host, UNIT_FILE).unwrap().as_str(), content(&host, PLAIN_FILE)), ("old\n", None));
    assert!(!host.has_copy(UNIT_FILE, Copies::Originals), "the copy is not needed any more");
}

#[tokio::test]
async fn broken_unit_gets_its_earlier_file_back_and_the_order_is_not_retried() {
    let Node { folder: _folder, host } = node();
    let broken = units(&host, Some("a"));
    assert_eq!(
        apply(&host, &broken, "a", Some("bad\n")).await,
        Outcome::RolledBack("kubelet.service is inactive".to_owned())
    );
    assert_eq!((content(&host, UNIT_FILE).unwrap().as_str(), content(&host, PLAIN_FILE)), ("old\n", None));
    assert_eq!(broken.calls.borrow()[3..], ["reload", "restart kubelet.service", "stop oke-node-files-guard.service"]);
    let again = units(&host, Some("a"));
    assert!(matches!(apply(&host, &again, "a", Some("bad\n")).await, Outcome::RolledBack(_)));
    assert!(again.calls.borrow().is_empty());
    let other = units(&host, Some("b"));
    assert_eq!(apply(&host, &other, "b", Some("good\n")).await, Outcome::Applied(Vec::new()));
}

#[tokio::test]
async fn change_that_the_leader_does_not_confirm_is_taken_back() {
    let Node { folder: _folder, host } = node();
    for confirmation in [None, Some("another order")] {
        let silent = units(&host, confirmation);
        let outcome = apply(&host, &silent, confirmation.unwrap_or("a"), Some("new\n")).await;
        if confirmation.is_none() {
            assert!(matches!(&outcome, Outcome::RolledBack(why) if why.contains("did not confirm")), "{outcome:?}");
            assert_eq!(content(&host, UNIT_FILE).unwrap(), "old\n");
        }
    }
    // A confirmation of an earlier order confirms nothing.
    let stale = units(&host, Some("another order"));
    assert!(matches!(apply(&host, &stale, "c", Some("newer\n")).await, Outcome::RolledBack(_)));
    assert_eq!(content(&host, UNIT_FILE).unwrap(), "new\n");
}

#[tokio::test]
async fn next_run_takes_back_what_a_killed_one_left() {
    let Node { folder: _folder, host } = node();
    // Killed while it waited for the confirmation: the files are there, and the record says how to go back.
    killed_run(&host).await;
    assert_eq!(content(&host, UNIT_FILE).unwrap(), "new\n");
    let next = units(&host, Some("b"));
    assert_eq!(apply(&host, &next, "b", None).await, Outcome::Applied(Vec::new()));
    assert_eq!((content(&host, UNIT_FILE).unwrap().as_str(), content(&host, PLAIN_FILE)), ("old\n", None));
    assert_eq!(*next.calls.borrow(), ["reload", "restart kubelet.service"]);
}

#[tokio::test]
async fn guard_of_a_killed_run_brings_the_files_back_alone() {
    let Node { folder: _folder, host } = node();
    let killed = killed_run(&host).await;
    let root = host.data("..");
    for command in killed.guard.take() {
        let [program, arguments @ ..] = &command.arguments[..] else { panic!("{command:?}") };
        if program.ends_with("systemctl") || program.ends_with("sync") || program.ends_with("sleep") {
            continue;
        }
        // The commands name paths of the host.
        let here = |argument: &String| match argument.starts_with("/etc") {
            true => root.join(&argument[1..]),
            false => Path::new(argument).to_owned(),
        };
        let status = std::process::Command::new(program).args(arguments.iter().map(here)).status().unwrap();
        assert!(status.success(), "{command:?}");
    }
    assert_eq!((content(&host, UNIT_FILE).unwrap().as_str(), content(&host, PLAIN_FILE)), ("old\n", None));
    // The next run of the same order finds the record, and does not try again.
    let next = units(&host, Some("a"));
    assert!(matches!(apply(&host, &next, "a", Some("new\n")).await, Outcome::RolledBack(_)));
}

#[tokio::test]
async fn damaged_record_is_an_error_and_changes_nothing() {
    let Node { folder: _folder, host } = node();
    for text in ["", "{", "{\"version\": 2}"] {
        fs::write(host.data(RECORD), text).unwrap();
        let units = units(&host, Some("a"));
        assert!(matches!(apply(&host, &units, "a", Some("new\n")).await, Outcome::Failed(_)), "{text}");
        assert_eq!(content(&host, UNIT_FILE).unwrap(), "old\n");
    }
}

#[tokio::test]
async fn file_that_cannot_be_written_leaves_all_others_as_they_were() {
    let Node { folder, host } = node();
    fs::create_dir(folder.path().join("etc/modprobe.d/90-web.conf.oke-new")).unwrap();
    let units = units(&host, Some("a"));
    let outcome = apply(&host, &units, "a", Some("new\n")).await;
    assert!(matches!(outcome, Outcome::RolledBack(_)), "{outcome:?}");
    assert_eq!((content(&host, UNIT_FILE).unwrap().as_str(), content(&host, PLAIN_FILE)), ("old\n", None));
}

#[tokio::test]
async fn unit_that_stays_broken_keeps_its_guard_and_its_record() {
    let Node { folder: _folder, host } = node();
    let mut broken = units(&host, Some("a"));
    broken.broken = EVERYTHING;
    assert!(matches!(apply(&host, &broken, "a", Some("new\n")).await, Outcome::RolledBack(_)));
    assert!(!broken.guard.borrow().is_empty(), "{:?}", broken.calls);
    assert_eq!(content(&host, UNIT_FILE).unwrap(), "old\n");
    // The next run restarts it again before it does anything else.
    let next = units(&host, Some("b"));
    assert_eq!(apply(&host, &next, "b", None).await, Outcome::Applied(Vec::new()));
    assert_eq!(*next.calls.borrow(), ["reload", "restart kubelet.service"]);
}

const CRIO_FILE: &str = "/etc/crio/crio.conf.d/90-web.conf";

fn desired_of_crio(host: &Host) -> DesiredFiles {
    fs::create_dir_all(host.data("../etc/crio/crio.conf.d")).unwrap();
    let file = DesiredFile { content: "x = 1\n".to_owned(), mode: 0o644, policy: "web".to_owned(), is_rendered: false };
    DesiredFiles {
        apply: [(CRIO_FILE.to_owned(), file)].into(),
        restart: [HostUnit::Crio].into(),
        grants: vec![FileGrant::HostCode],
        ..DesiredFiles::default()
    }
}

#[tokio::test]
async fn unit_that_does_not_run_here_is_not_started() {
    let Node { folder: _folder, host } = node();
    let units = units(&host, None);
    let change = Change { host: &host, units: &units, timing: Timing::default() };
    let identity = Identity { order: "a", cluster: "cluster", instance: None };
    assert_eq!(change.apply(identity, &desired_of_crio(&host)).await, Outcome::Applied(Vec::new()));
    assert!(units.calls.borrow().is_empty() && content(&host, CRIO_FILE).is_some());
}

#[tokio::test]
async fn restart_of_a_runtime_waits_for_the_kubelet_to_notice_before_it_is_confirmed() {
    let Node { folder: _folder, host } = node();
    let units = FakeUnits { used: HostUnit::Crio, ..units(&host, None) };
    let (margin, poll) = (Duration::ZERO, Duration::from_millis(10));
    let timing = Timing { guard: Duration::from_secs(20), margin, poll, hold: Duration::from_millis(600) };
    let change = Change { host: &host, units: &units, timing };
    let identity = Identity { order: "a", cluster: "cluster", instance: None };
    let desired = desired_of_crio(&host);
    let is_proven = || host.record().unwrap().pending.is_some_and(|pending| pending.is_proven);
    let confirm = async {
        sleep(Duration::from_millis(300)).await;
        assert!(!is_proven() && units.calls.borrow().contains(&"restart crio.service".to_owned()));
        while !is_proven() {
            sleep(poll).await;
        }
        fs::write(host.data(CONFIRMATION), "a").unwrap();
    };
    let (outcome, ()) = tokio::join!(change.apply(identity, &desired), confirm);
    assert_eq!(outcome, Outcome::Applied(Vec::new()));
}

#[tokio::test]
async fn unit_that_had_failed_before_blocks_no_later_change() {
    let Node { folder: _folder, host } = node();
    let broken = FakeUnits { broken: EVERYTHING, usage: UnitUsage::Failed, ..units(&host, Some("a")) };
    assert!(matches!(apply(&host, &broken, "a", Some("new\n")).await, Outcome::RolledBack(_)));
    assert!(host.record().unwrap().pending.is_none(), "the earlier files do not bring it back");
    let repaired = units(&host, Some("b"));
    assert_eq!(apply(&host, &repaired, "b", Some("good\n")).await, Outcome::Applied(Vec::new()));
}

#[tokio::test]
async fn original_is_what_was_there_before_the_change_that_stayed() {
    let Node { folder, host } = node();
    assert!(matches!(apply(&host, &units(&host, Some("a")), "a", Some("bad\n")).await, Outcome::RolledBack(_)));
    fs::write(folder.path().join(&UNIT_FILE[1..]), "of the administrator\n").unwrap();
    assert_eq!(apply(&host, &units(&host, Some("b")), "b", Some("good\n")).await, Outcome::Applied(Vec::new()));
    assert_eq!(apply(&host, &units(&host, Some("c")), "c", None).await, Outcome::Applied(Vec::new()));
    assert_eq!(content(&host, UNIT_FILE).unwrap(), "of the administrator\n");
}

#[tokio::test]
async fn change_whose_folder_is_not_mounted_any_more_is_not_forgotten() {
    let Node { folder, host } = node();
    killed_run(&host).await;
    let (mounted, away) = (folder.path().join("etc/modprobe.d"), folder.path().join("away"));
    fs::rename(&mounted, &away).unwrap();
    let outcome = apply(&host, &units(&host, Some("b")), "b", None).await;
    assert!(matches!(&outcome, Outcome::Failed(why) if why.contains("not mounted")), "{outcome:?}");
    fs::rename(&away, &mounted).unwrap();
    assert_eq!(apply(&host, &units(&host, Some("b")), "b", None).await, Outcome::Applied(Vec::new()));
    assert_eq!(content(&host, PLAIN_FILE), None);
}

#[tokio::test]
async fn half_written_file_of_a_killed_run_is_removed() {
    let Node { folder, host } = node();
    killed_run(&host).await;
    let staged = folder.path().join("etc/modprobe.d/90-web.conf.oke-new");
    fs::write(&staged, "hal").unwrap();
    assert_eq!(apply(&host, &units(&host, Some("b")), "b", None).await, Outcome::Applied(Vec::new()));
    assert!(!staged.exists());
}
