//! A call that never became a request: its readable parts, for a log.

use serde_json::Value;
use vcn::IfName;

use crate::{Args, Config, ContainerId, Environment, Error, NetworkName, Verb};

/// A call whose variables or configuration were wrong. Everything that was sound is here.
#[derive(Clone, Debug)]
pub struct Refusal<'a> {
    /// The error that the runtime gets.
    pub error: &'a Error,
    /// CNI_COMMAND, if it is an operation of the specification.
    pub verb: Option<Verb>,
    /// CNI_CONTAINERID, if it is valid.
    pub container_id: Option<ContainerId>,
    /// CNI_IFNAME, if it is valid.
    pub ifname: Option<IfName>,
    /// CNI_ARGS, as far as they are valid.
    pub args: Args,
    /// The name of the network, if the configuration has a valid one.
    pub network: Option<NetworkName>,
    /// The configuration, if it was read and is an object.
    pub document: Option<Value>,
}

impl<'a> Refusal<'a> {
    pub(crate) fn of(env: &Environment<'_>, document: &[u8], error: &'a Error) -> Self {
        let text = |name: &str| env(name).and_then(|value| value.into_string().ok()).unwrap_or_default();
        let document = Config::document(document).ok();
        let name = document.as_ref().and_then(|document| document.get("name")).and_then(Value::as_str);
        Self {
            error,
            verb: Verb::from_word(&text("CNI_COMMAND")),
            container_id: ContainerId::new(text("CNI_CONTAINERID")).ok(),
            ifname: IfName::new(text("CNI_IFNAME")).ok(),
            args: Args::parse(&env("CNI_ARGS").unwrap_or_default()).unwrap_or_default(),
            network: name.and_then(|name| NetworkName::new(name).ok()),
            document,
        }
    }
}
