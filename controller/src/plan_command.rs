//! `oke-node-controller plan`: what the controller would do now, as it would log it. Changes nothing: what reads the API
//! server here can only list, what reads the cloud is a [`oci::CloudView`].

mod reader;
mod report;

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context;
use resident::args::Format;
use tokio::time::{Instant, timeout};

use crate::profile::observed::Observed;
use crate::profile::plan::plan;
use crate::profile::removal::Unwanted;
use crate::profile::run::GRACE;
use crate::profile::selection::select;
use crate::run::kubernetes;
use crate::settings::Settings;
use reader::Reader;
use report::Report;

/// For all that is read.
const DEADLINE: Duration = Duration::from_mins(2);

/// Reads everything and says what would be done.
///
/// # Errors
/// When something cannot be read.
pub async fn run(settings: Settings, format: Format) -> anyhow::Result<()> {
    let _ = settings;
    let reader = Reader::new(kubernetes().await?);
    let store = timeout(DEADLINE, reader.all()).await.context("reading from the API server takes too long")??;
    let observed = Observed::of(&store);
    let selections = select(&observed);
    // How long something was unwanted, this process cannot know: it says what is to come, and not when.
    let plan = plan(&observed, &selections, (&Unwanted::default(), GRACE, Instant::now()));
    let report = Report::of(&plan);
    let text = match format {
        Format::Table => report.to_string(),
        Format::Json => serde_json::to_string_pretty(&report).context("writing JSON")? + "\n",
    };
    // `… | head` closes the pipe, which is no failure.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}
