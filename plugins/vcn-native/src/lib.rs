//! `vcn-native`: gives a pod its own VCN address from the node's secondary VNICs.
//!
//! ```text
//!   ADD  pools.json ─▶ reserve ─▶ plan(desired, nothing) ─▶ apply ─▶ commit ─▶ result
//!   DEL  what is recorded, else observed ─▶ plan(nothing, that) ─▶ dismantle ─▶ release
//!   CHECK               observe ─▶ plan(desired, observed) must be empty
//!   GC                  DEL for every attachment the runtime no longer knows
//! ```
//!
//! It needs no other process (promise P1): it reads and writes node-local files, talks to the kernel and starts no other program.

mod add;
mod check;
mod conf;
mod del;
mod failure;
mod follow_up;
mod gc;
mod node;
mod report;
mod status;
mod take_down;
mod unsupported;

pub use conf::Conf;
pub use failure::code;

use cni::{AddRequest, AddResult, CheckRequest, DelRequest, Error, GcRequest, Plugin, Refusal, StatusRequest};

use crate::follow_up::FollowUp;
use crate::report::Report;

/// The plugin.
#[derive(Clone, Copy, Debug)]
pub struct VcnNative;

impl Plugin for VcnNative {
    type Conf = Conf;

    const ABOUT: &'static str =
        concat!("vcn-native ", env!("CARGO_PKG_VERSION"), ": gives pods VCN addresses of the node's secondary VNICs");

    fn refused(&self, refusal: &Refusal<'_>) {
        let state_dir = conf::state_dir_of(refusal.document.as_ref());
        Report::of_refusal(refusal).send(&state_dir, Some(refusal.error), None);
    }

    fn add(&self, request: &AddRequest<Conf>) -> Result<AddResult, Error> {
        let mut report = Report::of_attachment("ADD", &request.key, &request.args, &request.trace);
        let answer = unsupported::refuse(&request.config).and_then(|()| add::add(request, &mut report));
        let follow_up = answer.is_ok().then_some(FollowUp::Announce);
        report.send(&request.conf.state_dir, answer.as_ref().err(), follow_up);
        answer
    }

    fn del(&self, request: &DelRequest<Conf>) -> Result<(), Error> {
        let conf = Conf::as_far_as_sound(&request.conf, &request.config);
        let mut report = Report::of_attachment("DEL", &request.key, &request.args, &request.trace);
        let answer = del::del(request, &conf, &mut report);
        report.send(&conf.state_dir, answer.as_ref().err(), Some(FollowUp::Forget));
        answer
    }

    fn check(&self, request: &CheckRequest<Conf>) -> Result<(), Error> {
        let mut report = Report::of_attachment("CHECK", &request.key, &request.args, &request.trace);
        let answer = check::check(request, &mut report);
        report.send(&request.conf.state_dir, answer.as_ref().err(), None);
        answer
    }

    fn status(&self, request: &StatusRequest<Conf>) -> Result<(), Error> {
        let report = Report::of_network("STATUS", &request.config.name, &request.trace);
        let answer = status::status(&request.conf);
        // Runtimes ask every few seconds; what is worth a line is a no.
        if let Err(error) = &answer {
            report.send(&request.conf.state_dir, Some(error), None);
        }
        answer
    }

    fn gc(&self, request: &GcRequest<Conf>) -> Result<(), Error> {
        let conf = Conf::as_far_as_sound(&request.conf, &request.config);
        let mut report = Report::of_network("GC", &request.config.name, &request.trace);
        let answer = gc::gc(request, &conf, &mut report);
        report.send(&conf.state_dir, answer.as_ref().err(), Some(FollowUp::Forget));
        answer
    }
}
