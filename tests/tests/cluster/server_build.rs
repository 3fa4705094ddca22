//! Where the servers come from: what `servers/build` says, in surroundings of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/kube/servers/build");

/// Whether it succeeds, and what it says: on standard output, and on the other one.
fn run(arguments: &[&str], environment: &[(&str, &Path)], path: &str) -> (bool, String, String) {
    let mut command = Command::new("/bin/bash");
    command.arg(SCRIPT).args(arguments).env_clear().envs(environment.iter().copied()).env("PATH", path);
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

const SYSTEM: &str = "/usr/bin:/bin";

#[test]
fn kubebuilder_assets_are_used_only_when_all_servers_exist() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    let environment = [("KUBEBUILDER_ASSETS", folder.path())];
    for name in ["etcd", "kube-apiserver"] {
        let (found, out, error) = run(&["--where"], &environment, SYSTEM);
        assert!(!found && out.is_empty(), "{out}");
        assert!(error.contains(&format!("KUBEBUILDER_ASSETS is {place}, where no {name} is")), "{error}");
        fs::write(folder.path().join(name), "#!/bin/sh\n").unwrap();
        fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    for arguments in [&["--where"][..], &[]] {
        assert_eq!(run(arguments, &environment, SYSTEM), (true, place.clone(), String::new()));
    }
}

#[test]
fn missing_servers_error_explains_how_to_get_them() {
    let empty = tempfile::tempdir().unwrap();
    let asked = run(&["--where"], &[("XDG_CACHE_HOME", empty.path())], SYSTEM);
    assert!(!asked.0 && asked.2.contains("run tests/kube/servers/build"), "{asked:?}");
    assert!(asked.2.contains("or set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver"), "{asked:?}");
    // Without Go, as the demo asks: a PATH with what the script needs, and no more.
    let tools = tempfile::tempdir().unwrap();
    for name in ["dirname", "cat", "sha256sum", "cut", "awk"] {
        let found = SYSTEM.split(':').map(|folder| Path::new(folder).join(name)).find(|path| path.exists()).unwrap();
        std::os::unix::fs::symlink(found, tools.path().join(name)).unwrap();
    }
    let (done, out, told) = run(&[], &[("XDG_CACHE_HOME", empty.path())], tools.path().to_str().unwrap());
    assert_eq!((done, out.as_str()), (false, ""));
    assert!(told.contains("go is missing: install Go") && told.contains("https://go.dev/dl"), "{told}");
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0, "nothing was begun");
}
