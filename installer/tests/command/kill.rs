//! An upgrade is killed at any of its system calls, or one of them fails. The node has the old or the new binary, whole and
//! executable, and a valid configuration; the next run completes it and leaves nothing behind.

use std::collections::HashMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use host_harness::sample;
use sandbox::Container;
use serde_json::{Value, json};

use crate::node::{CONFLIST, FOREIGN, Node, PORTMAP, mode};
use crate::uninstall::kernel::Host;

const ARGUMENTS: [&str; 4] = ["--signal-node-label", "true", "--cni-usable", "--cni-chain=portmap"];

/// One system call of the program's main thread: the `nth` of that name.
#[derive(Clone, Debug)]
struct Call {
    name: String,
    nth: usize,
    line: String,
}

/// A plugin of some hundred kilobytes, so that writing it takes several calls.
fn plugin(of: char) -> String {
    let answer = r#"{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}"#;
    format!("#!/bin/sh\necho '{answer}'\nexit\n#{}{}\n", vcn::PLUGIN_MARKS[0], of.to_string().repeat(200_000))
}

/// A node with the old release in place, and a new one to be installed: another binary, and a configuration that gains one
/// plugin and loses another.
fn before() -> Node {
    let node = Node::new();
    for name in ["portmap", "bandwidth", "istio-cni"] {
        node.executable(&format!("bin/{name}"), PORTMAP);
    }
    node.executable("source/vcn-native", &plugin('o'));
    let (code, text) =
        node.run(&["--signal-node-label", "true", "--cni-usable", "--cni-chain=bandwidth", "--pod-mtu", "1500"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(node.document(CONFLIST), document(&json!([{"type": "vcn-native", "mtu": 1500}, bandwidth()])));
    node.executable("source/vcn-native", &plugin('n'));
    node
}

fn bandwidth() -> Value {
    json!({"type": "bandwidth", "capabilities": {"bandwidth": true}})
}

/// The plugins of the new release.
fn new() -> Vec<Value> {
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}, "snat": true});
    vec![json!({"type": "vcn-native"}), portmap]
}

fn document(plugins: &Value) -> Value {
    let versions = ["0.3.1", "0.4.0", "1.0.0"];
    json!({"cniVersion": "1.0.0", "cniVersions": versions, "name": "vcn-native", "plugins": plugins})
}

fn run(node: &Node, strace: &[String]) -> (Output, String) {
    traced(node, node.agents(), strace, &ARGUMENTS)
}

fn traced(node: &Node, container: Container, strace: &[String], arguments: &[&str]) -> (Output, String) {
    // The container sees all of this directory.
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("calls");
    let output = node.traced_command(container, strace, &log, arguments).output().unwrap();
    (output, fs::read_to_string(log).unwrap())
}

/// Every call after the first read of the configurations.
fn calls() -> Vec<Call> {
    let (output, log) = run(&before(), &[]);
    calls_of(&output, &log)
}

fn calls_of(output: &Output, log: &str) -> Vec<Call> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let mut made: HashMap<&str, usize> = HashMap::new();
    let (mut calls, mut begun) = (Vec::new(), false);
    for line in log.lines() {
        let Some((name, rest)) = line.split_once('(').filter(|(name, _)| !name.contains([' ', '+', '-'])) else {
            continue;
        };
        let nth = made.entry(name).or_default();
        *nth += 1;
        begun |= rest.contains("net.d");
        // Memory, and waiting for plugins, which takes another number of calls each time.
        const OTHER: &str =
            "brk mmap munmap mprotect madvise mremap futex exit_group rt_sigprocmask waitid wait4 clock_nanosleep";
        if begun && !OTHER.split(' ').any(|other| other == name) {
            calls.push(Call { name: name.to_owned(), nth: *nth, line: line.chars().take(120).collect() });
        }
    }
    assert!(calls.len() > 100, "{calls:#?}");
    calls
}

fn assert_whole(node: &Node, case: &str) {
    let found = fs::read_to_string(node.path("bin/vcn-native")).unwrap();
    assert!(found == plugin('o') || found == plugin('n'), "{case}: {} bytes", found.len());
    assert_eq!(mode(&node.path("bin/vcn-native")), 0o755, "{case}");
    let old = json!([{"type": "vcn-native", "mtu": 1500}, bandwidth()]);
    let found = node.document(CONFLIST);
    // A plugin that did not answer is left out until the next run.
    let unanswered = case.contains("[plugin-unanswered]") && found["plugins"] == json!([{"type": "vcn-native"}]);
    assert!(found == document(&old) || found == document(&json!(new())) || unanswered, "{case}: {found:#}");
}

