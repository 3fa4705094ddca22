//! The program, as its pod would run it.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A running controller. Ends with this.
pub(crate) struct Controller(Child);

impl Controller {
    /// Starts it; it says what it does in `log`.
    pub(crate) fn start(kubeconfig: &Path, oci: &str, user: &Path, log: &Path) -> Self {
        let log = std::fs::File::create(log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_oke-node-controller"))
            .arg("run")
            .env_clear()
            .env("KUBECONFIG", kubeconfig)
            .env("LISTEN", "127.0.0.1:0")
            .env("POD_NAME", "controller-1")
            .env("LEASE_SECONDS", "3")
            .env("POLL_SECONDS", "0.1")
            .env("RETRY_MOST_SECONDS", "1")
            .env("OCI_PRINCIPAL", "api-key")
            .env("OCI_CONFIG_FILE", user)
            .env("OCI_ENDPOINT", oci)
            .env("OCI_REQUESTS_PER_SECOND", "500")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Tells it to end, and waits.
    pub(crate) async fn stop(&mut self, within: Duration) -> Option<ExitStatus> {
        let told = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().unwrap();
        assert!(told.success());
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            if let Some(status) = self.0.try_wait().unwrap() {
                return Some(status);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        None
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
