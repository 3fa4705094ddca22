//! Trees of /proc and /sys from the compact descriptions in `tests/recorded/accelerators`, whose README has the format.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The size of a configuration space that every program may read.
const CONFIG_BYTES: usize = 64;

type Parts<'a> = BTreeMap<&'a str, (Vec<&'a str>, Vec<&'a str>)>;

/// Writes the tree of a description, such as `bm-gpu-h100-8`, over what a folder has.
pub fn write_accelerators(name: &str, folder: &Path) {
    let descriptions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../recorded/accelerators");
    let text = |name: &str| fs::read_to_string(descriptions.join(name).with_extension("txt")).unwrap();
    let (shared, own) = (text("parts"), text(name));
    let tree = Tree { root: folder.to_owned(), parts: parts(&shared) };
    own.lines().filter(|line| is_content(line)).for_each(|line| tree.line(line));
}

struct Tree<'a> {
    root: PathBuf,
    parts: Parts<'a>,
}

impl Tree<'_> {
    fn line(&self, line: &str) {
        if let Some(used) = line.strip_prefix("+ ") {
            let words: Vec<String> = used.split(' ').map(str::to_owned).collect();
            several(&words.iter().map(|word| values(word)).collect::<Vec<_>>())
                .iter()
                .for_each(|words| self.part(words));
        } else if let Some((path, target)) = line.split_once(" -> ") {
            let made = symlink(target, self.place(path));
            assert!(made.is_ok(), "{path}: {made:?}");
        } else if let Some((path, hex)) = line.split_once(" = ") {
            let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            let mut bytes: Vec<u8> = hex.as_bytes().chunks(2).map(byte).collect();
            bytes.resize(CONFIG_BYTES, 0);
            fs::write(self.place(path), bytes).unwrap();
        } else {
            let (paths, text) = line.split_once("  ").unwrap_or((line, ""));
            let text =
                if text.is_empty() { String::new() } else { text.replace("\\n", "\n").replace("\\t", "\t") + "\n" };
            let (folder, names) = paths.rsplit_once('/').unwrap();
            values(names).iter().for_each(|name| fs::write(self.place(&format!("{folder}/{name}")), &text).unwrap());
        }
    }

    fn part(&self, words: &[String]) {
        let (name, values) = words.split_first().unwrap();
        let found = self.parts.get(name.as_str());
        assert!(found.is_some(), "no part {name}");
        let (names, lines) = found.unwrap();
        assert_eq!(names.len(), values.len(), "{words:?}");
        for line in lines {
            let is_use = line.starts_with("+ ");
            let replaced = names.iter().zip(values).fold((*line).to_owned(), |line, (name, value)| {
                let value = if is_use { value.clone() } else { value.replace('~', " ") };
                line.replace(&format!("{{{name}}}"), &value)
            });
            self.line(&replaced);
        }
    }

    /// A path in the tree; creates its folder.
    fn place(&self, path: &str) -> PathBuf {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }
}

fn parts(text: &str) -> Parts<'_> {
    let mut parts = Parts::new();
    let mut current = "";
    for line in text.lines().filter(|line| is_content(line)) {
        if let Some(head) = line.strip_prefix('[') {
            let mut words = head.trim_end_matches(']').split(' ');
            current = words.next().unwrap();
            parts.insert(current, (words.collect(), Vec::new()));
        } else {
            parts.get_mut(current).unwrap().1.push(line);
        }
    }
    parts
}

fn is_content(line: &str) -> bool {
    !line.is_empty() && !line.starts_with('#')
}

/// `a,b` and `0..3`.
fn values(word: &str) -> Vec<String> {
    let range = word.split_once("..").and_then(|(from, to)| Some((from.parse::<u16>().ok()?, to.parse().ok()?)));
    match range {
        Some((from, to)) => (from..=to).map(|number| number.to_string()).collect(),
        None => word.split(',').map(str::to_owned).collect(),
    }
}

/// One of each, in every combination.
fn several(words: &[Vec<String>]) -> Vec<Vec<String>> {
    words.iter().fold(vec![Vec::new()], |heads, values| {
        let longer = |head: &Vec<String>| -> Vec<Vec<String>> {
            values.iter().map(|value| [head.as_slice(), std::slice::from_ref(value)].concat()).collect()
        };
        heads.iter().flat_map(longer).collect()
    })
}