fn assert_repaired(node: &Node, case: &str) {
    let (code, text) = node.run(&ARGUMENTS);
    assert_eq!(code, 0, "{case}: {text}");
    assert!(fs::read_to_string(node.path("bin/vcn-native")).unwrap() == plugin('n'), "{case}");
    assert_eq!(node.document(CONFLIST), document(&json!(new())), "{case}");
    let mut names = node.names();
    names.extend(fs::read_dir(node.path("lib")).unwrap().map(|entry| format!("lib/{:?}", entry.unwrap().file_name())));
    assert_eq!(
        names,
        [
            "bin/bandwidth",
            "bin/istio-cni",
            "bin/portmap",
            "bin/vcn-native",
            "net.d/05-vcn-native.conflist",
            "lib/\"installer.json\""
        ],
        "{case}: nothing is left behind"
    );
    let (_, text) = node.run(&ARGUMENTS);
    assert!(!text.contains("did: ") && !text.contains("note: "), "{case}: {text}");
}

#[test]
fn kill_at_any_system_call_leaves_a_node_that_works() {
    let cases = sample(calls(), 4);
    let mut hit = 0;
    for call in &cases {
        let node = before();
        let inject = format!("--inject={}:signal=SIGKILL:when={}", call.name, call.nth);
        let (output, _) = run(&node, &[format!("--trace={}", call.name), inject]);
        hit += usize::from(output.status.signal() == Some(9));
        assert_whole(&node, &call.line);
        assert_repaired(&node, &call.line);
    }
    assert!(hit * 10 >= cases.len() * 9, "only {hit} of {} runs came to the call", cases.len());
}

#[test]
fn failure_of_any_system_call_leaves_a_node_that_works() {
    // Not `close`: Linux does close, and the standard library takes a failure for a bug.
    let file_calls = ["openat", "write", "fsync", "fchmod", "rename", "read", "statx", "flock", "unlink", "mkdir"];
    let calls = calls().into_iter().filter(|call| file_calls.contains(&call.name.as_str())).collect();
    let cases = sample(calls, 4);
    for (call, number) in cases.iter().zip(["EIO", "ENOSPC", "EROFS", "EACCES", "EDQUOT"].iter().cycle()) {
        let node = before();
        let inject = format!("--inject={}:error={number}:when={}", call.name, call.nth);
        let (output, log) = run(&node, &[format!("--trace={}", call.name), inject]);
        let case = format!("{number} at {} ({})", call.line, String::from_utf8_lossy(&output.stdout));
        assert!(log.contains("(INJECTED)") || output.status.success(), "{case}");
        assert!(matches!(output.status.code(), Some(0 | 1 | 64)), "{case}: it reports and does not crash");
        assert_whole(&node, &case);
        assert_repaired(&node, &case);
    }
}

#[test]
fn failed_flush_keeps_the_old_binary() {
    let node = before();
    let (output, log) = run(&node, &["--trace=fsync".into(), "--inject=fsync:error=EIO".into()]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(log.contains("(INJECTED)"), "{log}");
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("flushing it to disk failed: Input/output error"), "{text}");
    assert!(fs::read_to_string(node.path("bin/vcn-native")).unwrap() == plugin('o'));
    assert!(!fs::read_to_string(node.conflist()).unwrap().contains("portmap"), "no configuration without its binaries");
    assert_repaired(&node, "EIO at every fsync");
}

