//! Oracle's SDKs for Python and for Go: a driver in a process of its own (`driver.py`, `go/main.go`), one
//! line of JSON per call.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Client, Refusal, Reply};
use crate::scene::Scene;

/// Loading the SDK takes seconds on a busy machine.
const ANSWER: Duration = Duration::from_secs(180);

/// One of Oracle's SDKs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sdk {
    Python,
    Go,
}

impl Sdk {
    pub(crate) const ALL: [Self; 2] = [Self::Python, Self::Go];

    /// The driver's program, and its first argument.
    fn driver(self) -> (PathBuf, Option<PathBuf>) {
        match self {
            Self::Python => (python(), Some(driver())),
            Self::Go => (go_driver(), None),
        }
    }
}

pub(crate) struct SdkClient {
    sdk: Sdk,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl SdkClient {
    pub(crate) fn by_config(sdk: Sdk, scene: &Scene, config: &Path) -> Self {
        Self::start(sdk, &json!({ "login": "config", "endpoint": scene.api.url(), "config": config }))
    }

    /// On the node, where the metadata service is.
    pub(crate) fn by_instance(sdk: Sdk, scene: &Scene) -> Self {
        let url = scene.api.url_in_nodes();
        let login = json!({ "login": "instance", "endpoint": url, "federation": format!("{url}/v1/x509") });
        let (program, script) = sdk.driver();
        let command = scene.vcn.node("node-a").unwrap().command(program);
        let command = command
            .args(script)
            .arg(login.to_string())
            .env("OCI_METADATA_BASE_URL", "http://169.254.169.254/opc/v2")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Self::of(sdk, command.spawn().expect("start the driver on the node"))
    }

    pub(crate) fn by_workload(sdk: Sdk, scene: &Scene, token: &str, authority: &Path) -> Self {
        let proxymux = scene.api.proxymux();
        let login = json!({ "login": "workload", "endpoint": scene.api.url(), "token": token, "authority": authority,
            "host": proxymux.ip(), "port": proxymux.port() });
        Self::start(sdk, &login)
    }

    fn start(sdk: Sdk, login: &Value) -> Self {
        let (program, script) = sdk.driver();
        let mut command = Command::new(program);
        command.args(script).arg(login.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self::of(sdk, command.spawn().expect("start the driver"))
    }

    fn of(sdk: Sdk, mut child: Child) -> Self {
        let stdin = child.stdin.take().expect("its input");
        let lines = read_lines(child.stdout.take().expect("its output"));
        Self { sdk, child, stdin, lines }
    }
}

impl Client for SdkClient {
    fn name(&self) -> &'static str {
        match self.sdk {
            Sdk::Python => "Oracle's SDK for Python",
            Sdk::Go => "Oracle's SDK for Go",
        }
    }

    fn call(&mut self, operation: &str, arguments: Value) -> Result<Reply, Refusal> {
        let line = json!({ "operation": operation, "arguments": arguments });
        writeln!(self.stdin, "{line}").expect("the driver reads");
        let answer = self.lines.recv_timeout(ANSWER).expect("the driver answers (its refusal is above)");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        match answer.get("status") {
            None => Ok(Reply { value: answer["value"].clone(), etag: answer["etag"].as_str().map(str::to_owned) }),
            Some(status) => Err(Refusal {
                status: u16::try_from(status.as_u64().expect("a status")).expect("a status"),
                code: answer["code"].as_str().unwrap_or_default().to_owned(),
                request_id: answer["requestId"].as_str().unwrap_or_default().to_owned(),
            }),
        }
    }
}

impl Drop for SdkClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// On a thread, so that a driver that hangs is noticed.
fn read_lines(stdout: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn driver() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oci_contract/driver.py")
}

/// The driver of the SDK for Go. `go/build` alone decides where it is. A test never makes it build: it has no network.
fn go_driver() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oci_contract/go/build");
    let output = Command::new(script).arg("--where").output().expect("run go/build");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

/// The interpreter that has the SDK.
pub(crate) fn python() -> PathBuf {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.build/oci-sdk/bin/python");
    assert!(
        place.exists(),
        "Oracle's SDK is not at {}: run `make setup`, which installs sandbox/tests/oci_contract/requirements.txt there (it \
         needs python3, python3-venv and the Python package index)",
        place.display()
    );
    place
}
