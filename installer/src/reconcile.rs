//! One round: look, decide, plan, and take the steps; again where somebody wrote a configuration at the same moment.

use std::time::SystemTime;

use crate::apply::Applier;
use crate::decision::oke_cni;
use crate::exclusive::Exclusive;
use crate::observed::{Leftover, Observed, Scope, conf_files};
use crate::plan::{Facts, plan};
use crate::record::{Record, RecordFile};
use crate::report::chain;
use crate::{Answers, ConfFile, Decision, Error, Here, Occupants, Report, Settings, Signals, decide, directory};

/// So often a configuration is looked at again that others wrote at the same moment.
const LOOKS: usize = 5;

/// Brings the node to what the settings and signals ask for; `usable` says that a pod could get an address now, `answers`
/// what is known of plugins.
///
/// On success the binaries are in place where the decision is to install, and so is the configuration once `usable`.
/// Failures are in the report; what could be done has been done, and another call tries again.
pub fn reconcile(settings: &Settings, signals: &Signals, usable: bool, answers: &Answers) -> Report {
    let mut steps = Vec::new();
    let mut looks = 1;
    loop {
        let mut report = consider((settings, answers), signals, usable, true);
        let raced = report.failures.iter().any(|failure| matches!(failure, Error::Raced { .. }));
        steps.append(&mut report.steps);
        if !raced || looks == LOOKS {
            report.steps = steps;
            return report;
        }
        looks += 1;
    }
}

/// What [`reconcile`] would do, without doing it.
pub fn dry_run(settings: &Settings, signals: &Signals, usable: bool, answers: &Answers) -> Report {
    consider((settings, answers), signals, usable, false)
}

/// Whether the pod network is ours to install, and what decided it. Reads the names and contents of the CNI
/// configurations, and where it would be installed for the first time what shows others' pods, nothing else: cheap enough to
/// ask before every other step.
pub fn decision(settings: &Settings, signals: &Signals) -> Decision {
    match conf_files(&settings.cni_conf_dir) {
        Ok(files) => decided(settings, signals, &files),
        Err(_) => Decision::unreadable(&settings.cni_conf_dir),
    }
}

fn decided(settings: &Settings, signals: &Signals, files: &[ConfFile]) -> Decision {
    let record = RecordFile::new(&settings.data_dir).read();
    let remembered = record.is_ok_and(|record| record.configurations.contains_key(vcn::CONFLIST_FILE));
    let here = Here { conf_files: files, pods: &Occupants::None, remembered };
    let alone = decide(settings, signals, here);
    if !alone.install {
        return alone;
    }
    // Where we were before and OKE's own CNI is not, other pods are somebody's whom our pods lived with.
    if remembered && oke_cni(signals, files).is_none() {
        return alone;
    }
    decide(settings, signals, Here { pods: &Occupants::look(settings, files), ..here })
}

fn consider((settings, answers): (&Settings, &Answers), signals: &Signals, usable: bool, apply: bool) -> Report {
    let now = SystemTime::now();
    let files = match conf_files(&settings.cni_conf_dir) {
        Ok(files) => files,
        Err(error) => return Report::new(Decision::unreadable(&settings.cni_conf_dir)).failed(error),
    };
    let mut report = Report::new(decided(settings, signals, &files));
    let mut file = RecordFile::new(&settings.data_dir);
    let leaves = !report.decision.install && files.iter().any(|file| file.name == vcn::CONFLIST_FILE);
    let touches = report.decision.install || leaves || settings.chain_into.is_some() || file.path().exists();
    let directories = settings.written_directories();
    let elsewhere = directories.iter().filter(|_| touches).find_map(|path| {
        let source = directory::is_administrators(path).err()?;
        Some(Error::Read { path: path.clone(), source })
    });
    if let Some(error) = elsewhere {
        return report.failed(error);
    }
    let exclusive = if apply && touches { Exclusive::over(&directories) } else { None };
    let (mut record, damage) = remembered(&mut file, apply);
    let scope = Scope { install: report.decision.install, alone: exclusive.is_some(), record: &record, answers };
    let mut observed = Observed::look(settings, files, scope);
    if !report.decision.install {
        observed.leftover = Leftover::look(settings, &record, damage.first().map(chain));
    }
    let facts = Facts { settings, observed: &observed, record: &record, remembers: !file.is_sealed(), now };
    let plan = plan(facts, &report.decision, usable);
    report.notes = plan.notes;
    report.conflist = plan.conflist;
    let inherited = observed.conf_files.iter().any(ConfFile::is_ours);
    report.failures = observed.failures;
    report.failures.extend(plan.failures);
    report.failures.extend(damage);
    if !apply {
        return report.planned(plan.steps);
    }
    if let Some((written, wanted)) = plan.adopted {
        let known = record.configurations.entry(vcn::CONFLIST_FILE.to_owned()).or_default();
        (known.written, known.wanted) = (Some(written), Some(wanted));
        known.settle();
        report.failures.extend(file.keep(&record).err());
    }
    let still_ours = || decision(settings, signals).install;
    Applier { record: &mut record, file: &file, inherited, still_ours: &still_ours, now }.apply(plan.steps, report)
}

/// A damaged record is put out of the way by whoever writes the next. One that cannot be read at this moment stays.
fn remembered(file: &mut RecordFile, apply: bool) -> (Record, Vec<Error>) {
    let unreadable = |file: &RecordFile, error| Error::Unremembered { path: file.path(), source: Box::new(error) };
    match file.read() {
        Ok(record) => (record, Vec::new()),
        Err(damaged @ Error::Record { .. }) => {
            let aside = if apply { file.set_aside().err() } else { None };
            let aside = aside.map(|error| unreadable(file, error));
            (Record::default(), [damaged].into_iter().chain(aside).collect())
        }
        Err(error) => {
            if let Error::Read { source, .. } = &error {
                file.seal(source);
            }
            (Record::default(), vec![unreadable(file, error)])
        }
    }
}
