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
mod status;
mod unsupported;

pub use attachment::code;
pub use conf::Conf;

use attachment::{FollowUp, Node, Program, Report, failure};
use cni::{AddRequest, AddResult, CheckRequest, DelRequest, Error, GcRequest, Plugin, Refusal, StatusRequest};
use ipam::Allocation;

const PROGRAM: Program = Program { name: "vcn-native", version: env!("CARGO_PKG_VERSION") };

/// The plugin that gives a pod its own VCN address.
#[derive(Clone, Copy, Debug)]
pub struct VcnNative;

impl Plugin for VcnNative {
    type Conf = Conf;

    // With one of `vcn::PLUGIN_MARKS`, by which the installer recognizes the binary.
    const ABOUT: &'static str =
        concat!("vcn-native ", env!("CARGO_PKG_VERSION"), ": gives pods VCN addresses of the node's secondary VNICs");

    fn refused(&self, refusal: &Refusal<'_>) {
        Report::of_refusal(PROGRAM, refusal).send(Some(refusal.error), None);
    }

    fn add(&self, request: &AddRequest<Conf>) -> Result<AddResult, Error> {
        let report = Report::of_attachment(PROGRAM, "ADD", &request.key, &request.args);
        report.of_run(Some(FollowUp::Announce), |report| {
            unsupported::refuse(request).and_then(|()| add::add(request, report))
        })
    }

    fn del(&self, request: &DelRequest<Conf>) -> Result<(), Error> {
        let report = Report::of_attachment(PROGRAM, "DEL", &request.key, &request.args);
        report.of_run(Some(FollowUp::Forget), |report| {
            let node = Node::open().map_err(|error| failure::of_ipam(&error))?;
            attachment::del(&request.key, &node, report)
        })
    }

    fn check(&self, request: &CheckRequest<Conf>) -> Result<(), Error> {
        let report = Report::of_attachment(PROGRAM, "CHECK", &request.key, &request.args);
        report.of_run(None, |report| check::check(request, report))
    }

    fn status(&self, request: &StatusRequest<Conf>) -> Result<(), Error> {
        let report = Report::of_network(PROGRAM, "STATUS", &request.config.name);
        let answer = status::status();
        // Runtimes call every few seconds; what is worth a line is a no.
        if let Err(error) = &answer {
            report.send(Some(error), None);
        }
        answer
    }

    fn gc(&self, request: &GcRequest<Conf>) -> Result<(), Error> {
        let report = Report::of_network(PROGRAM, "GC", &request.config.name);
        let (network, valid) = (&request.config.name, request.valid.as_ref());
        let dead = |held: &Allocation| held.key.network == *network && valid.is_some_and(|it| !it.contains(&held.key));
        report.of_run(Some(FollowUp::Forget), |report| {
            let node = Node::open().map_err(|error| failure::of_ipam(&error))?;
            attachment::gc(&node, dead, report)
        })
    }
}
