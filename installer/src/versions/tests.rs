//! Plugins that answer, lie, hang, and hold on to their output.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::*;

const PATIENT: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

fn plugin(script: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plugin");
    write(&path, script);
    (directory, path)
}

fn write(path: &Path, script: &str) {
    sandbox::write_program(path, format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
}

fn query(path: &Path, deadline: Duration) -> Answer {
    query_within(path, deadline).unwrap_or_else(Answer::Failed)
}

fn failure(script: &str, deadline: Duration) -> String {
    let (_directory, path) = plugin(script);
    match query(&path, deadline) {
        Answer::Failed(reason) => reason,
        other => panic!("{script}: {other:?}"),
    }
}

#[test]
fn plugin_gets_nothing_but_the_command() {
    let (_directory, path) = plugin(
        r#"[ "$CNI_COMMAND" = VERSION ] && [ -z "$HOME" ] || exit 1
           echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0","0.3.1","1.0.0","2.0.0-beta"]}'"#,
    );
    let versions = ["0.3.1", "1.0.0", "1.1.0"].map(|text| text.parse().unwrap());
    assert_eq!(query(&path, PATIENT), Answer::Speaks(BTreeSet::from(versions)));
    assert_eq!(query(Path::new("/nowhere/portmap"), PATIENT), Answer::Missing);
}

#[test]
fn failures_are_reported_with_the_plugins_output() {
    assert_eq!(failure("echo oops; exit 3", PATIENT), "it ended with exit status: 3: \"oops\\n\"");
    assert_eq!(failure("kill -9 $$", PATIENT), "it ended with signal: 9 (SIGKILL): \"\"");
    for answer in ["", "{}", r#"{"supportedVersions":"1.0.0"}"#, r#"{"supportedVersions":["1.0.0"]} and more"#] {
        assert!(failure(&format!("echo '{answer}'"), PATIENT).contains("without supportedVersions"), "{answer}");
    }
    let (_directory, path) = plugin("");
    sandbox::write_program(&path, b"#!/nowhere/interpreter\n").unwrap();
    assert_eq!(query(&path, PATIENT), Answer::Failed(NO_INTERPRETER.to_owned()));
    let _writer = fs::OpenOptions::new().append(true).open(&path).unwrap();
    let start = Instant::now();
    assert!(matches!(query(&path, SHORT), Answer::Failed(_)));
    assert!(start.elapsed() >= SHORT, "a busy binary is tried until the deadline");
}

#[test]
fn plugins_that_hang_are_killed_at_the_deadline() {
    let endless = "while :; do echo 0123456789012345678901234567890123456789; done";
    let scripts = ["exec sleep 1000", "exec >&- 2>&-; exec sleep 1000", "sleep 1000 & wait", endless];
    for script in scripts {
        assert!(failure(script, SHORT).starts_with("no answer within"), "{script}");
    }
}

#[test]
fn processes_that_a_plugin_left_behind_are_killed() {
    let (_directory, path) = plugin("");
    let answer = r#"echo '{"supportedVersions":["1.0.0"]}'"#;
    for how in [">/dev/null", ""] {
        let left = path.with_extension("left");
        write(&path, &format!("sleep 1000 {how} &\necho $! >{}\n{answer}", left.display()));
        assert!(matches!(query(&path, PATIENT), Answer::Speaks(_)));
        let process = PathBuf::from("/proc").join(fs::read_to_string(&left).unwrap().trim()).join("cmdline");
        // A zombie that its new parent has not reaped yet has an empty command line.
        let lives = || fs::read(&process).is_ok_and(|words| !words.is_empty());
        let end = Instant::now() + PATIENT;
        while lives() {
            assert!(Instant::now() < end, "{process:?} still lives");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn versions_are_ordered_as_numbers() {
    let version = |text: &str| text.parse::<Version>().unwrap();
    assert!(version("0.10.0") > version("0.9.9"));
    for bad in ["", "1", "1.0", "1.0.0.0", "1.0.0-rc1", "a.b.c"] {
        assert!(bad.parse::<Version>().is_err(), "{bad}");
    }
}
