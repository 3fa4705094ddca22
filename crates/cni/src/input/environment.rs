//! The environment of a call, read and checked: the verb and the attachment. One error lists everything wrong, with code 4.

use std::ffi::{OsStr, OsString};

use vcn::{IfName, excerpt};

use crate::error::QUOTED;
use crate::{Args, ContainerId, ContainerNetns, Error, ErrorCode, Verb};

/// Reads an environment variable: of the process, or set by a test.
pub type Environment<'a> = dyn Fn(&str) -> Option<OsString> + 'a;

/// The call in the environment. Only what the specification leaves optional is an `Option`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// No CNI_COMMAND: a person started the program to see what it is.
    About,
    Version,
    Add(Target, ContainerNetns),
    Check(Target, ContainerNetns),
    Del(Target),
    Status,
    Gc,
}

/// The container's side of an attachment; the network's side is in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) container_id: ContainerId,
    pub(crate) ifname: IfName,
    pub(crate) args: Args,
}

/// The variables of a verb for one attachment; none is empty, and the namespace is there unless the verb is DEL.
struct TargetVariables {
    verb: Verb,
    container_id: OsString,
    netns: Option<OsString>,
    ifname: OsString,
}

impl Call {
    /// Reads the call. CNI_PATH is ignored, because our plugins start no other plugin.
    pub(crate) fn read(env: &Environment<'_>) -> Result<Self, Error> {
        let Some(command) = env("CNI_COMMAND").filter(|command| !command.is_empty()) else {
            return Ok(Self::About);
        };
        let Some(verb) = command.to_str().and_then(Verb::from_word) else {
            return Err(invalid(format!(
                "unknown CNI_COMMAND: {}; known are {}: the runtime speaks a newer version, or is not a CNI runtime",
                excerpt(&command.to_string_lossy(), QUOTED),
                Verb::ALL.map(Verb::as_str).join(", ")
            )));
        };
        match verb {
            Verb::Version => return Ok(Self::Version),
            Verb::Status => return Ok(Self::Status),
            Verb::Gc => return Ok(Self::Gc),
            Verb::Add | Verb::Del | Verb::Check => {}
        }
        let variables = TargetVariables::read(env, verb)?;
        let target = variables.target(env)?;
        let own_allowed =
            || env("CNI_NETNS_OVERRIDE").is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true"));
        let netns = variables.netns.map(|path| ContainerNetns::new(path.into(), own_allowed()));
        match (verb, netns) {
            (Verb::Add, Some(netns)) => Ok(Self::Add(target, netns)),
            (Verb::Check, Some(netns)) => Ok(Self::Check(target, netns)),
            _ => Ok(Self::Del(target)),
        }
    }
}

impl TargetVariables {
    /// Reads the variables; an error names all that `verb` needs and that are missing.
    fn read(env: &Environment<'_>, verb: Verb) -> Result<Self, Error> {
        let container_id = env("CNI_CONTAINERID").filter(|value| !value.is_empty());
        let netns = env("CNI_NETNS").filter(|value| !value.is_empty());
        let ifname = env("CNI_IFNAME").filter(|value| !value.is_empty());
        let lacks_netns = netns.is_none() && verb != Verb::Del;
        let missing =
            [("CNI_CONTAINERID", container_id.is_none()), ("CNI_NETNS", lacks_netns), ("CNI_IFNAME", ifname.is_none())];
        match (container_id, ifname) {
            (Some(container_id), Some(ifname)) if !lacks_netns => Ok(Self { verb, container_id, netns, ifname }),
            _ => {
                let missing: Vec<_> = missing.iter().filter(|(_, missing)| *missing).map(|(name, _)| *name).collect();
                Err(invalid(format!(
                    "{verb} needs variables that are missing or empty: {}; the runtime sets them",
                    missing.join(", ")
                )))
            }
        }
    }

    /// Checks the values; an error names all that are wrong.
    fn target(&self, env: &Environment<'_>) -> Result<Target, Error> {
        let verb = self.verb;
        let mut wrong = Vec::new();
        let container_id = utf8(&self.container_id)
            .and_then(|text| ContainerId::new(text).map_err(|error| error.to_string()))
            .map_err(|complaint| wrong.push(format!("CNI_CONTAINERID: {complaint}")))
            .ok();
        let ifname = utf8(&self.ifname)
            .and_then(|text| IfName::new(text).map_err(|error| excerpt(&error.to_string(), 2 * QUOTED).into_owned()))
            .map_err(|complaint| wrong.push(format!("CNI_IFNAME: {complaint}")))
            .ok();
        if verb != Verb::Del
            && let Some(Err(complaint)) = self.netns.as_ref().map(|path| utf8(path))
        {
            // Results are JSON: they could not say where the interface is.
            wrong.push(format!("CNI_NETNS: {complaint}"));
        }
        let args = match Args::parse(&env("CNI_ARGS").unwrap_or_default()) {
            Ok(args) => args,
            // Optional data must never keep DEL from cleaning up.
            Err(_) if verb == Verb::Del => Args::default(),
            Err(complaint) => {
                wrong.push(format!("CNI_ARGS: {complaint}"));
                Args::default()
            }
        };
        match (container_id, ifname) {
            (Some(container_id), Some(ifname)) if wrong.is_empty() => Ok(Target { container_id, ifname, args }),
            _ => Err(invalid(format!(
                "{verb} got variables with wrong values: {}; the runtime sets them",
                wrong.join("; ")
            ))),
        }
    }
}

fn utf8(value: &OsStr) -> Result<&str, String> {
    value.to_str().ok_or_else(|| format!("{:?} is not UTF-8", excerpt(&value.to_string_lossy(), QUOTED)))
}

fn invalid(msg: String) -> Error {
    Error::new(ErrorCode::INVALID_ENVIRONMENT, msg)
}
