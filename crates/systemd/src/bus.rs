//! The connection, and calls of systemd's manager.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use zbus::connection::Builder;
use zbus::wire::DynamicDeserialize;
use zbus::{Connection, DynamicType, Message, OwnedObjectPath, OwnedVariant};

use crate::error::{Error, Result};
use crate::unit::Unit;

/// systemd's name on the bus.
const NAME: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// The longest wait for an answer: as systemctl has it.
const CALL_TIMEOUT: Duration = Duration::from_secs(25);

/// A connection to systemd. It uses the tokio runtime of the caller.
#[derive(Clone, Debug)]
pub struct Systemd {
    bus: Connection,
}

impl Systemd {
    /// Connects through the system bus's socket, as the user of this process.
    ///
    /// # Errors
    /// When nothing listens there, or the bus refuses the user.
    pub async fn connect(socket: &Path) -> Result<Self> {
        let address = format!("unix:path={}", socket.display());
        let bus = Builder::address(address.as_str()).method_timeout(CALL_TIMEOUT).build().await;
        let failed = |source| Error::Connect { socket: socket.display().to_string(), source: Box::new(source) };
        Ok(Self { bus: bus.map_err(failed)? })
    }

    /// The state of a unit, which need not be loaded or exist.
    ///
    /// # Errors
    /// When systemd refuses or does not answer.
    pub async fn unit(&self, name: &str) -> Result<Unit> {
        let operation = format!("read the state of {name}");
        let properties = self.properties(&operation, name, UNIT).await?;
        Unit::of(&properties).map_err(|property| Error::Answer { operation, property })
    }

    /// Queues a restart of a unit, or a start if it does not run.
    ///
    /// # Errors
    /// When systemd refuses or does not answer.
    pub async fn restart(&self, name: &str) -> Result<()> {
        self.manager(&format!("restart {name}"), "RestartUnit", &(name, "replace")).await.map(drop)
    }

    /// Queues a stop of a unit. One that systemd does not know is stopped already.
    ///
    /// # Errors
    /// When systemd refuses or does not answer.
    pub async fn stop(&self, name: &str) -> Result<()> {
        match self.manager(&format!("stop {name}"), "StopUnit", &(name, "replace")).await {
            Err(error) if error.is_unknown_unit() => Ok(()),
            stopped => stopped.map(drop),
        }
    }

    /// Forgets that a unit failed: one that failed too often in a row would not start again.
    ///
    /// # Errors
    /// When systemd refuses or does not answer.
    pub async fn reset_failed(&self, name: &str) -> Result<()> {
        match self.manager(&format!("reset the failures of {name}"), "ResetFailedUnit", &name).await {
            Err(error) if error.is_unknown_unit() => Ok(()),
            reset => reset.map(drop),
        }
    }

    /// Reads the files of all units again.
    ///
    /// # Errors
    /// When systemd refuses or does not answer.
    pub async fn reload(&self) -> Result<()> {
        self.manager("read the files of units", "Reload", &()).await.map(drop)
    }

    /// All properties that a unit has in an interface.
    pub(crate) async fn properties(
        &self,
        operation: &str,
        name: &str,
        interface: &str,
    ) -> Result<HashMap<String, OwnedVariant>> {
        let path: OwnedObjectPath = body(operation, &self.manager(operation, "LoadUnit", &name).await?)?;
        let answer = self.bus.call_method(Some(NAME), &path, Some(PROPERTIES), "GetAll", &interface).await;
        body(operation, &answer.map_err(|error| failed(operation, error))?)
    }

    /// Calls a method of the manager.
    pub(crate) async fn manager<B>(&self, operation: &str, method: &str, arguments: &B) -> Result<Message>
    where
        B: serde::Serialize + DynamicType + Sync,
    {
        let answer = self.bus.call_method(Some(NAME), MANAGER_PATH, Some(MANAGER), method, arguments).await;
        answer.map_err(|error| failed(operation, error))
    }
}

fn body<T>(operation: &str, answer: &Message) -> Result<T>
where
    T: for<'d> DynamicDeserialize<'d>,
{
    answer.body().deserialize().map_err(|error| failed(operation, error))
}

fn failed(operation: &str, error: zbus::Error) -> Error {
    Error::Call { operation: operation.to_owned(), source: Box::new(error) }
}
