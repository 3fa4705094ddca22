//! Loading kernel modules with what they depend on, as `modprobe` would; the guest has none.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};

/// Loads a module from a directory of modules. One that is loaded or built in already is no error.
pub(crate) fn load(directory: &Path, module: &str) -> Result<()> {
    let index = directory.join("modules.dep");
    let text = fs::read_to_string(&index).with_context(|| format!("read {}", index.display()))?;
    let known = dependencies(&text);
    let Some(files) = known.get(module) else {
        let built_in = fs::read_to_string(directory.join("modules.builtin")).unwrap_or_default();
        anyhow::ensure!(built_in.lines().any(|path| name_of(path) == module), "the guest's kernel does not have it");
        return Ok(());
    };
    for file in files {
        insert(&directory.join(file)).with_context(|| format!("insert {file}"))?;
    }
    Ok(())
}

/// Each module's files, in the order they must be inserted. (`modules.dep` lists the deepest dependency last.)
fn dependencies(text: &str) -> HashMap<String, Vec<&str>> {
    let entries = text.lines().filter_map(|line| line.split_once(':'));
    entries
        .map(|(file, needs)| {
            let mut files: Vec<&str> = needs.split_whitespace().rev().collect();
            files.push(file);
            (name_of(file), files)
        })
        .collect()
}

/// `kernel/net/8021q/8021q.ko` is module `8021q`; dashes and underscores are the same.
fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

fn insert(path: &Path) -> Result<()> {
    let file = fs::File::open(path)?;
    // Some modules make a device as soon as they are loaded; tests make their own.
    let parameters = match name_of(&path.to_string_lossy()).as_str() {
        "dummy" => c"numdummies=0",
        "ifb" => c"numifbs=0",
        "bonding" => c"max_bonds=0",
        _ => c"",
    };
    match finit_module(&file, parameters, ModuleInitFlags::empty()) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_before_what_needs_them() {
        let known = dependencies("kernel/a-b.ko: kernel/c.ko kernel/d.ko\nkernel/d.ko:\n");
        assert_eq!(known["a_b"], ["kernel/d.ko", "kernel/c.ko", "kernel/a-b.ko"]);
        assert_eq!(known["d"], ["kernel/d.ko"]);
    }
}
