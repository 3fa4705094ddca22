//! Golden cases: folders of `golden/files`, each with a node and its plan. And a node without disk on which every short story of
//! policies, other programs and rollbacks ends with the files that were there before.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::*;
use crate::files::record::VERSION;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(default)]
    grants: Vec<String>,
    #[serde(default)]
    restart: BTreeSet<HostUnit>,
    #[serde(default)]
    allowed_before: BTreeSet<HostUnit>,
    #[serde(default)]
    owed: BTreeSet<HostUnit>,
    #[serde(default)]
    kept: BTreeSet<String>,
    #[serde(default)]
    apply: BTreeMap<String, CaseFile>,
    #[serde(default)]
    report: BTreeMap<String, CaseFile>,
    #[serde(default)]
    record: BTreeMap<String, CaseRecord>,
    observed: BTreeMap<String, CaseObserved>,
}

#[derive(Deserialize)]
struct CaseFile {
    content: String,
    #[serde(default = "mode")]
    mode: u32,
}

#[derive(Deserialize)]
struct CaseRecord {
    original: Option<String>,
    applied: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum CaseObserved {
    Content(Option<String>),
    Unusable { unusable: String },
}

const fn mode() -> u32 {
    0o644
}

fn state(content: &str) -> FileState {
    FileState::of(content.as_bytes(), mode())
}

fn files(files: BTreeMap<String, CaseFile>) -> BTreeMap<String, DesiredFile> {
    let file = |CaseFile { content, mode }| DesiredFile { content, mode, policy: "web".to_owned(), is_rendered: false };
    files.into_iter().map(|(path, found)| (path, file(found))).collect()
}

fn planned(case: Case) -> FilePlan {
    let grants = [FileGrant::HostFiles, FileGrant::HostCode];
    let desired = DesiredFiles {
        apply: files(case.apply),
        report: files(case.report),
        restart: case.restart,
        kept: case.kept,
        grants: grants.into_iter().filter(|grant| case.grants.iter().any(|word| word == grant.as_str())).collect(),
        ..DesiredFiles::default()
    };
    let recorded = |CaseRecord { original, applied }| RecordedFile {
        original: original.map_or(Original::Absent, |content| Original::Kept(state(&content))),
        applied: state(&applied),
        policy: "web".to_owned(),
    };
    let record = FileRecord {
        files: case.record.into_iter().map(|(path, found)| (path, recorded(found))).collect(),
        restart: case.allowed_before,
        owed: case.owed,
        ..FileRecord::default()
    };
    let observed = |found| match found {
        CaseObserved::Content(None) => ObservedFile::Absent,
        CaseObserved::Content(Some(content)) => ObservedFile::Present(state(&content)),
        CaseObserved::Unusable { unusable } => ObservedFile::Unusable(unusable),
    };
    let observed = case.observed.into_iter().map(|(path, found)| (path, observed(found))).collect();
    plan(&desired, &record, &observed)
}

/// As a person reads it.
fn text(plan: &FilePlan) -> String {
    let mut text = String::new();
    for step in &plan.steps {
        let action = match &step.action {
            StepAction::Write(file) => format!("write {:?} with mode {:o}", file.content, file.mode),
            StepAction::PutBack(_) => "put back what was there before".to_owned(),
            StepAction::Remove => "remove".to_owned(),
            StepAction::Note => "record".to_owned(),
            StepAction::Forget => "forget".to_owned(),
        };
        writeln!(text, "{}: {action}", step.path).unwrap();
    }
    if plan.reload {
        writeln!(text, "systemd reads its units again").unwrap();
    }
    let guard = if plan.is_guarded() { " under guard" } else { "" };
    for unit in &plan.restart {
        writeln!(text, "restart {unit}{guard}").unwrap();
    }
    for unit in &plan.waiting {
        writeln!(text, "{unit} keeps the earlier file until it restarts").unwrap();
    }
    for FileReport { path, state, message, .. } in &plan.reports {
        writeln!(text, "{path}: {state:?}: {message}").unwrap();
    }
    writeln!(text, "{} in sync", plan.in_sync).unwrap();
    text
}

#[test]
fn node_changes_as_the_golden_cases_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/files");
    let mut cases: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() >= 8);
    for case in cases {
        let node = fs::read_to_string(case.join("node.yaml")).unwrap();
        let found = text(&planned(serde_yaml_ng::from_str(&node).unwrap()));
        let file = case.join("plan.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&file, &found).unwrap();
        }
        assert_eq!(fs::read_to_string(&file).unwrap_or_default(), found, "{}", case.display());
    }
}

const UNIT_FILE: &str = "/etc/systemd/system/kubelet.service.d/50-web.conf";
const PLAIN_FILE: &str = "/etc/modprobe.d/90-web.conf";

