//! The workspace as `cargo metadata` describes it: our packages, their dependencies as written, their targets.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;

/// Our own packages, in the order cargo lists them.
#[derive(Debug, Default, Deserialize)]
pub struct Workspace {
    /// The packages of the workspace.
    pub packages: Vec<Package>,
    /// The absolute root folder; package folders are given relative to it.
    #[serde(rename = "workspace_root")]
    pub root: PathBuf,
}

/// One package of the workspace.
#[derive(Debug, Deserialize)]
pub struct Package {
    /// The name of the package.
    pub name: String,
    /// Its purpose, in one line.
    #[serde(default)]
    pub description: Option<String>,
    /// The absolute path of its `Cargo.toml`.
    pub manifest_path: PathBuf,
    /// What it depends on, as written.
    #[serde(default)]
    pub dependencies: Vec<Dependency>,
    /// What cargo builds from it.
    #[serde(default)]
    pub targets: Vec<Target>,
}

/// One line of a dependency section.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    /// The package depended on.
    pub name: String,
    /// `None` for an ordinary dependency, else `build` or `dev`.
    pub kind: Option<String>,
    /// The folder of a dependency of our own; `None` for one from a registry.
    pub path: Option<PathBuf>,
}

/// One library, program, test, bench or build script.
#[derive(Debug, Deserialize)]
pub struct Target {
    /// The absolute path of its root file.
    pub src_path: PathBuf,
}

impl Workspace {
    /// Reads from cargo the workspace at `root`. Needs no network: dependencies are not resolved.
    ///
    /// # Errors
    /// When cargo fails (its message is already on standard error) or answers something else.
    pub fn load(root: &Path) -> anyhow::Result<Self> {
        let answer = cargo(root, &["metadata", "--no-deps", "--format-version", "1"])?;
        serde_json::from_slice(&answer).context("read the answer of cargo metadata")
    }

    /// The packages under `plugins/`.
    pub fn plugins(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.folder(package).starts_with("plugins"))
    }

    /// A package's folder relative to the root, such as `crates/vcn`.
    #[must_use]
    pub fn folder<'a>(&self, package: &'a Package) -> &'a Path {
        let folder = package.manifest_path.parent().unwrap_or(&package.manifest_path);
        folder.strip_prefix(&self.root).unwrap_or(folder)
    }
}

/// Runs cargo at `root` and gives back what it printed.
///
/// # Errors
/// When cargo cannot be started or fails.
pub fn cargo(root: &Path, args: &[&str]) -> anyhow::Result<Vec<u8>> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program)
        .args(args)
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("start cargo {}", args.join(" ")))?;
    if !output.status.success() {
        bail!("cargo {} failed ({})", args.join(" "), output.status);
    }
    Ok(output.stdout)
}
