//! One call from beginning to end: environment, document, version, the plugin's answer, the reply and the exit status.

pub(crate) mod output;
pub(crate) mod panic;
pub(crate) mod refusal;
pub(crate) mod streams;

use std::io::{Read, Write};
use std::process::ExitCode;

use serde_json::json;

use crate::input::environment::{Call, Target};
use crate::input::stdin;
use crate::{
    AddRequest, AddResult, AttachmentKey, CheckRequest, Config, DelRequest, Environment, Error, ErrorCode, GcRequest,
    Plugin, Refusal, StatusRequest, Verb, Version,
};

/// A failed call, by the origin of its error.
enum CallFailure {
    /// This crate: the plugin was not called.
    Refused(Error),
    Answered(Error),
}

impl From<Error> for CallFailure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// Answers one call: at most one JSON document on `stdout`, the result or the error, and nothing where the verb has no
/// result. `stderr` is for people. A failure is always status 1; what failed is in the reply. [`main`](crate::main) is this with
/// the process's own environment and streams.
pub fn run<P: Plugin>(
    plugin: &P,
    env: &Environment<'_>,
    input: &mut dyn Read,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> ExitCode {
    let mut version = Version::NEWEST;
    let mut document = Vec::new();
    let answer = match Call::read(env) {
        Ok(Call::About) => {
            // A person reads this; a closed stderr does not matter.
            let _ = writeln!(stderr, "{}\nCNI protocol versions supported: {}", P::ABOUT, Version::list());
            return ExitCode::SUCCESS;
        }
        // VERSION must not read stdin: runtimes leave it open.
        Ok(Call::Version) => {
            let (newest, all) = (Version::NEWEST.as_str(), Version::ALL.map(Version::as_str));
            Ok(Some(json!({"cniVersion": newest, "supportedVersions": all}).to_string()))
        }
        Ok(call) => stdin::read(input).map_err(CallFailure::Refused).and_then(|read| {
            document = read;
            answer(plugin, call, &document, &mut version)
        }),
        Err(error) => Err(CallFailure::Refused(error)),
    };
    let answer = answer.map_err(|failed| match failed {
        CallFailure::Refused(error) => {
            plugin.refused(&Refusal::of(env, &document, &error));
            error
        }
        CallFailure::Answered(error) => error,
    });
    panic::note_answered();
    let (mut reply, exit) = match answer {
        Ok(None) => return ExitCode::SUCCESS,
        Ok(Some(result)) => (result, ExitCode::SUCCESS),
        Err(error) => (error.to_json(version), ExitCode::FAILURE),
    };
    reply.push('\n');
    match stdout.write_all(reply.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => exit,
        Err(error) => {
            let _ = write!(stderr, "writing the reply to stdout: {error}: {reply}");
            ExitCode::FAILURE
        }
    }
}

/// The answer to a call that comes with a configuration. `version` is set as soon as the configuration tells it.
fn answer<P: Plugin>(
    plugin: &P,
    call: Call,
    document: &[u8],
    version: &mut Version,
) -> Result<Option<String>, CallFailure> {
    let document = Config::document(document)?;
    *version = Config::version_of(&document)?;
    panic::note_version(*version);
    let verb = call.verb();
    if *version < Version::introduced(verb) {
        return Err(CallFailure::Refused(Error::new(
            ErrorCode::INCOMPATIBLE_VERSION,
            format!(
                "the configuration has cniVersion {version}, {verb} needs {} or later: raise it, or do not call it",
                Version::introduced(verb)
            ),
        )));
    }
    let config = Config::read(document, verb)?;
    match call {
        Call::Add(target, netns) => {
            let (key, args, conf) = (target.key(&config), target.args, config.own()?);
            let request = AddRequest { key, netns, args, config, conf };
            let result: AddResult = plugin.add(&request).map_err(CallFailure::Answered)?;
            return Ok(Some(result.to_json(*version)));
        }
        Call::Check(target, netns) => {
            let Some(prev_result) = config.prev_result.clone() else {
                return Err(CallFailure::Refused(Error::new(
                    ErrorCode::INVALID_CONFIG,
                    "CHECK without prevResult: give it what ADD answered, there is nothing to compare with otherwise",
                )));
            };
            let (key, args, conf) = (target.key(&config), target.args, config.own()?);
            let request = CheckRequest { key, netns, prev_result, args, config, conf };
            plugin.check(&request).map_err(CallFailure::Answered)?;
        }
        Call::Del(target) => {
            let (key, args, conf) = (target.key(&config), target.args, config.own());
            let request = DelRequest { key, args, config, conf };
            plugin.del(&request).map_err(Error::in_words_for_del).map_err(CallFailure::Answered)?;
        }
        Call::Status => {
            let conf = config.own()?;
            plugin.status(&StatusRequest { config, conf }).map_err(CallFailure::Answered)?;
        }
        Call::Gc if config.disable_gc => {}
        Call::Gc => {
            let (valid, conf) = (config.valid_attachments()?, config.own());
            plugin.gc(&GcRequest { valid, config, conf }).map_err(CallFailure::Answered)?;
        }
        // Answered before stdin was touched.
        Call::About | Call::Version => {}
    }
    Ok(None)
}

impl Target {
    fn key(&self, config: &Config) -> AttachmentKey {
        AttachmentKey {
            network: config.name.clone(),
            container_id: self.container_id.clone(),
            ifname: self.ifname.clone(),
        }
    }
}

impl Call {
    fn verb(&self) -> Verb {
        match self {
            Self::Add(..) => Verb::Add,
            Self::Check(..) => Verb::Check,
            Self::Del(..) => Verb::Del,
            Self::Status => Verb::Status,
            Self::Gc => Verb::Gc,
            Self::About | Self::Version => Verb::Version,
        }
    }
}
