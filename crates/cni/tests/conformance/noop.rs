//! The plugin under which the protocol is tested: it attaches nothing, remembers its calls, and fails or panics
//! when its configuration says so.
#![allow(dead_code, reason = "the tests use some of it, the program the rest")]

use std::cell::RefCell;

use cni::{
    AddRequest, AddResult, CheckRequest, DelRequest, Error, ErrorCode, GcRequest, Interface, Ip, Plugin, StatusRequest,
    Success,
};
use serde::Deserialize;

/// Our own fields of the configuration.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Conf {
    /// A field to be wrong.
    pub(crate) mtu: Option<u32>,
    /// Fail with this code.
    fail: Option<u32>,
    #[serde(default)]
    panic: bool,
}

/// A call of the plugin by the library. The tests read the fields, the program does not.
#[derive(Debug)]
pub(crate) enum PluginCall {
    Add(Box<AddRequest<Conf>>),
    Del(Box<DelRequest<Conf>>),
    Check(Box<CheckRequest<Conf>>),
    Status(Box<StatusRequest<Conf>>),
    Gc(Box<GcRequest<Conf>>),
}

#[derive(Debug, Default)]
pub(crate) struct Noop {
    pub(crate) calls: RefCell<Vec<PluginCall>>,
}

impl Noop {
    fn answer(&self, call: PluginCall, conf: Option<&Conf>) -> Result<(), Error> {
        self.calls.borrow_mut().push(call);
        let conf = conf.cloned().unwrap_or_default();
        #[expect(clippy::panic, reason = "it is what the configuration requested")]
        if conf.panic {
            panic!("as requested: link not found");
        }
        match conf.fail {
            Some(code) => Err(Error::new(ErrorCode(code), "failed as requested: not found").with_details("none")),
            None => Ok(()),
        }
    }
}

impl Plugin for Noop {
    type Conf = Conf;
    const ABOUT: &'static str = "noop: attaches nothing";

    fn add(&self, request: &AddRequest<Conf>) -> Result<AddResult, Error> {
        self.answer(PluginCall::Add(Box::new(request.clone())), Some(&request.conf))?;
        if let Some(previous) = &request.config.prev_result {
            return Ok(previous.clone().into());
        }
        let interface = Interface { name: request.key.ifname.to_string(), ..Interface::default() };
        let ip = Ip { address: std::net::IpAddr::from([127, 0, 0, 1]).into(), gateway: None, interface: Some(0) };
        Ok(Success { interfaces: vec![interface], ips: vec![ip], ..Success::default() }.into())
    }

    fn del(&self, request: &DelRequest<Conf>) -> Result<(), Error> {
        self.answer(PluginCall::Del(Box::new(request.clone())), request.conf.as_ref().ok())
    }

    fn check(&self, request: &CheckRequest<Conf>) -> Result<(), Error> {
        self.answer(PluginCall::Check(Box::new(request.clone())), Some(&request.conf))
    }

    fn status(&self, request: &StatusRequest<Conf>) -> Result<(), Error> {
        self.answer(PluginCall::Status(Box::new(request.clone())), Some(&request.conf))
    }

    fn gc(&self, request: &GcRequest<Conf>) -> Result<(), Error> {
        self.answer(PluginCall::Gc(Box::new(request.clone())), request.conf.as_ref().ok())
    }
}
