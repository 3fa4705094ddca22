//! What an agent answers about files, story by story.

use super::*;
use crate::document::{DesiredHostFile, DesiredReservations, DocumentPolicy};
use crate::files::record::{Original, PendingChange, RecordedFile, Rejection};

const PLAIN: &str = "/etc/modprobe.d/90-web.conf";
const DROP_IN: &str = "/etc/systemd/system/kubelet.service.d/50-web.conf";

fn state(content: &str) -> FileState {
    FileState::of(content.as_bytes(), 0o644)
}

fn document(mode: DocumentMode, files: &[(&str, &str)]) -> NodeDocument {
    let policy =
        |name: &str| DocumentPolicy { name: name.to_owned(), uid: format!("{name}-uid"), mode, ..Default::default() };
    let file = |(path, content): &(&str, &str)| DesiredHostFile {
        path: (*path).to_owned(),
        content: (*content).to_owned(),
        mode: 0o644,
        policy: 0,
    };
    NodeDocument {
        cluster: "c".to_owned(),
        policies: vec![policy("web"), policy("other")],
        files: files.iter().map(file).collect(),
        grants: [FileGrant::HostFiles, FileGrant::HostCode].into(),
        ..NodeDocument::default()
    }
}

fn recorded(files: &[(&str, &str)]) -> FileRecord {
    let file = |(path, content): &(&str, &str)| {
        let recorded =
            RecordedFile { original: Original::Absent, applied: state(content), policy: "web-uid".to_owned() };
        ((*path).to_owned(), recorded)
    };
    FileRecord { version: 1, cluster: "c".to_owned(), files: files.iter().map(file).collect(), ..FileRecord::default() }
}

fn observed(files: &[(&str, &str)]) -> BTreeMap<String, ObservedFile> {
    let all = [PLAIN, DROP_IN].into_iter().map(str::to_owned).chain(rendered_paths());
    let mut observed: BTreeMap<String, ObservedFile> = all.map(|path| (path, ObservedFile::Absent)).collect();
    observed.extend(files.iter().map(|(path, content)| ((*path).to_owned(), ObservedFile::Present(state(content)))));
    observed
}

fn compared(document: &NodeDocument, record: &FileRecord, files: &[(&str, &str)]) -> FileComparison {
    compare(document, record, &observed(files), |_| true)
}

fn answered(comparison: &FileComparison) -> FilesState {
    comparison.answer.as_ref().unwrap().state
}

fn items(comparison: &FileComparison) -> Vec<(&str, ItemState)> {
    comparison.reports.iter().map(|report| (report.item.as_str(), report.state)).collect()
}

fn id(document: &NodeDocument) -> String {
    FileOrder::of(document).to_text().1
}

#[test]
fn node_without_files_answers_nothing() {
    assert_eq!(compared(&document(DocumentMode::Apply, &[]), &recorded(&[]), &[]), FileComparison::default());
    // A record of another cluster is void.
    let other = FileRecord { cluster: "d".to_owned(), ..recorded(&[(PLAIN, "a\n")]) };
    assert_eq!(compared(&document(DocumentMode::Apply, &[]), &other, &[]), FileComparison::default());
}

#[test]
fn change_goes_from_due_to_applied() {
    let named = document(DocumentMode::Apply, &[(PLAIN, "a\n")]);
    let due = compared(&named, &recorded(&[]), &[]);
    assert_eq!((answered(&due), items(&due)), (FilesState::Due, vec![]));
    assert_eq!(due.changing, ["web".to_owned()].into(), "and no policy without files");
    assert_eq!(due.answer.as_ref().unwrap().owners, ["web-uid"]);
    let mut record = recorded(&[(PLAIN, "a\n")]);
    record.pending = Some(PendingChange { order: id(&named), ..PendingChange::default() });
    assert_eq!(answered(&compared(&named, &record, &[(PLAIN, "a\n")])), FilesState::Changing);
    let proven = record.prove(Some(7));
    let waiting = compared(&named, &proven, &[(PLAIN, "a\n")]).answer.unwrap();
    assert_eq!((waiting.state, waiting.kubelet_started), (FilesState::Confirmable, Some(7)));
    // The document changed meanwhile: nothing confirms the earlier order.
    let later = document(DocumentMode::Apply, &[(PLAIN, "b\n")]);
    assert_eq!(answered(&compared(&later, &proven, &[(PLAIN, "a\n")])), FilesState::Changing);
    let done = compared(&named, &proven.confirm(), &[(PLAIN, "a\n")]);
    assert_eq!((answered(&done), done.in_sync, done.changing.len()), (FilesState::Applied, 1, 0));
    // Undone, as long as the record has it.
    let undo = compared(&document(DocumentMode::Apply, &[]), &proven.confirm(), &[(PLAIN, "a\n")]);
    assert_eq!((answered(&undo), undo.answer.unwrap().owners), (FilesState::Due, vec!["web-uid".to_owned()]));
}

