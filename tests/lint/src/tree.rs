//! The files of the checkout that checks look at, by their path relative to the root.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Folders that hold nothing we wrote: build results and git's own.
const SKIPPED: &[&str] = &["target", ".git", ".build", "node_modules"];

/// Text files by relative path. Others (`None`) are known by name only.
#[derive(Debug, Default)]
pub struct Tree {
    files: BTreeMap<PathBuf, Option<String>>,
}

impl Tree {
    /// Reads every file below `root`, build folders left out. Rust, Markdown and manifest files with their text.
    ///
    /// # Errors
    /// When a folder or file cannot be read.
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let mut tree = Self::default();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
                let entry = entry.with_context(|| format!("list {}", folder.display()))?;
                let path = entry.path();
                let skipped = SKIPPED.iter().any(|name| entry.file_name() == *name);
                if entry.file_type().with_context(|| format!("look at {}", path.display()))?.is_dir() {
                    if !skipped {
                        folders.push(path);
                    }
                    continue;
                }
                let relative = path.strip_prefix(root).unwrap_or(&path).to_owned();
                let text = if is_text(&path) {
                    Some(fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?)
                } else {
                    None
                };
                tree.files.insert(relative, text);
            }
        }
        Ok(tree)
    }

    /// A tree of these files, for tests.
    #[must_use]
    pub fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| (path.into(), Some((*text).to_owned()))).collect() }
    }

    /// The paths of all files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.keys().map(PathBuf::as_path)
    }

    /// Path and text of the files with this extension.
    pub fn with_extension<'a>(&'a self, extension: &'a str) -> impl Iterator<Item = (&'a Path, &'a str)> {
        self.files
            .iter()
            .filter(move |(path, _)| path.extension().is_some_and(|known| known == extension))
            .filter_map(|(path, text)| Some((path.as_path(), text.as_deref()?)))
    }

    /// The text of a file, if it was read.
    #[must_use]
    pub fn text(&self, path: &Path) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// Whether there is such a file, or a folder with files in it. The empty path is the root.
    #[must_use]
    pub fn has(&self, path: &Path) -> bool {
        self.files.contains_key(path)
            || self.files.range(path.to_owned()..).next().is_some_and(|(file, _)| file.starts_with(path))
            || path.as_os_str().is_empty()
    }
}

fn is_text(path: &Path) -> bool {
    path.extension().is_some_and(|extension| ["rs", "md", "toml"].iter().any(|known| extension == *known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_folders_are_left_out_and_folders_are_known() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [("a/b.rs", "x"), ("a/c.bin", "y"), ("target/d.rs", "z"), ("README.md", "r")] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let tree = Tree::read(root.path()).unwrap();
        assert_eq!(tree.files().collect::<Vec<_>>(), ["README.md", "a/b.rs", "a/c.bin"].map(Path::new));
        assert_eq!(tree.text(Path::new("a/b.rs")), Some("x"));
        assert!(tree.has(Path::new("a")) && tree.has(Path::new("a/c.bin")) && !tree.has(Path::new("a/b")));
    }
}
