//! The controller uses every reason that docs/resources.md explains.

use std::fs;
use std::path::Path;

use api::{AttachmentReason, ProfileReason, Reason};

/// The controller's code, without its tests.
fn code(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("tests") || path.ends_with("tests.rs") {
            continue;
        }
        if path.is_dir() {
            text.push_str(&code(&path));
        } else {
            let file = fs::read_to_string(&path).unwrap();
            text.push_str(file.split("#[cfg(test)]").next().unwrap());
        }
    }
    text
}

#[test]
fn each_explained_reason_is_used() {
    let code = code(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let profile = ProfileReason::ALL.iter().map(|reason| reason.as_str());
    let mut never: Vec<&str> = profile.filter(|word| !code.contains(&format!("ProfileReason::{word}"))).collect();
    let others = code.replace("ProfileReason::", "");
    let given = |word: &str| others.contains(&format!("Reason::{word}")) || others.contains(&format!("R::{word}"));
    never.extend(AttachmentReason::ALL.iter().map(|reason| reason.as_str()).filter(|word| !given(word)));
    assert_eq!(never, [""; 0]);
}
