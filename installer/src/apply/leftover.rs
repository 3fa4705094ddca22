//! Our configuration on a node of another pod network: a runtime that finds it starts pods with it, and no agent offers them
//! addresses.

use resident::logging::chain;

use super::Applier;
use crate::decide::{Decision, pods};
use crate::note::{Note, NoteKind};
use crate::observed::{ConfAt, ConfFile, is_ours};
use crate::signals::Signal;

impl Applier<'_> {
    /// It goes when another network is meant for sure, no pod uses our network, and pods have another network or shall have
    /// none.
    pub(super) fn leftover(&mut self, files: &[ConfFile]) {
        let Decision { another, decided_by, .. } = self.report.decision;
        let (path, known) = (self.settings.conflist(), self.record.conflist());
        let found = match ConfAt::settled(&path) {
            ConfAt::File(file) if is_ours(&file, known) => Ok(file.contents),
            _ if known.is_none() => return,
            ConfAt::Unread(why) => Err(format!("another program replaced it: {why}")),
            // Another program removed the file, or this program did and was killed. Until it is certain that another network is
            // meant, a missing configuration is repaired.
            ConfAt::File(_) | ConfAt::Nothing => {
                if another {
                    let text = format!("delete {} from the record", vcn::CONFLIST_FILE);
                    self.step(text, |applier| applier.forget(&path));
                }
                return;
            }
        };
        let pods = pods(self.settings).join("; ");
        let reason = match found {
            _ if !another => "no signal says for sure that the pod network is another".to_owned(),
            Err(why) => why,
            Ok(_) if !pods.is_empty() => pods,
            Ok(found) if decided_by == Signal::Setting || files.iter().any(ConfFile::gives_another_network) => {
                let text = format!("remove {}: the pod network is another ({decided_by})", path.display());
                if self.step(text, |applier| applier.remove(&path, &found)) {
                    return;
                }
                self.report.failures.last().map(|failure| chain(failure)).unwrap_or_default()
            }
            Ok(_) => {
                "there is no configuration of another pod network that a runtime could use (POD_NETWORK=none says that \
                      none is meant)"
                    .to_owned()
            }
        };
        let mut before = files.iter().take_while(|file| file.name != vcn::CONFLIST_FILE);
        let is_used = !before.any(|file| file.fault.is_none());
        let (file, what) = (vcn::CONFLIST_FILE, if is_used { "is what the runtime uses" } else { "is there" });
        let message = format!("{file} {what} although our pod network is not to be installed: {reason}");
        self.report.notes.push(Note::new(NoteKind::LeftBehind { another, is_used }, file, message));
    }
}
