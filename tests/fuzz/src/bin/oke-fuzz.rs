//! One target under libFuzzer: `OKE_FUZZ_TARGET=route oke-fuzz -runs=10000000 NEW_CORPUS CORPUS`. Started by tests/fuzz/run.
//! With OKE_FUZZ_SEEDS=FOLDER it first writes the target's seeds there.

#![no_main]
#![expect(clippy::panic, reason = "main has no caller that an error could be returned to")]

use std::sync::OnceLock;

use fuzz::Target;
use libfuzzer_sys::fuzz_target;

static TARGET: OnceLock<Target> = OnceLock::new();

fuzz_target!(init: {
    let name = std::env::var("OKE_FUZZ_TARGET").unwrap_or_default();
    let Some(target) = fuzz::named(&name) else {
        let names: Vec<_> = fuzz::all().iter().map(|target| target.name).collect();
        panic!("OKE_FUZZ_TARGET is {name:?}; targets are {}", names.join(", "));
    };
    if let Some(folder) = std::env::var_os("OKE_FUZZ_SEEDS") {
        for (number, seed) in (target.seeds)().iter().enumerate() {
            let written = std::fs::write(std::path::Path::new(&folder).join(format!("seed-{number}")), seed);
            assert!(written.is_ok(), "{written:?}");
        }
    }
    let _ = TARGET.set(target);
}, |input: &[u8]| {
    if let Some(target) = TARGET.get() {
        (target.run)(input);
    }
});
