//! docs/reading-order.md is true: its files exist, each once, and the pod path is as long as the page and promise P10 say.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{read, root};

/// The plugin and the crates that it links.
const POD_PATH: [&str; 8] = [
    "plugins/vcn-native",
    "crates/attachment",
    "crates/cni",
    "crates/datapath",
    "crates/ipam",
    "crates/netlink",
    "crates/telemetry",
    "crates/vcn",
];

/// Modules of these crates that only the agent uses.
const OF_THE_AGENT: [&str; 3] = ["devlink", "ethtool", "tap"];

/// Lines without tests that a person reads in a week, as P10 promises.
const MAX_LINES: usize = 17_000;

#[test]
fn files_of_the_reading_order_exist() {
    let page = read("docs/reading-order.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with('|')).collect();
    let linked: Vec<&str> = rows.iter().filter_map(|row| row.split_once("](../")?.1.split(')').next()).collect();
    assert_eq!(linked.len(), rows.len() - 2, "each row but the heading links a file");
    assert!((36..=44).contains(&linked.len()), "{} files", linked.len());
    let distinct: BTreeSet<&str> = linked.iter().copied().collect();
    assert_eq!(distinct.len(), linked.len(), "a file is listed twice");
    for file in linked {
        assert!(root().join(file).is_file(), "docs/reading-order.md names {file}");
        assert!(POD_PATH.iter().any(|folder| file.starts_with(folder)), "{file} is not of the pod path");
    }
}

#[test]
fn pod_path_is_as_long_as_promised() {
    let lines: usize = POD_PATH.iter().map(|folder| lines_below(&root().join(folder).join("src"))).sum();
    assert!(lines <= MAX_LINES, "the pod path has {lines} lines: remove some, or change P10 by a decision");
    for page in ["docs/reading-order.md", "docs/promises.md"] {
        let text = read(page);
        let number = text.split_once(" lines").unwrap().0.rsplit(' ').next().unwrap().replace(',', "");
        let difference = lines.abs_diff(number.parse().unwrap());
        assert!(difference <= 1000, "{page} says {number} lines, there are {lines}");
    }
}

/// What is left out of the count is not read for the pod path, because the other modules do not use it.
#[test]
fn pod_path_uses_no_module_of_the_agent() {
    let folders = POD_PATH.iter().filter(|folder| **folder != "crates/netlink");
    let users: Vec<PathBuf> =
        folders.flat_map(|folder| files_that_name_them(&root().join(folder).join("src"))).collect();
    assert_eq!(users, Vec::<PathBuf>::new());
}

fn files_that_name_them(folder: &Path) -> Vec<PathBuf> {
    let names = ["ethtool", "devlink", "Tap"];
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => files_that_name_them(&path),
            false => {
                let text = fs::read_to_string(&path).unwrap();
                let is_user = names.iter().any(|name| text.contains(name));
                is_user.then_some(path).into_iter().collect()
            }
        })
        .collect()
}

/// The lines of the Rust files below a folder, without tests and modules of the agent.
fn lines_below(folder: &Path) -> usize {
    let entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let count = |path: &PathBuf| {
        let is_left_out = path.file_stem().is_some_and(|name| {
            let name = name.to_string_lossy();
            name.ends_with("tests") || OF_THE_AGENT.contains(&&*name)
        });
        match path.extension() {
            _ if is_left_out => 0,
            None => lines_below(path),
            Some(_) => {
                fs::read_to_string(path).unwrap().split("#[cfg(test)]\nmod tests {").next().unwrap().lines().count()
            }
        }
    };
    entries.iter().map(count).sum()
}
