//! One call of the do-nothing plugin inside the test's process, and what came of it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read};
use std::process::ExitCode;

use cni::{Environment, run};
use serde_json::{Value, json};

use crate::noop::{Noop, PluginCall};

/// A call to be made.
pub(crate) struct Call {
    env: BTreeMap<String, OsString>,
    stdin: Vec<u8>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) exit: ExitCode,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) calls: Vec<PluginCall>,
}

impl Call {
    /// A sound call of `verb` with a sound configuration of 1.1.0.
    pub(crate) fn of(verb: &str) -> Self {
        let env = [
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", "Pod_1.a-b"),
            ("CNI_NETNS", "/run/netns/missing"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/opt/cni/bin"),
            ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0;K8S_POD_UID=u-1"),
        ];
        let env = env.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        Self { env, stdin: Vec::new() }.config(&config("1.1.0"))
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.env.remove(name);
        self
    }

    pub(crate) fn stdin(self, stdin: impl Into<Vec<u8>>) -> Self {
        Self { stdin: stdin.into(), ..self }
    }

    pub(crate) fn config(self, config: &Value) -> Self {
        self.stdin(config.to_string())
    }

    pub(crate) fn run(self) -> Outcome {
        run_with(&|name| self.env.get(name).cloned(), &mut self.stdin.as_slice())
    }

    /// The same with a stdin that must not be touched.
    pub(crate) fn run_without_stdin(self) -> Outcome {
        run_with(&|name| self.env.get(name).cloned(), &mut ForbiddenInput)
    }
}

impl Outcome {
    /// The error reply; checks what is true of every failure.
    pub(crate) fn error(&self) -> Value {
        assert_eq!(self.exit, ExitCode::FAILURE, "{self:?}");
        assert_eq!(self.stdout.matches('\n').count(), 1, "one line: {self:?}");
        let reply: Value = serde_json::from_str(&self.stdout).unwrap();
        let keys: Vec<_> = reply.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["cniVersion", "code", "msg", "details"]);
        assert_ne!(reply["msg"], "", "{self:?}");
        reply
    }

    pub(crate) fn code(&self) -> u64 {
        self.error()["code"].as_u64().unwrap()
    }

    pub(crate) fn message(&self) -> String {
        self.error()["msg"].as_str().unwrap().to_owned()
    }

    /// The result; checks what is true of every success.
    pub(crate) fn result(&self) -> Value {
        assert_eq!((self.exit, self.stderr.as_str()), (ExitCode::SUCCESS, ""), "{self:?}");
        assert!(self.stdout.ends_with("}\n"), "{self:?}");
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// Success without a result.
    pub(crate) fn silent(&self) {
        assert_eq!((self.exit, self.stdout.as_str(), self.stderr.as_str()), (ExitCode::SUCCESS, "", ""), "{self:?}");
    }
}

/// A configuration with everything that any verb needs.
pub(crate) fn config(version: &str) -> Value {
    json!({
        "cniVersion": version,
        "name": "Net_1",
        "type": "noop",
        "prevResult": {"cniVersion": version, "interfaces": [], "ips": []},
        "cni.dev/valid-attachments": [{"containerID": "a", "ifname": "eth0"}],
    })
}

/// The configuration with another value at `key`.
pub(crate) fn config_with(key: &str, value: Value) -> Value {
    let mut config = config("1.1.0");
    config[key] = value;
    config
}

/// The configuration without `key`.
pub(crate) fn config_without(key: &str) -> Value {
    let mut config = config("1.1.0");
    config.as_object_mut().unwrap().remove(key);
    config
}

fn run_with(env: &Environment<'_>, stdin: &mut dyn Read) -> Outcome {
    let plugin = Noop::default();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let exit = run(&plugin, env, stdin, &mut stdout, &mut stderr);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Outcome { exit, stdout: text(stdout), stderr: text(stderr), calls: plugin.calls.into_inner() }
}

/// A stdin that must not be read.
struct ForbiddenInput;

impl Read for ForbiddenInput {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        panic!("stdin was read")
    }
}
