//! The plugin as a process, as runtimes start it: its status, its answer, a panic inside. The plugins' own tests close, fill and
//! hold its streams.

use std::io::Write;
use std::process::{Command, Output, Stdio};

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
fn success_exits_with_0_and_writes_only_to_stdout() {
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
fn panic_returns_one_reply_with_code_100_in_requested_version() {
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
