//! Files of commented keys, which are the reference of a configuration.

use std::fmt::Debug;
use std::path::Path;

use resident::config::keys::{Key, Keys};
use resident::config::{Layers, ProgramSettings, file};

/// What is wrong with a file of commented keys. As it is, it must set nothing. With every key's `#` removed, it must make the
/// same settings as no file at all.
///
/// # Errors
/// What is wrong, for a test to show.
pub fn check_commented<S: ProgramSettings + Debug>(text: &str, keys: &Keys) -> Result<(), String> {
    let set = pairs(text)?;
    if !set.is_empty() {
        return Err(format!("it sets {set:?}"));
    }
    let is_key =
        |line: &str| line.strip_prefix('#').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
    let uncommented = text.lines().map(|line| if is_key(line) { line.trim_start_matches('#') } else { line });
    let set = pairs(&uncommented.collect::<Vec<_>>().join("\n"))?;
    if !set.iter().map(|(key, _)| key.as_str()).eq(keys.iter().map(Key::name)) {
        return Err(format!("it has other keys than there are: {set:?}"));
    }
    let settings = |environment| {
        let read = Layers { environment, ..Layers::default() }.read(keys);
        read.settings::<S>(keys).map(|settings| format!("{settings:?}")).map_err(|problems| format!("{problems:?}"))
    };
    let (all, none) = (settings(set)?, settings(Vec::new())?);
    if all == none { Ok(()) } else { Err(format!("its defaults make {all}\nno file makes {none}")) }
}

/// The keys that a file sets, in its order.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let (given, problems) = file::parse(Path::new(""), text);
    let pairs = given.into_iter().map(|(key, given)| (key, given.value)).collect();
    if problems.is_empty() { Ok(pairs) } else { Err(format!("{problems:?}")) }
}
