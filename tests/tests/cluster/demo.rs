//! `oke-sandbox demo` shows everything, and what it cannot show it names.

use std::process::Command;

use tests::built::bin_dir;

fn demo(options: &[&str]) -> String {
    demo_with(&[], options)
}

fn demo_with(environment: &[(&str, &str)], options: &[&str]) -> String {
    let mut command = Command::new(bin_dir().join("oke-sandbox"));
    command.envs(environment.iter().copied()).arg("demo").arg("--bin-dir").arg(bin_dir());
    let output = command.args(options).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("Everything works, and nothing is left behind."), "{text}");
    text
}

#[test]
fn the_demo_proves_everything_and_says_so() {
    let text = demo(&[]);
    for proof in ["IPv6: every pod of the other node", "port 53: a name", "port 123: the time"] {
        assert!(text.lines().any(|line| line.contains(proof) && line.contains("answered")), "{proof}: {text}");
    }
    assert!(!text.contains("left out"), "{text}");
    let ready = text.lines().filter(|line| line.contains("vnicattachment") && line.contains("True    Ready"));
    assert_eq!(ready.count(), 6, "{text}");
    for whose in ["(net1, shared)", "(net2, exclusive)", "(of the host)"] {
        let proof = format!("{whose}, from the control plane");
        let answered = text.lines().filter(|line| line.contains(&proof) && line.contains("answers"));
        assert_eq!(answered.count(), 2, "{whose}: {text}");
    }
}

#[test]
fn demo_continues_without_api_server_and_reports_the_reason() {
    let text = demo_with(&[("KUBEBUILDER_ASSETS", "/nowhere")], &[]);
    let is_reported =
        text.lines().any(|line| line.contains("left out: ") && line.contains("KUBEBUILDER_ASSETS is /nowhere"));
    assert!(is_reported, "{text}");
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn demo_includes_bare_metal_node_when_kernel_supports_vlans() {
    // The guest has one processor, and an API server wants more than that.
    assert!(demo(&["--without-kubernetes"]).contains("node-b: bare metal, 3 VNICs"));
}
