//! Failed steps, summed up: ten thousand failures of one cause are one log line and one Event. Pure.

use std::collections::BTreeMap;
use std::fmt;

use resident::logging::chain;

use crate::cluster::request::RequestError;
use crate::profile::plan::step::Step;

/// The failures of one profile in one reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure<'s> {
    failed: usize,
    all: usize,
    /// That of the first object by name: the order of answers is random.
    object: &'s str,
    first: String,
}

/// By profile; failures without a profile are under `None`.
pub(crate) fn failures<'s>(
    outcomes: &[(&'s Step, Result<(), RequestError>)],
) -> BTreeMap<Option<&'s str>, Failure<'s>> {
    let mut steps: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for (step, _) in outcomes {
        *steps.entry(step.profile()).or_default() += 1;
    }
    let mut failures: BTreeMap<Option<&str>, Failure<'s>> = BTreeMap::new();
    for (step, outcome) in outcomes {
        let Err(error) = outcome else { continue };
        let (profile, object) = (step.profile(), step.object());
        let failure = failures.entry(profile).or_insert_with(|| Failure {
            failed: 0,
            all: steps.get(&profile).copied().unwrap_or_default(),
            object,
            first: String::new(),
        });
        failure.failed += 1;
        if object <= failure.object {
            failure.object = object;
            failure.first = format!("{step}: {}", chain(error));
        }
    }
    failures
}

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} steps failed; first: {}", self.failed, self.all, self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::plan::step::Profile;

    fn add_finalizer(name: &str) -> Step {
        Step::AddFinalizer(Profile { name: name.to_owned(), version: None, finalizers: Vec::new() })
    }

    fn delete(object: &str, profile: &str) -> Step {
        use crate::profile::plan::step::Target;
        use crate::profile::select::fate::RemovalReason;
        let object = Target { name: object.to_owned(), uid: None, version: None };
        Step::Delete { object, why: RemovalReason::NotInProfile(profile.to_owned()) }
    }

    #[test]
    fn failures_of_a_profile_are_summed_up() {
        let steps =
            [delete("b.x", "b"), delete("a.2", "a"), delete("a.1", "a"), delete("a.3", "a"), add_finalizer("c")];
        let outcome = |step| match step {
            Step::AddFinalizer(_) => Ok(()),
            Step::Delete { object, .. } if object.name == "a.3" => Ok(()),
            _ => Err(RequestError::TimedOut),
        };
        let mut outcomes: Vec<_> = steps.iter().map(|step| (step, outcome(step.clone()))).collect();
        for _ in 0..2 {
            let reported: Vec<(Option<&str>, String)> =
                failures(&outcomes).into_iter().map(|(profile, failure)| (profile, failure.to_string())).collect();
            let text = |first: &str, object: &str, profile: &str| {
                format!(
                    "{first} steps failed; first: delete VnicAttachment {object}: VnicProfile {profile} no longer has \
                     this VNIC: no answer from the API server within 30s"
                )
            };
            assert_eq!(reported, [(Some("a"), text("2 of 3", "a.1", "a")), (Some("b"), text("1 of 1", "b.x", "b"))]);
            outcomes.reverse();
        }
    }
}
