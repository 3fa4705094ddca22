//! The conditions that the installer's report makes.

use super::*;

/// The conditions of notes: reason, whether it blocks, subject.
fn conditions_of(runtime: ContainerRuntime, notes: Vec<Note>) -> Vec<(Reason, bool, String)> {
    let decision = installer::Decision {
        install: true,
        another: false,
        oke: false,
        decided_by: Signal::NodeLabel,
        against: vec![],
        reason: "for the test".into(),
    };
    let (steps, failures, conflist) = (vec![], vec![], ConflistState::InPlace);
    let report = Report { decision, steps, applied: true, conflist, notes, failures };
    let found = conditions(&report, runtime, false);
    found.into_iter().map(|it| (it.reason, it.blocks(), it.subject.unwrap_or_default())).collect()
}

#[test]
fn preceding_configuration_blocks_unless_cri_o_skips_it() {
    let file = || "00-x.conflist".to_owned();
    let note = |kind| Note { kind, subject: file(), message: String::new() };
    let before = |gives| note(NoteKind::SortsBefore { gives });
    let copy_after = |gives| note(NoteKind::SortsBeforeCopy { gives });
    let (blocked, preceded) = (Reason::RuntimeConfigurationBlocked, Reason::RuntimeConfigurationPreceded);
    for runtime in [ContainerRuntime::CriO, ContainerRuntime::Unknown] {
        let refuses = runtime == ContainerRuntime::Unknown;
        for (note, expected) in [
            (note(NoteKind::UnusableBefore), vec![(blocked, refuses, file())]),
            (note(NoteKind::LacksPlugins), vec![(preceded, refuses, file())]),
            (before(ProvidedNetwork::Network), vec![(preceded, false, file())]),
            (before(ProvidedNetwork::CalledNetwork), vec![]),
            (before(ProvidedNetwork::Nothing), vec![(preceded, true, file())]),
            (copy_after(ProvidedNetwork::Network), vec![(preceded, false, file())]),
            (copy_after(ProvidedNetwork::CalledNetwork), vec![]),
            (copy_after(ProvidedNetwork::Nothing), vec![(preceded, true, file())]),
            (note(NoteKind::DropInRefused), vec![(blocked, true, file())]),
            (note(NoteKind::PluginMissing), vec![(Reason::PluginMissing, true, file())]),
        ] {
            assert_eq!(conditions_of(runtime, vec![note.clone()]), expected, "{runtime:?} {note:?}");
        }
    }
}
