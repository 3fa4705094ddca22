//! Plugins that answer, lie, hang, and hold on to their output.

use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

fn plugin(script: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plugin");
    write(&path, script);
    (directory, path)
}

fn write(path: &Path, script: &str) {
    sandbox::write_program(path, format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
}

fn refusal(script: &str, deadline: Duration) -> String {
    let (_directory, path) = plugin(script);
    match ask_within(&path, deadline) {
        Answer::Refused(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_plugin_is_asked_with_nothing_but_the_command() {
    let (_directory, path) = plugin(
        r#"[ "$CNI_COMMAND" = VERSION ] && [ -z "$HOME" ] || exit 1
           echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0","0.3.1","1.0.0","2.0.0-beta"]}'"#,
    );
    let versions = ["0.3.1", "1.0.0", "1.1.0"].map(|text| text.parse().unwrap());
    assert_eq!(ask_within(&path, Duration::from_secs(60)), Answer::Speaks(BTreeSet::from(versions)));
}

#[test]
fn a_missing_plugin_is_missing() {
    assert_eq!(ask(Path::new("/nowhere/portmap")), Answer::Missing);
}

#[test]
fn a_plugin_that_cannot_be_started_refuses() {
    let (_directory, path) = plugin("exit 0");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(ask(&path), Answer::Refused(reason) if reason.starts_with("it does not start: ")));
}

#[test]
fn a_plugin_whose_loader_or_script_interpreter_is_missing_says_so() {
    let loader = b"/ld-linux";
    let mut binary = fs::read("/bin/sh").unwrap();
    let at = binary.windows(loader.len()).position(|bytes| bytes == loader).unwrap();
    binary[at + 1] = b'X';
    for program in [&binary[..], b"#!/nowhere/interpreter\n"] {
        let (_directory, path) = plugin("");
        sandbox::write_program(&path, program).unwrap();
        assert_eq!(ask(&path), Answer::Refused(NO_INTERPRETER.to_owned()));
    }
}

#[test]
fn failures_and_nonsense_are_told_with_what_was_said() {
    let patient = Duration::from_secs(60);
    assert_eq!(refusal("echo oops; exit 3", patient), "it ended with exit status: 3: \"oops\\n\"");
    assert_eq!(refusal("echo '{}'", patient), "its answer is \"{}\\n\", without supportedVersions");
    assert_eq!(refusal("kill -9 $$", patient), "it ended with signal: 9 (SIGKILL): \"\"");
}

#[test]
fn a_plugin_that_hangs_is_given_up_and_killed() {
    for script in ["exec sleep 1000", "exec >&- 2>&-; exec sleep 1000", "sleep 1000 & wait"] {
        let before = Instant::now();
        assert!(refusal(script, Duration::from_millis(100)).starts_with("no answer within"), "{script}");
        assert!(before.elapsed() < Duration::from_secs(100), "{script}");
    }
}

#[test]
fn a_plugin_that_talks_for_ever_is_not_listened_to_for_ever() {
    let told = refusal("while :; do echo 0123456789012345678901234567890123456789; done", Duration::from_millis(300));
    assert!(told.len() < 300, "{told}");
}

#[test]
fn an_answer_that_is_half_right_is_taken_for_what_it_is() {
    let patient = Duration::from_secs(60);
    for (answer, speaks) in [
        (r#"{"supportedVersions":["1.0.0",7,"x",null]}"#, Some(1)),
        (r#"{"supportedVersions":[]}"#, Some(0)),
        (r#"{"supportedVersions":"1.0.0"}"#, None),
        (r#"["1.0.0"]"#, None),
        ("", None),
        (r#"{"supportedVersions":["1.0.0"]} and more"#, None),
        (r#"{"code":4,"msg":"CNI_CONTAINERID is required"}"#, None),
    ] {
        let (_directory, path) = plugin(&format!("echo '{answer}'"));
        match (ask_within(&path, patient), speaks) {
            (Answer::Speaks(versions), Some(count)) => assert_eq!(versions.len(), count, "{answer}"),
            (Answer::Refused(_), None) => {}
            (other, _) => panic!("{answer}: {other:?}"),
        }
    }
}

#[test]
fn what_a_hanging_plugin_started_is_killed_too() {
    let (directory, path) = plugin("");
    // The pipe has a writer as long as any of them lives.
    let pipe = directory.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    write(&path, &format!("sleep 1000 >{} &\nwait", pipe.display()));
    let fifo = pipe.clone();
    let reader = thread::spawn(move || fs::read(pipe));
    assert!(matches!(ask_within(&path, Duration::from_secs(2)), Answer::Refused(_)));
    // Where the machine was so busy that nobody came to write, the reader still waits for the first.
    while !reader.is_finished() {
        let _ = fs::OpenOptions::new().write(true).custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits()).open(&fifo);
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(reader.join().unwrap().unwrap(), b"", "the read ends when the last writer is gone");
}

/// Each look at such a plugin would otherwise leave a process behind.
#[test]
fn what_a_plugin_left_behind_is_killed_whether_it_answered_or_not() {
    let (_directory, path) = plugin("");
    let answer = r#"echo '{"supportedVersions":["1.0.0"]}'"#;
    for (how, answers) in [(">/dev/null", true), ("", false)] {
        let left = path.with_extension("left");
        write(&path, &format!("sleep 1000 {how} &\necho $! >{}\n{answer}", left.display()));
        let deadline = Duration::from_secs(if answers { 60 } else { 2 });
        assert_eq!(matches!(ask_within(&path, deadline), Answer::Speaks(_)), answers);
        let process = PathBuf::from("/proc").join(fs::read_to_string(&left).unwrap().trim()).join("cmdline");
        // One that has ended and that nobody waited for yet has no words.
        let lives = || fs::read(&process).is_ok_and(|words| !words.is_empty());
        let end = Instant::now() + Duration::from_secs(60);
        while lives() {
            assert!(Instant::now() < end, "{process:?} still lives");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_busy_binary_is_tried_again_until_the_deadline() {
    let (_directory, path) = plugin("exit 0");
    let _writer = fs::OpenOptions::new().append(true).open(&path).unwrap();
    assert!(matches!(ask_within(&path, Duration::from_millis(50)), Answer::Refused(_)));
}

#[test]
fn versions_are_ordered_as_numbers() {
    let version = |text: &str| text.parse::<Version>().unwrap();
    assert!(version("0.10.0") > version("0.9.9"));
    for bad in ["", "1", "1.0", "1.0.0.0", "1.0.0-rc1", "a.b.c"] {
        assert!(bad.parse::<Version>().is_err(), "{bad}");
    }
    assert_eq!(Version::CONFIGURATION.to_string(), "1.0.0");
}
