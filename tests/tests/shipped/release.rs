//! `.ci/release`: what it refuses, and what it writes, in a small repository with an image build that takes no time.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::{read, root};

/// An image of two files: what a registry needs is the digest of the manifest.
const BUILD: &str = r#"#!/bin/bash
set -e
mkdir -p .build/image && cd .build/image
echo '{"manifests": [{"digest": "sha256:5ca1ab1e"}]}' >index.json
tar --create --file "oke-node-manager-1.2.3-$1.tar" index.json
echo '{}' >"oke-node-manager-1.2.3-$1.cdx.json"
"#;

struct Repository(TempDir);

impl Repository {
    fn new() -> Self {
        let repository = Self(tempfile::tempdir().unwrap());
        let changelog = "# Changelog\n\n## 1.2.3 (2026-12-01)\n\n- One.\n\n## 1.2.2\n\n- Older.\n";
        for (path, text) in [
            (".ci/release", read(".ci/release")),
            ("image/provenance", read("image/provenance")),
            ("image/index", read("image/index")),
            ("image/assemble", read("image/assemble")),
            ("image/build", BUILD.to_owned()),
            ("image/kubectl", "#!/bin/sh\necho \"$1\" >\"$2\"\n".to_owned()),
            ("Cargo.toml", "[workspace.package]\nversion = \"1.2.3\"\n\n[profile.release]\n".to_owned()),
            ("Cargo.lock", String::new()),
            ("CHANGELOG.md", changelog.to_owned()),
            (".gitignore", "/.build\n".to_owned()),
            ("manifests/base/agent.conf", "#A=\n".to_owned()),
            ("manifests/chart/Chart.yaml", "name: oke-node-manager\n".to_owned()),
        ] {
            let path = repository.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        std::os::unix::fs::symlink("../base", repository.path().join("manifests/chart/base")).unwrap();
        repository.git(&["init", "--quiet"]);
        repository.commit();
        repository
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, program: &str, arguments: &[&str]) -> (bool, String) {
        let who = [
            ("GIT_AUTHOR_NAME", "a"),
            ("GIT_AUTHOR_EMAIL", "a@b"),
            ("GIT_COMMITTER_NAME", "a"),
            ("GIT_COMMITTER_EMAIL", "a@b"),
        ];
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.path()).envs(who).env("ARCHES", "amd64 arm64").env_remove("NO_TAG");
        // A git hook sets these, and git would work in this repository then.
        command.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").env_remove("GIT_INDEX_FILE");
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    fn git(&self, arguments: &[&str]) -> String {
        let (succeeded, text) = self.run("git", arguments);
        assert!(succeeded, "{arguments:?}: {text}");
        text.trim().to_owned()
    }

    fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", "Change"]);
    }

    fn release(&self) -> (bool, String) {
        self.run(self.path().join(".ci/release").to_str().unwrap(), &[])
    }

    fn refuses(&self, reason: &str) {
        let (released, text) = self.release();
        assert!(!released && text.contains(reason), "{text}");
        assert!(!self.path().join(".build/release").exists());
    }
}

#[test]
fn release_refuses_changes_and_a_missing_section() {
    let repository = Repository::new();
    fs::write(repository.path().join("new"), "").unwrap();
    repository.refuses("the tree has changes");
    fs::write(repository.path().join("CHANGELOG.md"), "# Changelog\n\n## Unreleased\n\n## 1.2.30\n").unwrap();
    repository.commit();
    repository.refuses("CHANGELOG.md has no section '## 1.2.3'");
}

#[test]
fn release_refuses_a_development_version() {
    let repository = Repository::new();
    fs::write(repository.path().join("Cargo.toml"), "[workspace.package]\nversion = \"1.2.3-dev\"\n").unwrap();
    repository.commit();
    repository.refuses("1.2.3-dev is a development version");
}

