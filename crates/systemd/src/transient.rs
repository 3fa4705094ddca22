//! A command that systemd runs outside this container: a transient unit. systemd forgets the unit when it has ended and this connection
//! is closed.

use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use zbus::{Fd, Variant};

use crate::bus::Systemd;
use crate::error::{Error, Result};
use crate::unit::UnitState;

const SERVICE: &str = "org.freedesktop.systemd1.Service";
/// Between two reads of its state.
const POLL: Duration = Duration::from_millis(200);

/// The program of a transient unit, with its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// The name of the transient unit. One with this name must not exist: a name is a lock, too.
    pub unit: &'a str,
    /// For people who list units.
    pub description: &'a str,
    /// The program's path, then its arguments.
    pub arguments: &'a [&'a str],
    /// How long the caller waits. systemd never ends the command: it may change a disk.
    pub limit: Duration,
}

/// The end of a transient unit's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// systemd's word: `success`, `exit-code`, `signal`, `timeout`, …
    pub result: String,
    /// The exit status, or the signal's number.
    pub status: i32,
}

impl Exit {
    /// Whether its exit status was 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.result == "success"
    }
}

impl Systemd {
    /// Runs a command until it ends, with its output to a descriptor, or to the journal: there nothing can go away while it runs.
    ///
    /// # Errors
    /// When systemd refuses it, or does not answer, or the command did not end in time. Then it may still run.
    pub async fn run(&self, command: &Command<'_>, output: Option<OwnedFd>) -> Result<Exit> {
        let operation = format!("run {}", command.unit);
        self.start(&operation, command, output).await?;
        let ended = timeout(command.limit, self.ended(&operation, command.unit)).await;
        let exit = ended.unwrap_or(Err(Error::StillRunning { unit: command.unit.to_owned(), limit: command.limit }));
        // Otherwise systemd would keep its name.
        let _ = self.manager(&operation, "UnrefUnit", &command.unit).await;
        exit
    }

    async fn ended(&self, operation: &str, name: &str) -> Result<Exit> {
        loop {
            let unit = self.unit(name).await?;
            if !unit.has_job && matches!(unit.active, UnitState::Inactive | UnitState::Failed) {
                return self.exit(operation, name).await;
            }
            sleep(POLL).await;
        }
    }

    async fn start(&self, operation: &str, command: &Command<'_>, output: Option<OwnedFd>) -> Result<()> {
        let program = command.arguments.first().copied().unwrap_or_default();
        let arguments: Vec<String> = command.arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut properties: Vec<(&str, Variant<'_>)> = vec![
            ("Description", Variant::from(command.description)),
            // A service whose start is the whole command: the job lasts until it ends.
            ("Type", Variant::from("oneshot")),
            ("TimeoutStartUSec", Variant::from(u64::MAX)),
            ("ExecStart", Variant::from(vec![(program.to_owned(), arguments, false)])),
            ("Environment", Variant::from(vec!["LC_ALL=C"])),
            // Its result stays until it is read or this connection ends; then it is forgotten, also after a failure.
            ("AddRef", Variant::from(true)),
            ("CollectMode", Variant::from("inactive-or-failed")),
        ];
        if let Some(output) = output {
            let errors = output.try_clone().map_err(|source| Error::Call {
                operation: operation.to_owned(),
                source: Box::new(zbus::Error::from(source)),
            })?;
            properties.push(("StandardOutputFileDescriptor", Variant::from(Fd::from(output))));
            properties.push(("StandardErrorFileDescriptor", Variant::from(Fd::from(errors))));
        } else {
            properties.push(("StandardOutput", Variant::from("journal")));
            properties.push(("StandardError", Variant::from("journal")));
        }
        let no_others: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
        self.manager(operation, "StartTransientUnit", &(command.unit, "fail", properties, no_others)).await.map(drop)
    }

    async fn exit(&self, operation: &str, unit: &str) -> Result<Exit> {
        let properties = self.properties(operation, unit, SERVICE).await?;
        let lacks = |property| Error::Answer { operation: operation.to_owned(), property };
        let Some(Variant::Str(result)) = properties.get("Result").map(|value| &**value) else {
            return Err(lacks("Result"));
        };
        let Some(Variant::I32(status)) = properties.get("ExecMainStatus").map(|value| &**value) else {
            return Err(lacks("ExecMainStatus"));
        };
        Ok(Exit { result: result.to_string(), status: *status })
    }
}
