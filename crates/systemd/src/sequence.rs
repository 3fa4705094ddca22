//! Several commands as one transient unit, which runs without this program; and what a service of the host starts.

use zbus::{OwnedVariant, Variant};

use crate::bus::Systemd;
use crate::error::{Error, Result};

/// A command of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceStep {
    /// The program's path, then its arguments.
    pub arguments: Vec<String>,
    /// Whether the next one runs even if this one fails.
    pub ignores_failure: bool,
}

/// What a service starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceCommand {
    /// The program, then its arguments, with variables; empty if the service has several commands or none.
    pub arguments: Vec<String>,
    /// Its environment, as NAME=VALUE, without what is in files.
    pub environment: Vec<String>,
    /// The process that it started; 0 if none runs.
    pub main_pid: u32,
}

impl Systemd {
    /// Starts a transient unit that runs these commands one after the other, and does not wait for it. systemd forgets it when it ends.
    /// While it runs, no other one of this name starts.
    ///
    /// # Errors
    /// When systemd refuses or does not answer.
    pub async fn sequence(&self, name: &str, description: &str, steps: &[SequenceStep]) -> Result<()> {
        let command = |step: &SequenceStep| {
            let program = step.arguments.first().cloned().unwrap_or_default();
            (program, step.arguments.clone(), step.ignores_failure)
        };
        let commands: Vec<(String, Vec<String>, bool)> = steps.iter().map(command).collect();
        let properties: Vec<(&str, Variant<'_>)> = vec![
            ("Description", Variant::from(description)),
            ("Type", Variant::from("oneshot")),
            ("TimeoutStartUSec", Variant::from(u64::MAX)),
            ("ExecStart", Variant::from(commands)),
            ("Environment", Variant::from(vec!["LC_ALL=C"])),
            ("CollectMode", Variant::from("inactive-or-failed")),
        ];
        let no_others: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
        let arguments = (name, "fail", properties, no_others);
        self.manager(&format!("start {name}"), "StartTransientUnit", &arguments).await.map(drop)
    }

    /// What a service starts.
    ///
    /// # Errors
    /// When systemd refuses or does not answer.
    pub async fn command_line(&self, name: &str) -> Result<ServiceCommand> {
        let operation = format!("read the command of {name}");
        let properties = self.properties(&operation, name, "org.freedesktop.systemd1.Service").await?;
        let lacks = |property| Error::Answer { operation: operation.clone(), property };
        let read = |property: &'static str| properties.get(property).cloned().ok_or_else(|| lacks(property));
        let commands = commands(read("ExecStart")?).ok_or_else(|| lacks("ExecStart"))?;
        let environment = Vec::<String>::try_from(read("Environment")?).map_err(|_| lacks("Environment"))?;
        let main_pid = u32::try_from(read("MainPID")?).map_err(|_| lacks("MainPID"))?;
        let arguments = match <[Vec<String>; 1]>::try_from(commands) {
            Ok([only]) => only,
            Err(_) => Vec::new(),
        };
        Ok(ServiceCommand { arguments, environment, main_pid })
    }
}

/// The arguments of each command. For each command systemd also reports its last run.
fn commands(property: OwnedVariant) -> Option<Vec<Vec<String>>> {
    type Run = (String, Vec<String>, bool, u64, u64, u64, u64, u32, i32, i32);
    let commands = Vec::<Run>::try_from(property).ok()?;
    Some(commands.into_iter().map(|(_, arguments, ..)| arguments).collect())
}