/// `make upgrade` builds it, also in a clone without tags.
#[test]
fn last_release_is_recorded_with_its_commit() {
    let list = read(".ci/releases");
    let (version, revision) = list.lines().last().unwrap().split_once(' ').unwrap();
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(root()).env_remove("GIT_DIR").env_remove("GIT_WORK_TREE");
        let output = command.env_remove("GIT_INDEX_FILE").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let built = git(&["show", &format!("{revision}:Cargo.toml")]);
    assert!(built.contains(&format!("version = \"{version}\"\n")), "{revision} is not of {version}");
    git(&["merge-base", "--is-ancestor", revision, "HEAD"]);
    let released = read("CHANGELOG.md").lines().find_map(|line| {
        line.strip_prefix("## ").filter(|it| *it != "Unreleased").map(|it| it.split(' ').next().unwrap().to_owned())
    });
    assert_eq!(released.as_deref(), Some(version), "the newest section of a release");
    // A build of main is never taken for that release.
    assert_ne!(env!("CARGO_PKG_VERSION"), version);
}

#[test]
fn release_writes_checksums_provenance_and_the_tag() {
    let repository = Repository::new();
    let (released, text) = repository.release();
    assert!(released, "{text}");
    let revision = repository.git(&["rev-parse", "HEAD"]);
    assert_eq!(repository.git(&["rev-parse", "v1.2.3^{commit}"]), revision);
    let folder = repository.path().join(".build/release");
    let (right, sums) =
        repository.run("sh", &["-c", "cd .build/release && sha256sum --check SHA256SUMS && wc -l <SHA256SUMS"]);
    assert!(right && sums.ends_with("12\n"), "{sums}");
    assert_eq!(fs::read_to_string(folder.join("NOTES.md")).unwrap().trim(), "- One.");
    let (_, chart) = repository.run("tar", &["--list", "--file", ".build/release/oke-node-manager-chart-1.2.3.tgz"]);
    assert!(
        chart.contains("oke-node-manager/Chart.yaml\n") && chart.contains("oke-node-manager/base/agent.conf\n"),
        "{chart}"
    );

    let statement: Value = serde_json::from_str(&fs::read_to_string(folder.join("provenance.json")).unwrap()).unwrap();
    assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
    let source = &statement["predicate"]["buildDefinition"]["resolvedDependencies"][0];
    assert_eq!(source["digest"]["gitCommit"], revision.as_str());
    let subjects = statement["subject"].as_array().unwrap();
    let named =
        |name: &str| subjects.iter().find(|subject| subject["name"] == name).unwrap()["digest"]["sha256"].as_str();
    assert_eq!(named("image:oke-node-manager-1.2.3-arm64.tar"), Some("5ca1ab1e"));
    let (_, sum) = repository.run("sha256sum", &[".build/release/oke-node-manager-1.2.3-amd64.tar"]);
    assert_eq!(named("oke-node-manager-1.2.3-amd64.tar"), sum.split(' ').next());

    // One tag for both architectures: the descriptors that a registry needs.
    let (_, index) = repository.run("sh", &["-c", "tar -xOf .build/release/oke-node-manager-1.2.3.tar index.json"]);
    let index: Value = serde_json::from_str(&index).unwrap();
    let digest = index["manifests"][0]["digest"].as_str().unwrap();
    let blob = format!("tar -xOf .build/release/oke-node-manager-1.2.3.tar blobs/{}", digest.replace(':', "/"));
    let (_, both) = repository.run("sh", &["-c", &blob]);
    let both: Value = serde_json::from_str(&both).unwrap();
    assert_eq!(both["manifests"].as_array().unwrap().len(), 2);
    assert_eq!(named("image:oke-node-manager-1.2.3.tar"), digest.strip_prefix("sha256:"));

    let (again, text) = repository.release();
    assert!(!again && text.contains("the tag v1.2.3 exists"), "{text}");
}

#[test]
fn changelog_begins_with_the_workspaces_version_or_unreleased() {
    let changelog = read("CHANGELOG.md");
    let heading = changelog.lines().find(|line| line.starts_with("## ")).unwrap();
    assert!(
        heading == "## Unreleased" || heading.starts_with(&format!("## {}", env!("CARGO_PKG_VERSION"))),
        "{heading}"
    );
    assert!(root().join(".ci/release").exists());
}
