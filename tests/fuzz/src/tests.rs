//! Every target with its corpus: as it is, and cut at every offset. None of our readers may panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Target, all, corpus};

fn inputs(target: &Target) -> Vec<(String, Vec<u8>)> {
    let found = corpus::inputs(target).unwrap_or_else(|error| panic!("the corpus of {}: {error}", target.name));
    assert!(found.iter().any(|(name, _)| !name.starts_with("seed ")), "{} has no file in its corpus", target.name);
    found
}

/// Runs the target; a panic becomes one that says with what.
fn fed(target: &Target, name: &str, input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err() {
        panic!("{} does not bear {name}: b\"{}\"", target.name, input.escape_ascii());
    }
}

#[test]
fn every_target_bears_its_corpus_and_every_beginning_of_it() {
    for target in all() {
        for (name, input) in inputs(&target) {
            for end in 0..=input.len() {
                let beginning = input.get(..end).unwrap_or_default();
                fed(&target, &format!("{name} cut at {end}"), beginning);
            }
        }
    }
}

#[test]
fn every_folder_of_the_corpus_belongs_to_a_target() {
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus")).expect("the corpus") {
        let name = entry.expect("an entry").file_name();
        assert!(crate::named(&name.to_string_lossy()).is_some(), "{name:?} is not a target");
    }
}

#[test]
fn the_corpus_stays_small() {
    let size: usize = all().iter().flat_map(inputs).map(|(_, input)| input.len()).sum();
    assert!(size < 128 << 10, "{size} bytes: keep one input per reader's branch, not what a fuzzer collected");
}
