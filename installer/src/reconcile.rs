//! One reconcile: read, decide, and take the steps; again if another program wrote a configuration at the same moment.

use std::time::SystemTime;

use crate::apply::Applier;
use crate::args::VnicAttach;
use crate::decide::{Decision, NodeState, decide, foreign_pods, oke_cni};
use crate::error::Error;
use crate::files::{create_directory, lock_out_installers};
use crate::observed::{ConfFile, conf_files};
use crate::record::{self, Record};
use crate::report::Report;
use crate::settings::Settings;
use crate::signals::Signals;

/// Attempts if another program writes a configuration at the same moment.
const ATTEMPTS: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Apply,
    DryRun,
}

/// Brings the node to what settings and signals require. `usable` says that a pod could get an address now.
///
/// On success the binaries are in place if the decision is to install, and so is the configuration once `usable`. Failures
/// are in the report; everything else was done, and another call tries again.
pub fn reconcile(settings: &Settings, signals: &Signals, usable: bool) -> Report {
    let (mut steps, mut attempts) = (Vec::new(), 1);
    loop {
        let mut report = once(settings, signals, usable, Mode::Apply);
        steps.append(&mut report.steps);
        let is_raced = report.failures.iter().any(|failure| matches!(failure, Error::Raced { .. }));
        if !is_raced || attempts == ATTEMPTS {
            return Report { steps, ..report };
        }
        attempts += 1;
    }
}

/// What [`reconcile`] would do, without doing it.
pub fn dry_run(settings: &Settings, signals: &Signals, usable: bool) -> Report {
    once(settings, signals, usable, Mode::DryRun)
}

/// Whether to install our pod network, and what decided it. It reads the CNI configurations and, before a first
/// installation, what shows pods of other networks: cheap enough to call before every step.
pub fn decision(settings: &Settings, signals: &Signals) -> Decision {
    match conf_files(&settings.cni_conf_dir) {
        Ok(files) => decide_on(settings, signals, &files),
        Err(_) => Decision::unreadable(&settings.cni_conf_dir),
    }
}

fn decide_on(settings: &Settings, signals: &Signals, files: &[ConfFile]) -> Decision {
    let (record, _) = Record::read(&settings.data_dir);
    let installed_before = record.conflist().is_some_and(|known| known.our_part.is_some());
    let node = NodeState { conf_files: files, pods: &Ok(None), installed_before };
    let decision = decide(settings, signals, node);
    // Where we were before and OKE's own CNI is not, our pods lived with the other ones.
    if !decision.install || installed_before && oke_cni(signals, files).is_none() {
        return decision;
    }
    decide(settings, signals, NodeState { pods: &foreign_pods(settings, files), ..node })
}

fn once(settings: &Settings, signals: &Signals, usable: bool, mode: Mode) -> Report {
    let files = match conf_files(&settings.cni_conf_dir) {
        Ok(files) => files,
        Err(error) => return Report::new(Decision::unreadable(&settings.cni_conf_dir)).failed(error),
    };
    let mut report = Report::new(decide_on(settings, signals, &files));
    let install = report.decision.install;
    let may_write = install
        || files.iter().any(|file| file.name == vcn::CONFLIST_FILE)
        || settings.vnic_attach == VnicAttach::On
        || settings.data_dir.join(record::FILE).exists()
        || settings.copied_conflist().exists();
    if mode == Mode::Apply && (install || settings.places_vnic_attach(install)) {
        // All installers lock it, so it has to exist. A failure is reported of the binary that cannot be placed there.
        let _ = create_directory(&settings.cni_bin_dir);
    }
    let directories = settings.written_directories();
    let lock = (may_write && mode == Mode::Apply).then(|| lock_out_installers(&directories));
    if let Some(None) = lock {
        return report.failed(Error::Busy);
    }
    // Another program may have written one while this one waited.
    let files = conf_files(&settings.cni_conf_dir).unwrap_or(files);
    let (record, damage) = Record::read(&settings.data_dir);
    let is_damaged = matches!(damage, Some(Error::Record { .. }));
    let not_set_aside = (is_damaged && mode == Mode::Apply).then(|| Record::set_aside(&settings.data_dir).err());
    report.failures.extend(damage.into_iter().chain(not_set_aside.flatten()));
    report.applied = mode == Mode::Apply;
    let still_ours = || decision(settings, signals).install;
    let (now, still_ours) = (SystemTime::now(), &still_ours);
    Applier { settings, record, report, now, still_ours, binaries_in_place: true }.apply(&files, usable)
}