/// A power cut could come between: contents are on the disk before the rename, and the rename before the next file.
#[test]
fn files_are_flushed_before_rename_and_names_before_next_file() {
    let node = before();
    let (output, log) = run(&node, &["--trace=openat,fchmod,fsync,rename".into(), "--decode-fds=path".into()]);
    assert!(output.status.success(), "{log}");
    // Only calls for our own files and their directories.
    let word = |line: &str| {
        let line = line.split_once(" = ").unwrap().0;
        let (call, rest) = line.split_once('(').unwrap();
        let what =
            if rest.contains(".oke-cni-installer.") || rest.contains(".json.new") { "file" } else { "directory" };
        let place = [("bin", "/opt/cni/bin"), ("net.d", "/etc/cni/net.d"), ("lib", "/var/lib/vcn-native")];
        let place = place.into_iter().find(|(_, at)| rest.contains(at)).map(|(below, _)| below);
        let ours = match (call, what) {
            ("openat", _) => rest.contains("O_EXCL"),
            _ => true,
        };
        place.filter(|_| ours).map(|place| format!("{call} {what} {place}"))
    };
    let words: Vec<String> = log.lines().filter(|line| line.contains(" = ")).filter_map(word).collect();
    let put = |place: &str| {
        let steps = ["openat file", "fchmod file", "fsync file", "rename file", "fsync directory"];
        steps.map(|step| format!("{step} {place}"))
    };
    for place in ["bin", "net.d"] {
        assert!(words.windows(5).any(|steps| steps == put(place)), "{place}: {words:#?}\n{log}");
    }
    let whole: Vec<Vec<String>> = words.chunks(5).map(<[String]>::to_vec).collect();
    assert!(
        whole.iter().all(|steps| ["bin", "net.d", "lib"].iter().any(|place| *steps == put(place))),
        "{words:#?}\n{log}"
    );
    let places: Vec<&str> = whole.iter().map(|steps| steps[0].rsplit(' ').next().unwrap()).collect();
    let (binary, conflist) = (places.iter().position(|at| *at == "bin"), places.iter().position(|at| *at == "net.d"));
    assert!(binary < conflist, "the binary comes before the configuration that names it: {places:?}");
}

/// It was copied, and then never replaced.
#[test]
fn uninstall_after_a_failed_replacement_keeps_the_foreign_file() {
    let node = || {
        let node = Node::new();
        fs::write(node.conflist(), FOREIGN).unwrap();
        node
    };
    let (output, log) = run(&node(), &[]);
    let calls = calls_of(&output, &log);
    let into_place = |call: &&Call| call.name == "rename" && call.line.contains("05-vcn-native.conflist");
    let nth = calls.iter().find(into_place).expect("the configuration is renamed into its place").nth;
    let node = node();
    let (output, log) = run(&node, &["--trace=rename".into(), format!("--inject=rename:error=EIO:when={nth}")]);
    assert!(log.contains("(INJECTED)"), "{log}");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    let (code, text) = Host::new().inside(|| node.uninstall_on_a_host(&[]));
    assert_eq!(code, 0, "{text}");
    assert_eq!(fs::read_to_string(node.conflist()).unwrap(), FOREIGN);
}

/// A node where our files replaced files of another program.
fn installed_over_foreign_plugin() -> Node {
    let node = Node::new();
    node.executable("bin/vcn-native", "foreign");
    fs::write(node.conflist(), FOREIGN).unwrap();
    let (code, text) = node.run(&ARGUMENTS);
    assert_eq!(code, 0, "{text}");
    fs::create_dir_all(node.path("run")).unwrap();
    fs::write(node.path("run/pools.json"), "{}").unwrap();
    node
}

#[test]
fn killed_uninstall_is_completed_by_the_next() {
    let host = Host::new();
    let uninstall = |node: &Node, strace: &[String]| {
        let uninstaller = node.placed(Container::uninstaller().unwrap());
        host.inside(|| traced(node, uninstaller, strace, &["uninstall"]))
    };
    let (output, log) = uninstall(&installed_over_foreign_plugin(), &[]);
    let cases = sample(calls_of(&output, &log), 6);
    let mut hit = 0;
    for call in &cases {
        let node = installed_over_foreign_plugin();
        let inject = format!("--inject={}:signal=SIGKILL:when={}", call.name, call.nth);
        let (output, _) = uninstall(&node, &[format!("--trace={}", call.name), inject]);
        hit += usize::from(output.status.signal() == Some(9));
        let (output, _) = uninstall(&node, &[]);
        let printed = format!("{}: {}", call.line, String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "{printed}");
        assert_eq!(fs::read_to_string(node.path("bin/vcn-native")).unwrap(), "foreign", "{printed}");
        assert_eq!(fs::read_to_string(node.conflist()).unwrap(), FOREIGN, "{printed}");
        assert_eq!(node.names(), ["bin/vcn-native", "net.d/05-vcn-native.conflist"], "{printed}");
        assert_eq!((node.entries("lib"), node.entries("run")), (vec![], vec![]), "{printed}");
    }
    assert!(hit * 10 >= cases.len() * 9, "only {hit} of {} runs came to the call", cases.len());
}
