//! kubectl, run on the control plane's node.

use anyhow::{Context, Result, bail};

use super::kubernetes::Cluster;
use super::report;

impl Cluster {
    pub(super) fn apply(&self, manifest: &str) -> Result<()> {
        let command = self.command(&["apply", "--server-side", "-f", "-"]);
        output_of(&command.output_of_input(manifest.as_bytes())?).map(drop).context("kubectl apply")
    }

    pub(super) fn show(&self, arguments: &[&str]) -> Result<()> {
        report::line(&format!("$ kubectl {}", arguments.join(" ")));
        self.kubectl(arguments)?.lines().for_each(report::line);
        Ok(())
    }

    pub(super) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        output_of(&self.command(arguments).output()?).with_context(|| format!("kubectl {}", arguments.join(" ")))
    }

    fn command(&self, arguments: &[&str]) -> sandbox::Command {
        let command = self.node.command(&self.kubectl).args(arguments).env_clear();
        command.env("KUBECONFIG", self.home.join("config")).env("HOME", &self.home)
    }
}

fn output_of(output: &std::process::Output) -> Result<String> {
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => bail!("{}", String::from_utf8_lossy(&output.stderr).trim()),
    }
}
