//! Puts our CNI binaries and CNI configuration on the node, only where the cluster uses VCN-native pod networking; on a
//! Flannel cluster, or in doubt, it touches nothing of the pod network and says which signal decided.
//!
//! ```text
//!   args ─▶ settings ─┐
//!   signals ──────────┼─▶ decision ─▶ plan (pure) ─▶ apply ─▶ report
//!   disk ─▶ observed ─┘                 │              │
//!                              conflist (rendering)  place (atomic files)
//! ```
//!
//! [`reconcile`] is blocking and idempotent: the agent calls it at start, whenever an address becomes usable, and on a
//! timer. Binaries go first and at once; the configuration follows when every binary is in place and the caller says
//! that an address is usable, because the runtime calls a node ready as soon as it finds one. Nothing is removed on
//! restart, and no file of anybody else is ever written.

mod apply;
mod args;
mod conflist;
mod decision;
mod digest;
mod error;
mod observed;
mod place;
mod plan;
mod report;
mod run;
mod settings;
mod signals;
mod versions;

pub use args::{Args, Options, SignalArgs};
pub use decision::{Decision, decide};
pub use digest::Digest;
pub use error::Error;
use observed::Observed;
pub use observed::{ConfFile, Contents};
use plan::plan;
pub use plan::{Note, Step};
pub use report::{Conflist, Report, Status};
pub use run::run;
pub use settings::{PodNetwork, Settings, SettingsError};
pub use signals::{FLANNEL_DAEMONSET, METADATA_KEY, NODE_LABEL, OKE_CONFLIST, OKE_DAEMONSET, Seen, Signal, Signals};

/// Brings the node to what the settings and signals ask for; `usable` says that a pod could get an address now.
///
/// On success the binaries are in place where the decision is to install, and so is the configuration once `usable`.
/// Failures are in the report; what could be done has been done, and another call tries again.
pub fn reconcile(settings: &Settings, signals: &Signals, usable: bool) -> Report {
    consider(settings, signals, usable, true)
}

/// What [`reconcile`] would do, without doing it.
pub fn dry_run(settings: &Settings, signals: &Signals, usable: bool) -> Report {
    consider(settings, signals, usable, false)
}

/// Whether the pod network is ours to install, and what decided it. Reads the names and contents of the CNI
/// configurations, nothing else: cheap enough to ask before every other step.
pub fn decision(settings: &Settings, signals: &Signals) -> Decision {
    match observed::conf_files(&settings.cni_conf_dir) {
        Ok(files) => decide(settings, signals, &files),
        Err(_) => Decision::unreadable(&settings.cni_conf_dir),
    }
}

fn consider(settings: &Settings, signals: &Signals, usable: bool, apply: bool) -> Report {
    let conf_files = match observed::conf_files(&settings.cni_conf_dir) {
        Ok(files) => files,
        Err(error) => return Report::new(Decision::unreadable(&settings.cni_conf_dir)).failed(error),
    };
    let mut report = Report::new(decide(settings, signals, &conf_files));
    let observed = if report.decision.install {
        match Observed::look(settings, conf_files) {
            Ok(observed) => observed,
            Err(error) => return report.failed(error),
        }
    } else {
        Observed::without_binaries(conf_files)
    };
    let plan = plan(settings, &report.decision, &observed, usable);
    report.notes = plan.notes;
    report.conflist = plan.conflist;
    report.failures = plan.failures;
    if apply { apply::apply(plan.steps, report) } else { report.planned(plan.steps) }
}