/// A node without disk: contents by path, the copies that a real one keeps, and the record.
#[derive(Clone, Default)]
struct Node {
    files: BTreeMap<String, String>,
    originals: BTreeMap<String, String>,
    record: FileRecord,
    restarts: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A policy with this content is applied and confirmed.
    Apply(&'static str),
    /// The same, but nothing confirms it.
    Lose(&'static str),
    /// Another program writes both files.
    Overwrite,
    /// No policy has files.
    Withdraw,
}

impl Node {
    fn desired(content: Option<&str>) -> DesiredFiles {
        let file = |content: &str| DesiredFile {
            content: content.to_owned(),
            mode: mode(),
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

    fn plan(&self, desired: &DesiredFiles) -> FilePlan {
        let observed = [UNIT_FILE, PLAIN_FILE].map(|path| {
            let found = self.files.get(path);
            let found = found.map_or(ObservedFile::Absent, |content| ObservedFile::Present(state(content)));
            (path.to_owned(), found)
        });
        plan(desired, &self.record, &observed.into())
    }

    fn carry_out(&mut self, desired: &DesiredFiles, is_confirmed: bool) {
        let plan = self.plan(desired);
        let before = self.files.clone();
        self.record = plan.begin(&self.record, "order", &BTreeSet::new());
        for step in plan.steps {
            let is_first = step.record.as_ref().is_some_and(
                |record| matches!(&record.original, Original::Kept(original) if Some(original) == step.before.as_ref()),
            );
            if is_first {
                self.originals.insert(step.path.clone(), before[&step.path].clone());
            }
            match step.action {
                StepAction::Write(file) => drop(self.files.insert(step.path, file.content)),
                StepAction::PutBack(_) => {
                    let original = self.originals[&step.path].clone();
                    self.files.insert(step.path, original);
                }
                StepAction::Remove => drop(self.files.remove(&step.path)),
                StepAction::Note | StepAction::Forget => {}
            }
        }
        self.restarts += u32::try_from(plan.restart.len()).unwrap();
        if is_confirmed {
            self.record = self.record.confirm();
            return;
        }
        let pending = self.record.pending.clone().unwrap();
        for path in pending.before.keys() {
            match before.get(path) {
                Some(content) => drop(self.files.insert(path.clone(), content.clone())),
                None => drop(self.files.remove(path)),
            }
        }
        self.record = self.record.roll_back("lost");
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Apply(content) => self.carry_out(&Self::desired(Some(content)), true),
            Event::Lose(content) => self.carry_out(&Self::desired(Some(content)), false),
            Event::Overwrite => {
                self.files = [UNIT_FILE, PLAIN_FILE].map(|path| (path.to_owned(), "foreign\n".to_owned())).into();
            }
            Event::Withdraw => self.carry_out(&Self::desired(None), true),
        }
    }
}

#[test]
fn every_story_ends_with_the_files_that_were_there_before() {
    const EVENTS: [Event; 6] = [
        Event::Apply("a\n"),
        Event::Apply("b\n"),
        Event::Lose("a\n"),
        Event::Lose("b\n"),
        Event::Overwrite,
        Event::Withdraw,
    ];
    let start = Node { files: [(UNIT_FILE.to_owned(), "old\n".to_owned())].into(), ..Node::default() };
    for number in 0..EVENTS.len().pow(5) {
        let story: Vec<Event> = (0..5).map(|place| EVENTS[number / EVENTS.len().pow(place) % EVENTS.len()]).collect();
        let mut node = start.clone();
        let mut last_applied = None;
        for event in &story {
            node.happen(*event);
            assert!(node.record.pending.is_none());
            match event {
                Event::Apply(content) => {
                    // Written, unless another program changed the same content since.
                    let is_foreign =
                        last_applied == Some(Event::Apply(content)) && node.files[UNIT_FILE] == "foreign\n";
                    assert!(is_foreign || node.files[UNIT_FILE] == *content, "{story:?}");
                    last_applied = Some(*event);
                }
                Event::Withdraw => last_applied = Some(*event),
                Event::Lose(_) | Event::Overwrite => {}
            }
        }
        node.happen(Event::Withdraw);
        assert!(node.record.files.is_empty() && node.record.owed.is_empty(), "{story:?}");
        if !story.contains(&Event::Overwrite) {
            assert_eq!(node.files, start.files, "{story:?}");
        }
        let rest = node.clone();
        node.happen(Event::Withdraw);
        assert!(node.files == rest.files && node.restarts == rest.restarts, "{story:?}");
    }
}

#[test]
fn rolled_back_order_is_remembered_until_another_is_confirmed() {
    let mut node = Node::default();
    node.happen(Event::Lose("a\n"));
    assert_eq!((node.record.rejected.as_str(), node.record.version), ("order", VERSION));
    node.happen(Event::Apply("b\n"));
    assert_eq!(node.record.rejected, "");
}

#[test]
fn unchanged_file_keeps_its_unit_running() {
    let mut node = Node::default();
    node.happen(Event::Apply("a\n"));
    assert_eq!(node.restarts, 1);
    let mut desired = Node::desired(Some("a\n"));
    desired.apply.get_mut(PLAIN_FILE).unwrap().content = "other\n".to_owned();
    node.carry_out(&desired, true);
    assert_eq!((node.restarts, node.files[PLAIN_FILE].as_str()), (1, "other\n"));
}
