//! Our configuration on a node of another pod network: a runtime that finds it starts pods with it, and no agent offers
//! them addresses. It goes when another network is meant for sure, no pod uses our network, and pods have another network or shall
//! have none.

use super::{Note, Plan, RuntimeUsage, Step};
use crate::decide::{Decision, Signal};
use crate::observed::{ConfFile, Contents, Leftover};
use crate::settings::Settings;

impl Plan {
    pub(super) fn leftover(
        &mut self,
        leftover: &Leftover,
        settings: &Settings,
        conf_files: &[ConfFile],
        decision: &Decision,
    ) {
        // Until that is certain, a missing configuration is repaired.
        if *leftover == Leftover::Record && !decision.another {
            return;
        }
        let path = settings.conflist();
        let before = conf_files.iter().take_while(|file| file.name != vcn::CONFLIST_FILE);
        let first = !before.into_iter().any(|file| matches!(file.contents, Contents::Plugins(_)));
        let none_is_meant = decision.decided_by == Signal::Setting;
        let reason = match leftover {
            Leftover::Record => return self.steps.push(Step::Forget { path }),
            _ if !decision.another => "no signal says for sure that the pod network is another",
            Leftover::Blocked(reason) => reason,
            Leftover::File(found) if none_is_meant || conf_files.iter().any(ConfFile::gives_another_network) => {
                let (found, decided_by) = (found.clone(), decision.decided_by);
                return self.steps.push(Step::RemoveConflist { path, found, first, decided_by });
            }
            Leftover::File(_) => {
                "there is no configuration of another pod network that a runtime could use (POD_NETWORK=none says that \
                 none is meant)"
            }
        };
        self.notes.push(Note::left_behind(decision.another, RuntimeUsage::of_first(first), reason));
    }
}
