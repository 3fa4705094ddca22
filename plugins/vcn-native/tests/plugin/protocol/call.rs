//! A call of the plugin as a runtime makes it, to be spoilt; and what must be true of every answer.

use std::ffi::OsString;
use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

use netlink::Netns;
use serde_json::{Value, json};
use telemetry::VerbRecord;

/// The verbs, in the order of every table's columns.
pub(crate) const VERBS: [&str; 6] = ["ADD", "DEL", "CHECK", "STATUS", "GC", "VERSION"];

/// What a table says of a case: the code that each verb answers, 0 for success.
pub(crate) type Codes = [u64; 6];

/// What a sound call answers where there are no pools and no pods: it got past the protocol, to the plugin's work.
pub(crate) const SOUND: Codes = [11, 0, 108, 50, 0, 0];

/// Far more than a start takes, and less than a test's patience.
const SECONDS: &str = "60";

/// A network namespace to be the host's, one to be the pod's, and a state directory without pools.
pub(crate) struct Machine {
    host: Netns,
    pod: Netns,
    state: tempfile::TempDir,
}

/// A call: sound until it is changed.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) variables: Vec<(String, OsString)>,
    pub(crate) stdin: Vec<u8>,
}

/// How the plugin ended, and what it wrote.
#[derive(Debug)]
pub(crate) enum Answer {
    Success,
    Error { code: u64, msg: String },
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self { host: Netns::create().unwrap(), pod: Netns::create().unwrap(), state: tempfile::tempdir().unwrap() }
    }

    /// A configuration with all that any verb needs.
    pub(crate) fn config(&self) -> Value {
        json!({
            "cniVersion": "1.1.0",
            "name": "vcn-native",
            "type": "vcn-native",
            "prevResult": {"cniVersion": "1.1.0", "interfaces": [], "ips": []},
            "cni.dev/valid-attachments": [],
        })
    }

    /// Gives a call the configuration with other values.
    pub(crate) fn changed(&self, changes: &Value) -> impl Fn(Call) -> Call + use<> {
        let mut config = self.config();
        config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        move |call| call.stdin(config.to_string())
    }

    /// The run records that the plugin left for the agent.
    pub(crate) fn records(&self) -> Vec<VerbRecord> {
        telemetry::read_log(self.state.path()).unwrap()
    }

    pub(crate) fn call(&self, verb: &str) -> Call {
        let netns = host_harness::path_of(&self.pod).display().to_string();
        let variables = [
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", "c1"),
            ("CNI_NETNS", &netns),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0"),
            ("CNI_PATH", "/opt/cni/bin"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.into())).into();
        Call { variables, stdin: self.config().to_string().into_bytes() }
    }

    /// A command with the call's variables, which is killed when it does not end.
    pub(crate) fn command(&self, call: &Call, program: &str) -> Command {
        let mut command = Command::new("/usr/bin/timeout");
        command.args(["--signal=KILL", SECONDS, program]);
        command.env_clear().envs(call.variables.iter().cloned());
        command.env(attachment::STATE_DIR_VARIABLE, self.state.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// In the host's namespace.
    pub(crate) fn spawn(&self, mut command: Command) -> Child {
        self.host.run(|| command.spawn().unwrap()).unwrap()
    }

    /// Makes the call and reads the answer.
    pub(crate) fn answer(&self, call: &Call) -> Answer {
        let command = self.command(call, env!("CARGO_BIN_EXE_vcn-native"));
        Answer::of(&fed(self.spawn(command), &call.stdin))
    }

    /// The same in a shell, with what `script` does to `"$0"`, the plugin.
    pub(crate) fn shell(&self, call: &Call, script: &str) -> Output {
        let mut command = self.command(call, "/bin/sh");
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.args(["-c", script, env!("CARGO_BIN_EXE_vcn-native")]);
        fed(self.spawn(command), &call.stdin)
    }

    /// Every verb's code for a sound call that `spoil` has changed.
    pub(crate) fn codes(&self, spoil: impl Fn(Call) -> Call) -> Codes {
        VERBS.map(|verb| self.answer(&spoil(self.call(verb))).code())
    }
}

impl Call {
    pub(crate) fn with(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self = self.without(name);
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.variables.retain(|(known, _)| known != name);
        self
    }

    pub(crate) fn stdin(self, stdin: impl Into<Vec<u8>>) -> Self {
        Self { stdin: stdin.into(), ..self }
    }
}

impl Answer {
    /// Reads an answer; fails the test when it is none of the two that there are.
    pub(crate) fn of(output: &Output) -> Self {
        let stdout = std::str::from_utf8(&output.stdout).unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("panicked"), "{stderr}");
        let reply: Option<Value> = match stdout {
            "" => None,
            text => {
                assert_eq!(text.find('\n'), Some(text.len() - 1), "one line: {text}");
                Some(serde_json::from_str(text).unwrap())
            }
        };
        match (output.status.code(), reply) {
            (Some(0), reply) => {
                assert!(reply.as_ref().is_none_or(|reply| reply.get("code").is_none()), "success and error: {stdout}");
                Self::Success
            }
            (Some(1), Some(error)) => {
                let keys: Vec<_> = error.as_object().unwrap().keys().collect();
                assert_eq!(keys, ["cniVersion", "code", "msg", "details"]);
                let text = |key: &str| error[key].as_str().unwrap().to_owned();
                let (msg, code) = (text("msg"), error["code"].as_u64().unwrap());
                // What was being done or is wrong, and behind it the cause or what to do next.
                assert!(msg.len() > 20 && msg.len() < 1024 && msg.contains([':', ';']), "says too little: {msg}");
                assert!(code > 0 && text("details").len() < 16 << 10);
                Self::Error { code, msg }
            }
            (exit, _) => panic!("exit {exit:?} with {stdout:?} on stdout and {stderr:?} on stderr"),
        }
    }

    /// 0 for success.
    pub(crate) fn code(&self) -> u64 {
        match self {
            Self::Success => 0,
            Self::Error { code, .. } => *code,
        }
    }

    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Success => "",
            Self::Error { msg, .. } => msg,
        }
    }
}

/// Writes stdin, closes it and waits for the end. The plugin may be gone before it has read all.
pub(crate) fn fed(mut child: Child, stdin: &[u8]) -> Output {
    let _ = child.stdin.take().unwrap().write_all(stdin);
    child.wait_with_output().unwrap()
}
