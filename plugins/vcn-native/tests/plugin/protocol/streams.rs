//! Streams that are closed, full, endless or never closed; and how much memory and time a call may cost at most.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use host_harness::Families;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::node::{Node, PLUGIN, Pod};
use crate::protocol::call::{Answer, Machine, VERBS, fed};

/// Reading stdin must be over by then (the plugin gives up after 5 s, and a busy machine takes its time).
const STDIN_BOUND: Duration = Duration::from_secs(100);

/// Address space, in KiB: what the plugin may use for any input whatever.
const MEMORY: u32 = 192 << 10;

#[test]
fn closed_or_unreadable_stdin_fails_except_for_version() {
    let machine = Machine::new();
    for (stdin, code) in [("<&-", 6), ("</dev/null", 6), ("</", 5), ("0>/dev/null", 5)] {
        for verb in VERBS {
            let answer = Answer::of(&machine.shell(&machine.call(verb), &format!("exec \"$0\" {stdin}")));
            assert_eq!(answer.code(), if verb == "VERSION" { 0 } else { code }, "{verb} {stdin}: {answer:?}");
        }
    }
}

#[test]
fn open_or_trickling_stdin_times_out_except_for_version() {
    let machine = Machine::new();
    let start = Instant::now();
    let trickle = |mut stdin: ChildStdin| {
        std::thread::spawn(move || {
            while stdin.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(50))
            }
        })
    };
    let mut calls: Vec<(&str, Child)> = Vec::new();
    for verb in VERBS {
        let call = machine.call(verb);
        let mut child = machine.spawn(machine.command(&call, env!("CARGO_BIN_EXE_vcn-native")));
        // All of the document: its end is what is missing. VERSION may be gone already.
        let _ = child.stdin.as_mut().unwrap().write_all(&call.stdin);
        calls.push((verb, child));
    }
    for (verb, mut child) in calls {
        // What comes late does not extend the time of ADD.
        let stdin = child.stdin.take().map(|stdin| if verb == "ADD" { Err(trickle(stdin)) } else { Ok(stdin) });
        let answer = Answer::of(&child.wait_with_output().unwrap());
        assert_eq!(answer.code(), if verb == "VERSION" { 0 } else { 5 }, "{verb}: {answer:?}");
        assert!(verb == "VERSION" || answer.message().starts_with("stdin did not end within 5 s"), "{answer:?}");
        drop(stdin);
    }
    assert!(start.elapsed() < STDIN_BOUND, "{:?}", start.elapsed());
}

#[test]
fn no_input_makes_the_plugin_use_more_than_its_memory() {
    let machine = Machine::new();
    let limited = format!("ulimit -v {MEMORY}; exec \"$0\"");
    // Endless, and never JSON.
    for verb in &VERBS[..5] {
        let answer = Answer::of(&machine.shell(&machine.call(verb), &format!("{limited} </dev/zero")));
        assert_eq!(answer.code(), 6, "{verb}: {answer:?}");
        assert!(answer.message().contains("larger than 8 MiB"), "{answer:?}");
    }
    // The most parts that a document may have, of the kind that takes the most, in the field that is kept twice.
    let parts = r#"{"":{"":0}},"#.repeat((1 << 18) / 5 - 20);
    let config = machine.config().to_string();
    let many = config.replace(r#""interfaces":[]"#, &format!(r#""interfaces":[{parts}0]"#));
    assert!(many.len() > config.len() + parts.len());
    for (verb, code) in [("ADD", 11), ("DEL", 0), ("CHECK", 108), ("STATUS", 50), ("GC", 0)] {
        let answer = Answer::of(&machine.shell(&machine.call(verb).stdin(many.as_str()), &limited));
        assert_eq!(answer.code(), code, "{verb}: {answer:?}");
    }
}

/// A stdout that takes nothing: a full disk, and a pipe whose reader has gone.
fn broken_stdouts() -> [(&'static str, Stdio); 2] {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    // What other tests have just forked may still hold the reader.
    poll(&mut [PollFd::new(writer.as_fd(), PollFlags::empty())], PollTimeout::NONE).unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    [("full", full.into()), ("hung up", writer.into())]
}

#[test]
fn unwritable_stdout_fails_and_sends_reply_to_stderr() {
    let machine = Machine::new();
    for verb in VERBS {
        for (case, stdout) in broken_stdouts() {
            let call = machine.call(verb);
            let mut command = machine.command(&call, env!("CARGO_BIN_EXE_vcn-native"));
            command.stdout(stdout);
            let output = fed(machine.spawn(command), &call.stdin);
            let stderr = String::from_utf8(output.stderr).unwrap();
            match verb {
                // They have nothing to say.
                "DEL" | "GC" => assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{verb} {case}"),
                _ => {
                    assert_eq!(output.status.code(), Some(1), "{verb} {case}: {stderr}");
                    assert!(stderr.starts_with("writing the reply to stdout: "), "{verb} {case}: {stderr}");
                    assert!(stderr.contains("cniVersion"), "{verb} {case}: {stderr}");
                }
            }
        }
    }
}

#[test]
fn add_with_lost_reply_fails_and_del_removes_it() {
    let node = Node::new(Families::V4);
    let before = node.snapshot();
    let pod = Pod::new("a");
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &format!("exec {PLUGIN} >/dev/full")]);
    let output = node.start_by(shell, "ADD", &pod, &node.conf("1.0.0")).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(node.held(), 1, "the pod is attached, and the runtime does not know");
    node.del(&pod);
    assert_eq!(node.snapshot(), before);
}
