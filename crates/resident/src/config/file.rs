//! The configuration file: lines of `KEY=value`.
//!
//! The same keys and the same values as in the environment, so that there is one way to write them: an OKE add-on's
//! key/value strings become such lines without any quoting, `kubectl create configmap --from-env-file` and systemd read
//! them too, and a value may be JSON, for nothing in it means anything to us. (YAML would read `yes`, `0x10` and `1e3` as
//! something else than the strings that were given.)

use std::path::Path;

use super::{Place, Problem, Said};

/// What a text says, key by key, and which of its lines say nothing that can be understood.
#[must_use]
pub fn parse(path: &Path, text: &str) -> (Vec<(String, Said)>, Vec<Problem>) {
    let (mut said, mut problems) = (Vec::<(String, Said)>::new(), Vec::new());
    for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let place = Place::File { path: path.to_owned(), line: number + 1 };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            let shown: String = line.chars().take(40).collect();
            problems.push(Problem::new(place, "", format!("{shown:?} is not KEY=value")));
            continue;
        };
        let (key, value) = (key.trim(), value.trim());
        if said.iter().any(|(other, _)| other == key) {
            problems.push(Problem::new(place, key, "is said twice"));
        } else if is_quoted(value) {
            let text = format!("is {value}: values are taken as they are, so leave the quotes out");
            problems.push(Problem::new(place, key, text));
        } else {
            said.push((key.to_owned(), Said { value: value.to_owned(), place }));
        }
    }
    (said, problems)
}

/// No key has a value that begins and ends like this.
fn is_quoted(value: &str) -> bool {
    ['"', '\''].into_iter().any(|quote| value.len() > 1 && value.starts_with(quote) && value.ends_with(quote))
}
