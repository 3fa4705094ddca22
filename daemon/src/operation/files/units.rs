//! Units of the host through systemd's bus.

use resident::logging::chain;
use systemd::{SequenceStep, Systemd, UnitState};
use tokio::time::{Duration, Instant, sleep, timeout_at};
use tunables::files::HostUnit;
use tunables::files::guard::GuardCommand;

use super::change::{UnitUsage, Units};
use crate::operation::restart::Proof;

/// Between two reads of a state.
const POLL: Duration = Duration::from_millis(200);
/// A unit that waits ends at once when it is stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A unit that is started this often after one restart does not stay active: the first attempts may wait for another unit.
const STARTS_MAX: usize = 3;

pub(super) struct SystemdUnits<'a>(pub(super) &'a Systemd);

impl Units for SystemdUnits<'_> {
    async fn reload(&self) -> Result<(), String> {
        self.0.reload().await.map_err(|error| chain(&error))
    }

    async fn usage(&self, unit: HostUnit) -> Result<UnitUsage, String> {
        let unit = self.0.unit(unit.as_str()).await.map_err(|error| chain(&error))?;
        Ok(match unit.active {
            _ if !unit.is_loaded => UnitUsage::Unused,
            UnitState::Inactive => UnitUsage::Unused,
            UnitState::Failed => UnitUsage::Failed,
            _ => UnitUsage::Running,
        })
    }

    async fn restart(&self, unit: HostUnit, until: Instant) -> Result<(), String> {
        let proven = timeout_at(until, self.restart_and_prove(unit.as_str())).await;
        proven.unwrap_or_else(|_| Err(format!("{unit} did not stay active in time after its restart")))
    }

    async fn start(&self, name: &str, commands: &[GuardCommand]) -> Result<(), String> {
        let step = |command: &GuardCommand| SequenceStep {
            arguments: command.arguments.clone(),
            ignores_failure: command.ignores_failure,
        };
        let steps: Vec<SequenceStep> = commands.iter().map(step).collect();
        let description = "Puts earlier files back unless a change is confirmed";
        self.0.sequence(name, description, &steps).await.map_err(|error| chain(&error))
    }

    async fn stop(&self, name: &str) -> Result<(), String> {
        let failed = |error: systemd::Error| chain(&error);
        self.0.stop(name).await.map_err(failed)?;
        let until = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < until {
            let unit = self.0.unit(name).await.map_err(failed)?;
            if !unit.has_job && matches!(unit.active, UnitState::Inactive | UnitState::Failed) {
                return Ok(());
            }
            sleep(POLL).await;
        }
        Err(format!("{name} does not stop"))
    }
}

impl SystemdUnits<'_> {
    async fn restart_and_prove(&self, name: &str) -> Result<(), String> {
        let failed = |error: systemd::Error| chain(&error);
        let before = self.0.unit(name).await.map_err(failed)?;
        if before.active == UnitState::Failed {
            // One that failed too often in a row would not start.
            self.0.reset_failed(name).await.map_err(failed)?;
        }
        self.0.restart(name).await.map_err(failed)?;
        let (mut proof, start) = (Proof::new(before.invocation), Instant::now());
        loop {
            sleep(POLL).await;
            let unit = self.0.unit(name).await.map_err(failed)?;
            if unit.active == UnitState::Failed && !unit.has_job {
                return Err(format!("{name} is {unit} after its restart"));
            }
            if proof.is_complete(&unit, start.elapsed()) {
                return Ok(());
            }
            if proof.starts > STARTS_MAX {
                return Err(format!(
                    "{name} does not stay active: it was started {STARTS_MAX} times after its restart"
                ));
            }
        }
    }
}
