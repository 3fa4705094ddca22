//! The plugin under strace: which system calls a verb makes, and the same verb with one of them failing or deadly.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};

use host_harness::Traced;
use host_harness::{Call, Fault};
use serde_json::Value;

use crate::faults::scene::Scene;
use crate::node::{Node, PLUGIN};

/// One verb, as a runtime calls it.
pub(crate) struct Run<'a> {
    pub(crate) node: &'a Node,
    pub(crate) environment: Vec<(&'static str, String)>,
    pub(crate) conf: Value,
}

/// A system call and how it fails: an error number, or the death of the process.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) call: Call,
    pub(crate) error: &'static str,
}

pub(crate) struct Outcome {
    pub(crate) output: Output,
    /// Whether the run came to the call at all: which calls are made depends on what others do at the same time.
    pub(crate) hit: bool,
    /// Not to answer is excused where the answer itself could not be written, and where the thread could not come home
    /// from the pod's namespace.
    pub(crate) may_die: bool,
}

impl Run<'_> {
    pub(crate) fn plain(&self) -> Output {
        self.by(Command::new(PLUGIN))
    }

    /// Every call the program makes.
    pub(crate) fn calls(&self, below: Option<&'static str>) -> Vec<Call> {
        Call::all(PLUGIN, below, |strace| self.by(strace))
    }

    /// The same with the first call of a name being deadly, which only a child of the program makes: hit when it made none
    /// after it.
    pub(crate) fn with_a_child_killed_at(&self, name: &str) -> (Output, bool) {
        let traced = child_call(name, 1).inject(Fault::Kill, PLUGIN, |strace| self.by(strace));
        (traced.output, traced.made == 1)
    }

    /// The same with the second call of a name late by some seconds, which only a child of the program makes. Answers when all
    /// have ended.
    pub(crate) fn with_a_child_late_at_its_second(&self, name: &str, seconds: u32) -> Output {
        child_call(name, 2).inject(Fault::Late(seconds), PLUGIN, |strace| self.by(strace)).output
    }

    /// The same with one call failing, or deadly.
    pub(crate) fn with(&self, call: &Call, fault: Fault) -> Outcome {
        let Traced { output, hit, injected, .. } = call.inject(fault, PLUGIN, |strace| self.by(strace));
        let may_die = injected.iter().any(|line| line.contains(" write(1, ") || line.contains(" setns("));
        Outcome { output, hit, may_die }
    }

    fn by(&self, program: Command) -> Output {
        let environment: Vec<_> = self.environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.node.spawn(program, &environment, &self.conf).wait_with_output().unwrap()
    }
}

fn child_call(name: &str, nth: usize) -> Call {
    Call { name: name.to_owned(), nth, below: None, line: name.to_owned() }
}

/// Carries out every case, in scenes of their own, and says all of those that failed.
pub(crate) fn on_each(cases: &[Failure], run: impl Fn(&Scene, &Failure, &str) -> bool) {
    let (mut missed, mut failures) = (Vec::new(), Vec::new());
    // A scene has fresh addresses for so many, each twice.
    for cases in cases.chunks(50) {
        let mut scene = Scene::new();
        for failure in cases {
            let case = format!("{} at {}", failure.error, failure.call.line);
            // Once more where the run went another way: one in ten may, and there may be only two.
            let came = || run(&scene, failure, &case) || run(&scene, failure, &case);
            match catch_unwind(AssertUnwindSafe(came)) {
                Ok(true) => {}
                Ok(false) => missed.push(case),
                Err(_) => {
                    failures.push(case);
                    scene = Scene::new();
                }
            }
        }
        scene.assert_resident_works();
    }
    let all = cases.len();
    assert!(failures.is_empty(), "{} of {all} cases: {failures:#?}", failures.len());
    assert!(
        missed.len() * 10 <= all,
        "{} of {all} runs never made the call that was to fail: {missed:#?}",
        missed.len()
    );
}
