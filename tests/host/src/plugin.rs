//! A run of a plugin, as a runtime makes it, and its answer.

use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

use netlink::Netns;
use serde_json::Value;

/// Starts a program in a host's namespace with these variables alone, and writes it a configuration.
pub fn spawn<'a>(
    host: &Netns,
    mut program: Command,
    variables: impl IntoIterator<Item = (&'a str, &'a str)>,
    conf: &Value,
) -> Child {
    program.env_clear().envs(variables).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = host.run(|| program.spawn().unwrap()).unwrap();
    // VERSION is answered without reading, so the pipe may be closed by now.
    let _ = child.stdin.take().unwrap().write_all(conf.to_string().as_bytes());
    child
}

/// The answer of a run that succeeds: null where there is none.
pub fn json_of(output: &Output) -> Value {
    assert_success(output);
    if output.stdout.is_empty() { Value::Null } else { serde_json::from_slice(&output.stdout).unwrap() }
}

/// Fails with the answer of a run that fails.
pub fn assert_success(output: &Output) {
    assert!(output.status.success(), "{output:?}");
}

/// The error of a run that fails: code and whole text.
pub fn error_of(output: &Output) -> (u64, String) {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let error: Value = serde_json::from_slice(&output.stdout).unwrap();
    (error.get("code").and_then(Value::as_u64).unwrap(), error.to_string())
}
