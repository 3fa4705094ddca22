//! Commands that bring the earlier files back if nothing confirms a change: systemd runs them when neither the kubelet nor the program
//! that changed the files is there any more. Pure.
//!
//! They are programs with arguments, without a shell, in the order in which a unit of type `oneshot` runs them. Confirming a change
//! stops the unit while it still waits.

use std::time::Duration;

use crate::files::record::{PendingChange, copy_name};

/// The unit that waits, and then brings the files back.
pub const GUARD_UNIT: &str = "oke-node-files-guard.service";

/// How long it waits: longer than what changed the files waits for the confirmation, so that this one is the last resort.
pub const GUARD_DELAY: Duration = Duration::from_secs(100);

/// Where the copies are, as the host sees it.
#[derive(Clone, Copy, Debug)]
pub struct GuardPaths<'a> {
    /// The folder of the copies of what the changed paths had.
    pub copies: &'a str,
    /// The marker file: it shows the next program that the files were restored.
    pub marker: &'a str,
}

/// A command that the guard runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardCommand {
    /// The program's path, then its arguments.
    pub arguments: Vec<String>,
    /// Whether the next command runs even if this one fails.
    pub ignores_failure: bool,
}

/// The commands for a change. `size` is that of a path's copy, in bytes: a copy that a full disk cut off must not replace a file.
pub fn commands(
    pending: &PendingChange,
    paths: GuardPaths<'_>,
    delay: Duration,
    size: impl Fn(&str) -> u64,
) -> Vec<GuardCommand> {
    let mut commands = vec![command(&["/usr/bin/sleep", &delay.as_secs().to_string()], false)];
    for (path, before) in &pending.before {
        match before {
            Some(_) => {
                // Readers never see half a file, and owner and mode are those of the copy.
                let (copy, staged) = (format!("{}/{}", paths.copies, copy_name(path)), staged(path));
                commands.push(command(&["/usr/bin/cp", "--archive", "--no-target-directory", &copy, &staged], true));
                let whole = format!("{}c", size(path));
                let find = ["/usr/bin/find", &staged, "-prune", "-type", "f", "-size", &whole];
                let rename = ["-exec", "/usr/bin/mv", "--force", "--no-target-directory", &staged, path, ";"];
                commands.push(command(&[&find[..], &rename[..]].concat(), true));
                commands.push(command(&["/usr/bin/rm", "--force", &staged], true));
            }
            // What a killed program was about to write: CRI-O reads each file of its folder.
            None => commands.push(command(&["/usr/bin/rm", "--force", path, &staged(path)], true)),
        }
    }
    commands.push(command(&["/usr/bin/sync"], true));
    commands.push(command(&["/usr/bin/touch", paths.marker], true));
    if pending.reload {
        commands.push(command(&["/usr/bin/systemctl", "daemon-reload"], true));
    }
    for unit in &pending.units {
        // A unit that failed too often in a row does not start before this.
        commands.push(command(&["/usr/bin/systemctl", "reset-failed", unit.as_str()], true));
        commands.push(command(&["/usr/bin/systemctl", "restart", unit.as_str()], true));
    }
    commands
}

/// Where new content of a file is written first: in its folder, under a name that no program reads but CRI-O, which reads its folder
/// only when it starts.
pub fn staged(path: &str) -> String {
    format!("{path}.oke-new")
}

fn command(arguments: &[&str], ignores_failure: bool) -> GuardCommand {
    GuardCommand { arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(), ignores_failure }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::process::Command;

    use api::node_policy::HostUnit;

    use super::*;
    use crate::files::record::FileState;

    fn write(path: &Path, content: &str) {
        fs::write(path, content).unwrap();
    }

    #[test]
    fn commands_bring_each_file_back_and_restart_its_units() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let text = |name: &str| at(name).to_str().unwrap().to_owned();
        fs::create_dir(at("copies")).unwrap();
        write(&at("changed.conf"), "new\n");
        write(&at("added.conf"), "new\n");
        let copy = at("copies").join(copy_name(&text("changed.conf")));
        write(&copy, "old\n");
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).unwrap();
        let pending = PendingChange {
            before: [
                (text("changed.conf"), Some(FileState::of(b"old\n", 0o600))),
                (text("added.conf"), None),
                (text("removed.conf"), None),
            ]
            .into(),
            units: [HostUnit::Kubelet, HostUnit::Crio].into(),
            reload: true,
            ..PendingChange::default()
        };
        let paths = GuardPaths { copies: &text("copies"), marker: &text("restored") };
        let commands = commands(&pending, paths, Duration::ZERO, |_| 4);
        let (systemd, files): (Vec<_>, Vec<_>) =
            commands.iter().partition(|command| command.arguments[0].ends_with("systemctl"));
        for command in files {
            let status = Command::new(&command.arguments[0]).args(&command.arguments[1..]).status().unwrap();
            assert!(status.success(), "{command:?}");
        }
        assert_eq!(fs::read_to_string(at("changed.conf")).unwrap(), "old\n");
        assert_eq!(fs::metadata(at("changed.conf")).unwrap().permissions().mode() & 0o7777, 0o600);
        assert!(!at("added.conf").exists() && !Path::new(&staged(&text("changed.conf"))).exists());
        assert!(at("restored").exists());
        let systemd: Vec<String> = systemd.iter().map(|command| command.arguments[1..].join(" ")).collect();
        let expected = [
            "daemon-reload",
            "reset-failed crio.service",
            "restart crio.service",
            "reset-failed kubelet.service",
            "restart kubelet.service",
        ];
        assert_eq!(systemd, expected);
    }

    #[test]
    fn copy_that_is_cut_off_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("changed.conf").to_str().unwrap().to_owned();
        fs::create_dir(folder.path().join("copies")).unwrap();
        write(Path::new(&path), "new\n");
        write(&folder.path().join("copies").join(copy_name(&path)), "ol");
        let before = [(path.clone(), Some(FileState::of(b"old\n", 0o644)))].into();
        let pending = PendingChange { before, ..PendingChange::default() };
        let copies = folder.path().join("copies").to_str().unwrap().to_owned();
        let marker = folder.path().join("restored").to_str().unwrap().to_owned();
        for command in commands(&pending, GuardPaths { copies: &copies, marker: &marker }, Duration::ZERO, |_| 4) {
            Command::new(&command.arguments[0]).args(&command.arguments[1..]).status().unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");
        assert!(!Path::new(&staged(&path)).exists());
    }

    #[test]
    fn only_the_wait_stops_the_commands_after_it() {
        let pending = PendingChange { before: [("/x".to_owned(), None)].into(), ..PendingChange::default() };
        let commands = commands(&pending, GuardPaths { copies: "/c", marker: "/m" }, GUARD_DELAY, |_| 0);
        assert_eq!(commands[0].arguments, ["/usr/bin/sleep", "100"]);
        assert!(!commands[0].ignores_failure && commands[1..].iter().all(|command| command.ignores_failure));
    }
}