#[test]
fn rolled_back_order_fails_the_policies_that_it_changed() {
    let named = document(DocumentMode::Apply, &[(DROP_IN, "bad\n")]);
    let rejection =
        Rejection { message: "kubelet.service is failed".to_owned(), policies: ["web-uid".to_owned()].into() };
    let record = FileRecord { rejected: id(&named), rejection: Some(rejection), ..recorded(&[]) };
    let found = compared(&named, &record, &[]);
    assert_eq!((answered(&found), items(&found)), (FilesState::RolledBack, vec![(DROP_IN, ItemState::RolledBack)]));
    assert_eq!(found.reports[0].message, "kubelet.service is failed");
    let fixed = compared(&document(DocumentMode::Apply, &[(DROP_IN, "good\n")]), &record, &[]);
    assert_eq!((answered(&fixed), items(&fixed)), (FilesState::Due, vec![]));
}

#[test]
fn files_that_cannot_be_undone_are_named() {
    let mut gone = document(DocumentMode::Apply, &[]);
    gone.policies.clear();
    let record = recorded(&[(DROP_IN, "b\n")]);
    let due = compared(&gone, &record, &[(DROP_IN, "b\n")]);
    assert_eq!((answered(&due), due.unrestored.len()), (FilesState::Due, 0));
    let rejection = Rejection { message: "kubelet.service is failed".to_owned(), ..Rejection::default() };
    let rejected = FileRecord { rejected: id(&gone), rejection: Some(rejection), ..record.clone() };
    let stays = compared(&gone, &rejected, &[(DROP_IN, "b\n")]);
    assert_eq!(answered(&stays), FilesState::RolledBack);
    assert_eq!(stays.unrestored, [format!("{DROP_IN}: kubelet.service is failed")]);
    gone.grants.clear();
    let stays = compared(&gone, &record, &[]);
    assert!(answered(&stays) == FilesState::NotGranted && stays.unrestored[0].contains("hostCode"), "{stays:?}");
}

#[test]
fn foreign_change_is_reported_and_no_pod_runs() {
    let named = document(DocumentMode::Apply, &[(PLAIN, "a\n")]);
    let found = compared(&named, &recorded(&[(PLAIN, "a\n")]), &[(PLAIN, "foreign\n")]);
    assert_eq!((answered(&found), items(&found)), (FilesState::Applied, vec![(PLAIN, ItemState::Drifted)]));
    assert!(found.reports[0].current.starts_with("0644 ") && found.reports[0].desired != found.reports[0].current);
}

#[test]
fn mode_report_compares_and_is_never_due() {
    let named = document(DocumentMode::Report, &[(PLAIN, "a\n"), (DROP_IN, "b\n")]);
    let found = compared(&named, &recorded(&[]), &[(PLAIN, "a\n")]);
    assert_eq!((answered(&found), items(&found)), (FilesState::Applied, vec![(DROP_IN, ItemState::Drifted)]));
    assert_eq!((found.in_sync, found.changing.len()), (1, 0));
}

const LIMITS: &str = "/etc/security/limits.d/90-web.conf";
const LIMIT: &str = "* - core 1\n";

fn with_limits(files: &[(&str, &str)]) -> BTreeMap<String, ObservedFile> {
    let mut observed = observed(files);
    observed.entry(LIMITS.to_owned()).or_insert(ObservedFile::Absent);
    observed
}

