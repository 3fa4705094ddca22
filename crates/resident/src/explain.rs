//! Keys and settings as text, as JSON, as the table of docs/configuration.md, and as a commented configuration file.

use std::fmt::Write as _;

use serde::Serialize;

use crate::args::{ConfigArgs, Format};
use crate::config::keys::{Key, Keys};
use crate::config::{Layers, ProgramSettings, Values, read_file};

/// The description of a key, as it is printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyDescription {
    key: String,
    unit: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<String>,
    meaning: String,
}

/// A key with its value and the origin of that value.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Set {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    by: String,
}

/// The output of `config`, and whether the configuration is valid.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn render<S: ProgramSettings>(
    keys: &Keys,
    layers: &Layers,
    args: &ConfigArgs,
) -> Result<(String, bool), serde_json::Error> {
    let json = args.output.output == Format::Json;
    if args.explain {
        let text = if json { in_json(&descriptions(keys))? } else { text(keys) };
        return Ok((text, true));
    }
    let read = match &args.check {
        Some(file) => read_file(keys, file),
        None => layers.read(keys),
    };
    let values = read.values.clone();
    let problems = read.settings::<S>(keys).map(drop).err().unwrap_or_default();
    let right = problems.is_empty();
    let text = match &args.check {
        _ if json && !right => in_json(&serde_json::json!({ "problems": problems }))?,
        _ if json => in_json(&serde_json::json!({ "problems": [], "set": set(keys, &values) }))?,
        _ if !right => {
            let lines: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
            format!("{lines}\n{} problem(s)\n", problems.len())
        }
        Some(file) => format!("{}: valid, {} key(s)\n", file.display(), values.len()),
        None => set_text(keys, &values),
    };
    Ok((text, right))
}

/// The descriptions of all keys, in their order.
pub fn descriptions(keys: &Keys) -> Vec<KeyDescription> {
    let description = |key: &Key| KeyDescription {
        key: key.name().to_owned(),
        unit: key.unit(),
        values: key.values(),
        default: key.default(),
        meaning: key.meaning(),
    };
    keys.iter().map(description).collect()
}

/// All keys with their values, in their order.
pub fn set(keys: &Keys, values: &Values) -> Vec<Set> {
    let set = |key: &Key| match values.get(key.name()) {
        Some(given) => {
            Set { key: key.name().to_owned(), value: Some(given.value.clone()), by: given.place.to_string() }
        }
        None => Set { key: key.name().to_owned(), value: key.default(), by: "default".to_owned() },
    };
    keys.iter().map(set).collect()
}

/// Every key, for people.
pub fn text(keys: &Keys) -> String {
    let mut text = String::from(
        "Set by flags (the key in lower case, --log-level), the environment, or KEY=value in the configuration file, in this order of precedence.\n",
    );
    for KeyDescription { key, unit, values, default, meaning } in descriptions(keys) {
        let unit = if values.is_empty() { unit } else { values.join("|") };
        let _ = writeln!(text, "\n{key}={unit}");
        let default = default.unwrap_or_else(|| "none".to_owned());
        let _ = writeln!(text, "    default: {default}");
        for line in folded(&meaning) {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}

/// The settings, for people.
pub fn set_text(keys: &Keys, values: &Values) -> String {
    let set = set(keys, values);
    let pair = |set: &Set| format!("{}={}", set.key, set.value.as_deref().unwrap_or_default());
    let width = set.iter().map(|set| pair(set).len()).max().unwrap_or(0);
    let mut text = String::new();
    for set in &set {
        let _ = writeln!(text, "{:width$}  {}", pair(set), set.by);
    }
    text
}

/// Every key, for docs/configuration.md.
pub fn markdown(keys: &Keys) -> String {
    let mut text = String::from("| key | value, default | meaning |\n|---|---|---|\n");
    for KeyDescription { key, unit, values, default, meaning } in descriptions(keys) {
        let unit = if values.is_empty() { unit } else { values.join("|") }.replace('|', " \\| ");
        let default = default.map_or_else(|| "–".to_owned(), |default| format!("`{default}`"));
        let _ = writeln!(text, "| `{key}` | {unit}<br>{default} | {meaning} |");
    }
    text
}

/// A configuration file that sets nothing: every key as a comment, with its default, below its meaning in one sentence. A key
/// is set by removing the `#` in front of it.
pub fn commented(program: &str, keys: &Keys) -> String {
    let mut text = format!(
        "# Configuration of {program}: every key with its default, as a comment. As it is, this file sets nothing.\n\
         # To set a key, remove the # in front of it. Flags and the environment of the manifest outrank this file.\n\
         # Check a file before you roll it out: {program} config --check FILE\n"
    );
    for KeyDescription { key, unit, values, default, meaning, .. } in descriptions(keys) {
        let unit = if values.is_empty() { unit } else { values.join("|") };
        let first = meaning.split_once(". ").map_or(meaning.as_str(), |(first, _)| first);
        let _ = writeln!(text);
        for line in folded(&format!("{first} ({unit})")) {
            let _ = writeln!(text, "# {line}");
        }
        let _ = writeln!(text, "#{key}={}", default.unwrap_or_default());
    }
    text
}

fn in_json(value: &impl Serialize) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(value).map(|text| text + "\n")
}

/// Lines that fit a terminal.
fn folded(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let full = lines.last().is_some_and(|line| line.len() + word.len() > 100);
        if full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}
