//! What a plugin is: an answer to each verb. Environment, decoding, versions and replies are done for it.

use std::process::ExitCode;

use serde::de::DeserializeOwned;

use crate::input::stdin::DeadlineStdin;
use crate::run::output::Stdout;
use crate::run::{panic, run, streams};
use crate::{AddRequest, AddResult, CheckRequest, DelRequest, Error, GcRequest, Refusal, StatusRequest};

/// A CNI plugin: its configuration, and what it does for each operation.
pub trait Plugin {
    /// The plugin's own fields of the configuration. It must let unknown fields pass: the protocol's are among them.
    type Conf: DeserializeOwned;

    /// One line about the plugin, for a person who starts it by hand.
    const ABOUT: &'static str;

    /// Hears of a call that is answered with an error without a call of the others: its variables or its
    /// configuration were wrong. For a line in the log.
    fn refused(&self, _refusal: &Refusal<'_>) {}

    /// Attaches the container. Idempotent per key, and without a trace after a failure.
    ///
    /// # Errors
    /// When the container is not attached.
    fn add(&self, request: &AddRequest<Self::Conf>) -> Result<AddResult, Error>;

    /// Detaches the container. Success when nothing of it is left, even if another program removed it.
    ///
    /// # Errors
    /// Only when trying again can help.
    fn del(&self, request: &DelRequest<Self::Conf>) -> Result<(), Error>;

    /// Verifies the attachment.
    ///
    /// # Errors
    /// When something differs; the message says what.
    fn check(&self, request: &CheckRequest<Self::Conf>) -> Result<(), Error>;

    /// Says whether an ADD could succeed now, within 100 ms.
    ///
    /// # Errors
    /// With code 50 or 51 when none can for a while. Not for what passes by itself.
    fn status(&self, request: &StatusRequest<Self::Conf>) -> Result<(), Error>;

    /// Frees what belongs to no valid attachment; goes on after a failure.
    ///
    /// # Errors
    /// With all failures, when something could not be freed.
    fn gc(&self, request: &GcRequest<Self::Conf>) -> Result<(), Error>;
}

/// A plugin's whole `main`: answers the call that this process was started for.
pub fn main<P: Plugin>(plugin: &P) -> ExitCode {
    streams::secure();
    panic::install();
    let env = |name: &str| std::env::var_os(name);
    run(plugin, &env, &mut DeadlineStdin::default(), &mut Stdout, &mut std::io::stderr().lock())
}