#[test]
fn missing_grant_or_mount_is_reported_and_hides_no_other() {
    let mut named = document(DocumentMode::Apply, &[(LIMITS, LIMIT), (DROP_IN, "b\n")]);
    named.grants = [FileGrant::HostFiles].into();
    let due = compare(&named, &recorded(&[]), &with_limits(&[]), |_| true);
    assert_eq!((answered(&due), items(&due)), (FilesState::Due, vec![(DROP_IN, ItemState::NotGranted)]));
    let done = compared(&named, &recorded(&[(LIMITS, LIMIT)]), &[(LIMITS, LIMIT)]);
    assert_eq!(answered(&done), FilesState::NotGranted);
    assert!(done.reports[0].message.contains("hostCode"), "{:?}", done.reports);
    // Files of a grant that was taken away stay, and nothing waits for them.
    let left = compared(&document_without(&[]), &recorded(&[(DROP_IN, "b\n")]), &[(DROP_IN, "b\n")]);
    assert_eq!((answered(&left), left.answer.unwrap().owners), (FilesState::NotGranted, vec!["web-uid".to_owned()]));
    let named = document(DocumentMode::Apply, &[(LIMITS, LIMIT), (DROP_IN, "b\n")]);
    let unmounted =
        compare(&named, &recorded(&[(LIMITS, LIMIT)]), &with_limits(&[]), |folder| folder != "/etc/security/limits.d");
    assert_eq!((answered(&unmounted), items(&unmounted)), (FilesState::Due, vec![(LIMITS, ItemState::NotGranted)]));
    assert!(
        unmounted.reports[0].message.contains("lacks the mount of /etc/security/limits.d"),
        "{:?}",
        unmounted.reports
    );
}

fn document_without(grants: &[FileGrant]) -> NodeDocument {
    NodeDocument { grants: grants.iter().copied().collect(), ..document(DocumentMode::Apply, &[]) }
}

#[test]
fn unit_without_permit_runs_with_earlier_files_and_says_so() {
    let named = document(DocumentMode::Apply, &[(DROP_IN, "b\n")]);
    let mut record = recorded(&[(DROP_IN, "b\n")]);
    record.owed = [HostUnit::Kubelet].into();
    let waiting = compared(&named, &record, &[(DROP_IN, "b\n")]);
    assert_eq!(
        (answered(&waiting), items(&waiting)),
        (FilesState::Applied, vec![("kubelet.service", ItemState::Drifted)])
    );
    let permitted = NodeDocument { restart: [HostUnit::Kubelet].into(), ..named };
    let due = compared(&permitted, &record, &[(DROP_IN, "b\n")]);
    assert_eq!((answered(&due), items(&due)), (FilesState::Due, vec![]));
}

#[test]
fn reservations_are_as_their_pod_recorded_them() {
    let reservations: api::node_policy::KubeletReservations =
        serde_json::from_str(r#"{"systemReserved": {"cpu": "500m"}}"#).unwrap();
    let mut named = document(DocumentMode::Apply, &[]);
    named.kubelet.push(DesiredReservations { reservations: reservations.clone(), policy: 0 });
    assert_eq!(answered(&compared(&named, &recorded(&[]), &[])), FilesState::Due);
    let [path, _] = rendered_paths();
    let drop_in = reservations::drop_in(&reservations);
    let mut record = recorded(&[(&path, &drop_in)]);
    record.kubelet = Some(RecordedReservations::new(&reservations));
    let done = compared(&named, &record, &[(&path, &drop_in)]);
    assert_eq!((answered(&done), done.in_sync, items(&done)), (FilesState::Applied, 1, vec![]));
    let foreign = compared(&named, &record, &[(&path, "{}\n")]);
    assert_eq!((answered(&foreign), items(&foreign)), (FilesState::Applied, vec![(KUBELET, ItemState::Drifted)]));
    let mut outranked = recorded(&[]);
    let (state, message) = (Some(ItemState::Unsupported), "the kubelet's flag --system-reserved".to_owned());
    outranked.kubelet = Some(RecordedReservations { state, message, ..RecordedReservations::new(&reservations) });
    let found = compared(&named, &outranked, &[]);
    assert_eq!((answered(&found), items(&found)), (FilesState::Applied, vec![(KUBELET, ItemState::Unsupported)]));
    assert!(found.reports[0].message.contains("--system-reserved"));
    assert_eq!(found.reports[0].desired, r#"{"systemReserved":{"cpu":"500m"}}"#);
    named.grants.clear();
    assert_eq!(items(&compared(&named, &recorded(&[]), &[])), [(KUBELET, ItemState::NotGranted)]);
    named.grants = [FileGrant::HostCode].into();
    named.policies[0].mode = DocumentMode::Report;
    assert_eq!(items(&compared(&named, &recorded(&[]), &[])), [(KUBELET, ItemState::Drifted)]);
    assert_eq!(compared(&named, &recorded(&[]), &[(&path, &drop_in)]).in_sync, 1);
}

#[test]
fn unreadable_record_fails_the_policies_with_files() {
    let found = unreadable(&document(DocumentMode::Apply, &[(PLAIN, "a\n")]), "read record.json: EOF");
    assert_eq!((answered(&found), items(&found)), (FilesState::Unknown, vec![(PLAIN, ItemState::Failed)]));
    assert_eq!(unreadable(&document(DocumentMode::Apply, &[]), "x"), FileComparison::default());
}
