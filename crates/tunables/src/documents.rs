//! docs/node-policies.md has the keys as the code has them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use api::node_policy::{FileGrant, HOST_FOLDERS, HostFolder, HostUnit, SYSTEMD_FOLDER};

use crate::keys::{KEYS, is_of_agent};
use crate::link_keys;
use crate::value::Form;

fn with(document: &str, part: &str, text: &str) -> String {
    let (begin, end) = (format!("<!-- begin: {part} -->\n"), format!("<!-- end: {part} -->"));
    let (before, rest) = document.split_once(&begin).unwrap();
    let (_, after) = rest.split_once(&end).unwrap();
    format!("{before}{begin}{text}{end}{after}")
}

fn values(form: Form) -> String {
    match form {
        Form::Number(least, most) => format!("{least} to {most}"),
        Form::ZeroOr(least, most) => format!("0, or {least} to {most}"),
        Form::Numbers(count, least) => format!("{count} ascending numbers from {least} on"),
        Form::PortRange => "2 ports from 1024 on, at least 10000 apart".to_owned(),
        Form::Word => "a word".to_owned(),
        Form::Ports => "ports and ranges, with commas".to_owned(),
        Form::Any => "any".to_owned(),
    }
}

fn keys() -> String {
    let mut table = "| key | scope | values |\n|---|---|---|\n".to_owned();
    for key in KEYS {
        writeln!(table, "| `{}` | {} | {} |", key.name, key.scope, values(key.form)).unwrap();
    }
    table
}

fn keys_of_links() -> String {
    let written = |key: String| match is_of_agent(key.rsplit('.').next().unwrap()) {
        true => format!("*`{key}`*"),
        false => format!("`{key}`"),
    };
    let mut all: Vec<String> = link_keys::all().collect();
    all.sort();
    let written: Vec<String> = all.into_iter().map(written).collect();
    format!("{}\n", written.join(",\n"))
}

fn folders() -> String {
    let mut table = "| folder | permit | read by |\n|---|---|---|\n".to_owned();
    let row = |table: &mut String, path: &str, grant: FileGrant, unit: &str| {
        writeln!(table, "| `{path}` | `{grant}` | {unit} |").unwrap();
    };
    for HostFolder { path, suffix, grant, unit } in HOST_FOLDERS {
        let unit = unit.map_or("each program, or the next boot".to_owned(), |unit| format!("`{unit}`"));
        row(&mut table, &format!("{path}/NAME{suffix}"), *grant, &unit);
    }
    let units: Vec<String> = HostUnit::ALL.iter().map(|unit| format!("`{unit}`")).collect();
    let path = format!("{SYSTEMD_FOLDER}/UNIT.d/NAME.conf");
    row(&mut table, &path, FileGrant::HostCode, &format!("systemd, for one of {}", units.join(", ")));
    table
}

#[test]
fn document_has_the_keys_with_their_scope() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/node-policies.md");
    let found = fs::read_to_string(&path).unwrap();
    let expected = with(&with(&found, "keys", &keys()), "link keys", &keys_of_links());
    let expected = with(&expected, "folders", &folders());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &expected).unwrap();
    } else {
        assert!(found == expected, "docs/node-policies.md is not what the code says: UPDATE_DOCS=1 writes it");
    }
}
