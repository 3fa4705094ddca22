//! The plugin as a process, as runtimes start it: its streams closed, left open or full, and a panic inside.

use std::fs::File;
use std::io::{PipeWriter, Read, Write, pipe};
use std::os::fd::AsFd;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};

use crate::call::{config, config_with, config_without};

fn plugin(verb: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cni-noop"));
    command.env_clear().env("CNI_COMMAND", verb);
    command.env("CNI_CONTAINERID", "a").env("CNI_NETNS", "/run/netns/missing").env("CNI_IFNAME", "eth0");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Writes the configuration and waits for the end.
fn with_stdin(mut command: Command, stdin: &[u8]) -> Output {
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(stdin).unwrap();
    child.wait_with_output().unwrap()
}

fn with_config(command: Command, config: &Value) -> Output {
    with_stdin(command, config.to_string().as_bytes())
}

fn reply(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn a_success_is_status_0_with_the_result_on_stdout_and_nothing_on_stderr() {
    let output = with_config(plugin("ADD"), &config_without("prevResult"));
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    assert_eq!(reply(&output)["interfaces"], json!([{"name": "eth0", "sandbox": ""}]));
    let output = with_config(plugin("DEL"), &config("1.0.0"));
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_failure_is_always_status_1_whatever_its_code() {
    // 256 as an exit status would be 0.
    for code in [1, 11, 101, 256, 512] {
        let output = with_config(plugin("DEL"), &config_with("fail", json!(code)));
        assert_eq!((output.status.code(), &reply(&output)["code"]), (Some(1), &json!(code)));
    }
}

#[test]
fn a_panic_is_one_reply_with_code_100_in_the_configurations_version() {
    for verb in ["ADD", "DEL", "CHECK", "STATUS", "GC"] {
        let version = if matches!(verb, "ADD" | "DEL") { "0.3.1" } else { "1.1.0" };
        let mut config = config(version);
        config["panic"] = true.into();
        let output = with_config(plugin(verb), &config);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let reply = reply(&output);
        assert_eq!((&reply["cniVersion"], &reply["code"]), (&json!(version), &json!(100)));
        let message = reply["msg"].as_str().unwrap();
        assert!(message.contains("as requested: link absent"), "in words for DEL too: {message}");
        assert!(reply["details"].as_str().unwrap().contains("noop.rs:"), "{reply}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("panicked at"), "{output:?}");
    }
}

/// A pipe whose reader has gone. What other tests have just forked may hold it a little longer than we do.
fn hung_up() -> PipeWriter {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    poll(&mut [PollFd::new(writer.as_fd(), PollFlags::empty())], PollTimeout::NONE).unwrap();
    writer
}

#[test]
fn a_stdout_that_nobody_reads_is_a_failure_without_a_panic() {
    for (verb, config) in [("ADD", config("1.1.0")), ("DEL", config_with("fail", json!(101))), ("VERSION", json!({}))] {
        let mut command = plugin(verb);
        command.stdout(hung_up());
        let mut child = command.spawn().unwrap();
        // VERSION may be gone before it reads.
        let _ = child.stdin.take().unwrap().write_all(config.to_string().as_bytes());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{verb}: {stderr}");
        assert!(stderr.starts_with("writing the reply to stdout: "), "{verb}: {stderr}");
    }
}

#[test]
fn a_full_stdout_is_a_failure() {
    let mut command = plugin("ADD");
    command.stdout(File::options().write(true).open("/dev/full").unwrap());
    let output = with_config(command, &config("1.1.0"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn where_there_is_nothing_to_print_a_broken_stdout_does_not_matter() {
    let mut command = plugin("DEL");
    command.stdout(hung_up());
    assert_eq!(with_config(command, &config("1.1.0")).status.code(), Some(0));
}

#[test]
fn a_closed_stdin_is_an_error() {
    let mut command = plugin("ADD");
    command.stdin(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), &reply(&output)["code"]), (Some(1), &json!(6)));
}

/// Waits for the end, but no longer than a test should.
fn within(limit: Duration, mut child: Child) -> Output {
    let until = Instant::now() + limit;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("the plugin was still running after {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut stdout = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
    Output { status: child.wait().unwrap(), stdout, stderr: Vec::new() }
}

#[test]
fn a_stdin_that_is_never_closed_ends_in_an_error() {
    let mut child = plugin("ADD").spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(config("1.1.0").to_string().as_bytes()).unwrap();
    let start = Instant::now();
    let output = within(Duration::from_secs(60), child);
    assert!(start.elapsed() >= Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!((output.status.code(), &reply(&output)["code"]), (Some(1), &json!(5)));
    assert!(reply(&output)["msg"].as_str().unwrap().starts_with("stdin did not end within 5 s"), "{output:?}");
    drop(stdin);
}

#[test]
fn version_and_the_introduction_do_not_wait_for_stdin() {
    for verb in ["VERSION", ""] {
        let mut child = plugin(verb).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        // Who waits for stdin fails when its deadline comes.
        assert_eq!(within(Duration::from_secs(60), child).status.code(), Some(0));
        drop(stdin);
    }
}

#[test]
fn a_document_in_many_small_pieces_is_read_whole() {
    let mut child = plugin("ADD").spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for byte in config_without("prevResult").to_string().as_bytes() {
        stdin.write_all(&[*byte]).unwrap();
        stdin.flush().unwrap();
    }
    drop(stdin);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
}

#[test]
fn a_document_larger_than_a_pipe_is_read_from_pipes_and_files() {
    let mut config = config_without("prevResult");
    config["padding"] = "x".repeat(3 << 20).into();
    assert_eq!(with_config(plugin("ADD"), &config).status.code(), Some(0));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    std::fs::write(&path, config.to_string()).unwrap();
    let mut command = plugin("ADD");
    command.stdin(File::open(&path).unwrap());
    assert_eq!(command.output().unwrap().status.code(), Some(0));
}
