//! Our configuration on a node whose pod network is not ours (any more): a runtime that finds it starts pods by it, and
//! nobody offers them addresses. It goes when that is sure to help.

use super::{Leaving, Note, Plan, Step};
use crate::observed::{Leftover, There};
use crate::{ConfFile, Contents, Decision, Observed, Signal};

impl Plan {
    /// It goes where another network is meant for sure, no pod lives by ours, and pods have one without it or shall have none.
    pub(super) fn leftover(&mut self, leftover: &Leftover, observed: &Observed, decision: &Decision) {
        let There { path, target, found, stays } = match leftover {
            Leftover::There(there) => there,
            // Until that is known, what is gone is ours to heal.
            Leftover::Remembered if !decision.another => return,
            Leftover::Remembered => return self.steps.push(Step::Forget { name: vcn::CONFLIST_FILE.to_owned() }),
        };
        let before = observed.conf_files.iter().take_while(|file| file.name != vcn::CONFLIST_FILE);
        let first = !before.into_iter().any(|file| matches!(file.contents, Contents::Plugins(_)));
        let none_is_meant = decision.decided_by == Signal::Setting;
        let reason = if !decision.another {
            "nothing says for sure that the pod network is another".to_owned()
        } else if let Some(reason) = stays {
            reason.clone()
        } else if !none_is_meant && !observed.conf_files.iter().any(ConfFile::gives_another_network) {
            "there is no configuration of another pod network that a runtime could use (POD_NETWORK=none says that none \
             is meant)"
                .to_owned()
        } else {
            let (path, target, found) = (path.clone(), target.clone(), found.clone());
            let leaving = Leaving { path, target, found, first, decided_by: decision.decided_by };
            return self.steps.push(Step::TakeOut(Box::new(leaving)));
        };
        self.notes.push(Note::LeftBehind { another: decision.another, first, reason });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gives;

    fn file(name: &str, kind: &str) -> ConfFile {
        ConfFile { name: name.to_owned(), contents: Contents::Plugins(vec![kind.to_owned()]), called: Gives::Others }
    }

    fn planned(files: Vec<ConfFile>, stays: Option<&str>, decision: &Decision) -> (Vec<Step>, Vec<Note>) {
        let mut plan = Plan::nothing();
        let stays = stays.map(str::to_owned);
        let path = "/net.d/05-vcn-native.conflist";
        let leftover =
            Leftover::There(There { path: path.into(), target: path.into(), found: Some(b"{}".into()), stays });
        plan.leftover(&leftover, &Observed::of(files), decision);
        (plan.steps, plan.notes)
    }

    fn decision(another: bool, decided_by: Signal) -> Decision {
        Decision { install: false, another, oke: false, decided_by, against: vec![], reason: String::new() }
    }

    #[test]
    fn it_goes_only_where_another_network_is_meant_nobody_lives_by_ours_and_pods_have_one() {
        let ours = || file(vcn::CONFLIST_FILE, "vcn-native");
        let flannel = || file("10-flannel.conflist", "flannel");
        let (label, setting) = (decision(true, Signal::NodeLabel), decision(true, Signal::Setting));
        let goes = |files, stays, decision: &Decision| match planned(files, stays, decision) {
            (steps, notes) if notes.is_empty() => {
                let decided_by = decision.decided_by;
                let path = "/net.d/05-vcn-native.conflist";
                let (path, target) = (path.into(), path.into());
                let leaving = Leaving { path, target, found: Some(b"{}".into()), first: true, decided_by };
                assert_eq!(steps, [Step::TakeOut(Box::new(leaving))]);
                Ok(())
            }
            (steps, notes) => {
                assert_eq!(steps, []);
                let [Note::LeftBehind { another, first, reason }] = &notes[..] else { panic!("{notes:?}") };
                assert_eq!(*another, decision.another);
                Err((*first, reason.split(" (").next().unwrap().to_owned()))
            }
        };
        let no_other = "there is no configuration of another pod network that a runtime could use".to_owned();
        let unsure = "nothing says for sure that the pod network is another".to_owned();
        assert_eq!(goes(vec![ours(), flannel()], None, &label), Ok(()));
        assert_eq!(goes(vec![ours()], None, &setting), Ok(()));
        assert_eq!(goes(vec![ours()], None, &label), Err((true, no_other.clone())));
        let meta = vec![file("00-multus.conf", "multus-shim"), ours(), file("99-loopback.conf", "loopback")];
        assert_eq!(goes(meta, None, &label), Err((false, no_other.clone())), "it calls ours");
        let refused = Contents::Refused(vec!["flannel".to_owned()], "it has no name".to_owned());
        let refused = ConfFile { name: "04-flannel.conflist".to_owned(), contents: refused, called: Gives::Others };
        assert_eq!(goes(vec![refused, ours()], None, &label), Err((true, no_other)));
        assert_eq!(goes(vec![ours(), flannel()], Some("pods"), &setting), Err((true, "pods".to_owned())));
        let silence = decision(false, Signal::Nothing);
        assert_eq!(goes(vec![ours(), flannel()], None, &silence), Err((true, unsure)));
    }
}
