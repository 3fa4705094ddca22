//! Our configuration on a node of another pod network: a runtime that finds it starts pods with it, and no agent offers
//! them addresses. It goes when another network is meant for sure, no pod uses our network, and pods have another network or shall
//! have none.

use super::{ConflistRemoval, Note, Plan, RuntimeUsage, Step};
use crate::observed::{ConfFile, Contents, Leftover, OurConflist};
use crate::{Decision, Settings, Signal};

impl Plan {
    pub(super) fn leftover(
        &mut self,
        leftover: &Leftover,
        settings: &Settings,
        conf_files: &[ConfFile],
        decision: &Decision,
    ) {
        let file = match leftover {
            Leftover::File(file) => file,
            // Until that is certain, a missing configuration is repaired.
            Leftover::Record if !decision.another => return,
            Leftover::Record => return self.steps.push(Step::Forget { path: settings.conflist() }),
        };
        let OurConflist { path, target, found, blocked } = file;
        let before = conf_files.iter().take_while(|file| file.name != vcn::CONFLIST_FILE);
        let first = !before.into_iter().any(|file| matches!(file.contents, Contents::Plugins(_)));
        let none_is_meant = decision.decided_by == Signal::Setting;
        let reason = match blocked {
            _ if !decision.another => "no signal says for sure that the pod network is another",
            Some(reason) => reason,
            None if none_is_meant || conf_files.iter().any(ConfFile::gives_another_network) => {
                let (path, target, found) = (path.clone(), target.clone(), found.clone());
                let removing = ConflistRemoval { path, target, found, first, decided_by: decision.decided_by };
                return self.steps.push(Step::RemoveConflist(Box::new(removing)));
            }
            None => {
                "there is no configuration of another pod network that a runtime could use (POD_NETWORK=none says that \
                 none is meant)"
            }
        };
        self.notes.push(Note::left_behind(decision.another, RuntimeUsage::of_first(first), reason));
    }
}
