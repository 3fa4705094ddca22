//! Who may use it: the socket answers root alone, whatever became of its mode.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::node::Node;

/// The answer to another user than root. A user namespace without another user skips it.
fn answer_to_another_user(node: &Node) -> (Option<i32>, String) {
    // A copy that every user may run: other users cannot read the build directory.
    let program = node.path("agent-for-all");
    sandbox::copy_program(Path::new(env!("CARGO_BIN_EXE_oke-node-agent")), &program).unwrap();
    let mut command = Command::new("/usr/bin/setpriv");
    command.env_clear().args(["--reuid=65534", "--clear-groups"]).arg(program).arg("status");
    command.args(["--state-dir", &node.path("run").display().to_string()]);
    let output = node.inside(|| command.output().unwrap());
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

fn open(node: &Node, below: &str, mode: u32) {
    fs::set_permissions(node.path(below), PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
#[ignore = "needs another user than root, which a user namespace lacks: run in the guest without IPv6"]
fn other_users_get_no_answer_even_with_socket_access() {
    let (node, _agent) = Node::with_pods().with_agent(&[]);
    open(&node, "", 0o755);
    let (status, said) = answer_to_another_user(&node);
    assert!(status == Some(1) && said.contains("it answers root only; run this as root"), "{status:?}: {said}");
    open(&node, "run", 0o755);
    open(&node, "run/agent.sock", 0o666);
    let (status, said) = answer_to_another_user(&node);
    assert!(status == Some(1) && said.contains("status 404"), "{status:?}: {said}");
    assert_eq!(node.output(&["status"]).status.code(), Some(0));
}
