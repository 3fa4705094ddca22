//! The fabric's cables: veth pairs whose far ends lie in one namespace without any IP, and the thread that carries
//! frames between them and [`Fabric`].
//!
//! ```text
//!   node namespace        fabric namespace
//!   ens3 ═══ veth ═══ w16 ─┐
//!   ens5 ═══ veth ═══ w17 ─┼─ AF_PACKET socket ── thread ── Fabric::handle
//!   svc0 ═══ veth ═══ w1  ─┘  (all links of the namespace)
//! ```

mod delayed_frames;
mod offload;
mod socket;

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netlink::{LinkChange, LinkKind, Netns, NewLink, Peer, Socket, Sysctls};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use vcn::{IfName, MacAddr, Mtu};

use crate::error::{Error, ErrorContext, Result};
use crate::fabric::{Dropped, Fabric, Policy, Port, VnicPort};
use delayed_frames::DelayedFrames;
use socket::{Frames, PacketSocket};

/// How often the fabric's clock ticks.
const TICK: Duration = Duration::from_millis(100);
/// How often routers announce themselves; well within the lifetime that they announce.
const ANNOUNCE: Duration = Duration::from_secs(200);
/// Frames handled between two reads of the clock.
const BURST: usize = 64;

const SERVICES_WIRE: u32 = 2;
/// The first VNIC's wire. Indices are chosen here, so that no look-up is needed after a link was made.
const FIRST_WIRE: u32 = 16;

/// The services' Ethernet address.
const SERVICES_MAC: MacAddr = MacAddr([0x02, 0x00, 0x17, 0xff, 0xff, 0xff]);

/// One end of a wire, in a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WireEnd<'a> {
    pub(crate) netns: &'a Netns,
    pub(crate) name: &'a IfName,
    pub(crate) mac: MacAddr,
    pub(crate) mtu: Option<Mtu>,
}

#[derive(Debug)]
pub(crate) struct Switch {
    netlink: Mutex<Socket>,
    packets: Arc<PacketSocket>,
    fabric: Arc<Mutex<Fabric>>,
    next_wire: AtomicU32,
    /// Closing it ends the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Switch {
    /// Makes the fabric's namespace, connects the services' namespace to it by link `svc0`, and starts the thread.
    pub(crate) fn start(services: &Netns) -> Result<Self> {
        let netns = Netns::create().during(|| "make the fabric's namespace")?;
        let prepared = netns.run(|| -> Result<(Socket, PacketSocket)> {
            // The far ends must be silent: no router solicitations, no duplicate address detection of their own.
            for conf in ["all", "default"] {
                let _ = Sysctls::default().write(&format!("net/ipv6/conf/{conf}/disable_ipv6"), "1");
            }
            let netlink = Socket::open().during(|| "manage the fabric's links")?;
            Ok((netlink, PacketSocket::open()?))
        });
        let (netlink, packets) = prepared.during(|| "enter the fabric's namespace")??;
        let services_port = Port { wire: SERVICES_WIRE, tag: None };
        let (stop, stopped) = UnixStream::pair().during(|| "make a socket pair")?;
        let mut switch = Self {
            netlink: Mutex::new(netlink),
            packets: Arc::new(packets),
            fabric: Arc::new(Mutex::new(Fabric::new(services_port, SERVICES_MAC))),
            next_wire: AtomicU32::new(FIRST_WIRE),
            stop: Some(stop),
            thread: None,
        };
        let name = IfName::new("svc0").map_err(|error| Error::Invalid(error.to_string()))?;
        let end = WireEnd { netns: services, name: &name, mac: SERVICES_MAC, mtu: Some(Mtu::VCN) };
        switch.plug(SERVICES_WIRE, end)?;
        let carrier = Carrier {
            packets: Arc::clone(&switch.packets),
            fabric: Arc::clone(&switch.fabric),
            stopped,
            epoch: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("sandbox-fabric".to_owned()).spawn(move || carrier.run());
        switch.thread = Some(thread.during(|| "start the fabric's thread")?);
        Ok(switch)
    }

    /// Plugs a new wire into a node.
    pub(crate) fn connect(&self, end: WireEnd<'_>) -> Result<u32> {
        let wire = self.next_wire.fetch_add(1, Ordering::Relaxed);
        self.plug(wire, end)?;
        Ok(wire)
    }

    /// Unplugs a wire: both ends vanish, wherever the node's end is by now.
    pub(crate) fn disconnect(&self, wire: u32) -> Result<()> {
        lock(&self.netlink).delete_link(wire).during(|| format!("unplug wire {wire}"))
    }

    /// Lowers the fabric's end of a wire, so that the node's end has no carrier, or raises it again.
    pub(crate) fn set_carrier(&self, wire: u32, carrier: bool) -> Result<()> {
        let change = if carrier { LinkChange::Up } else { LinkChange::Down };
        lock(&self.netlink).change_link(wire, &[change]).during(|| format!("change the carrier of wire {wire}"))
    }

    /// Lets a VNIC use a port.
    pub(crate) fn attach(&self, port: Port, vnic: VnicPort) {
        lock(&self.fabric).attach(port, vnic);
    }

    pub(crate) fn detach(&self, port: Port) {
        lock(&self.fabric).detach(port);
    }

    /// Announces the router to a port now, rather than on request or the time has come.
    pub(crate) fn advertise(&self, port: Port) {
        let advertisement = lock(&self.fabric).advertisement(port);
        if let Some((port, frame)) = advertisement {
            self.packets.send(port, &frame);
        }
    }

    pub(crate) fn set_policy(&self, policy: Policy) {
        lock(&self.fabric).set_policy(policy);
    }

    /// What was dropped so far.
    pub(crate) fn drops(&self) -> Vec<Dropped> {
        lock(&self.fabric).drops()
    }

    fn plug(&self, wire: u32, end: WireEnd<'_>) -> Result<()> {
        let name = IfName::new(format!("w{wire}")).map_err(|error| Error::Invalid(error.to_string()))?;
        let peer = Peer { name: end.name.clone(), mac: Some(end.mac), mtu: end.mtu, netns: Some(end.netns.as_fd()) };
        let mut link = NewLink::new(name, LinkKind::Veth(peer));
        link.index = Some(wire);
        link.mtu = Some(Mtu::VCN);
        link.up = true;
        lock(&self.netlink).add_link(&link).during(|| format!("plug in {}", end.name))?;
        offload::disable(end.netns, end.name)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by the thread itself.
            let _ = thread.join();
        }
    }
}

struct Carrier {
    packets: Arc<PacketSocket>,
    fabric: Arc<Mutex<Fabric>>,
    stopped: UnixStream,
    epoch: Instant,
}

impl Carrier {
    fn run(self) {
        let (mut frames, mut delayed) = (Frames::default(), DelayedFrames::default());
        let (mut ticked, mut announced) = (Duration::ZERO, Duration::ZERO);
        while self.wait(delayed.next()) {
            for _ in 0..BURST {
                let Some((port, frame)) = self.packets.receive(&mut frames) else { break };
                let now = self.epoch.elapsed();
                let (out, delay) = {
                    let mut fabric = lock(&self.fabric);
                    (fabric.handle(now, port, frame), fabric.longest_delay())
                };
                for (port, frame) in out {
                    match delay {
                        None => self.packets.send(port, &frame),
                        Some(longest) => delayed.add(now, longest, (port, frame)),
                    }
                }
            }
            let now = self.epoch.elapsed();
            let mut out = delayed.due(now);
            if now >= ticked + TICK {
                ticked = now;
                out.extend(lock(&self.fabric).tick(now));
            }
            if now >= announced + ANNOUNCE {
                announced = now;
                out.extend(lock(&self.fabric).advertisements());
            }
            for (port, frame) in out {
                self.packets.send(port, &frame);
            }
        }
    }

    /// Waits for a frame, a tick or the next delayed frame; returns whether to go on.
    fn wait(&self, next: Option<Duration>) -> bool {
        let mut fds = [
            PollFd::new(self.packets.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.stopped.as_fd(), PollFlags::POLLIN),
        ];
        let left = next.map_or(TICK, |next| next.saturating_sub(self.epoch.elapsed()).min(TICK));
        // Rounded up to whole milliseconds, so that it does not spin.
        let left = left + Duration::from_micros(999);
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        // If it was interrupted, the next round checks again.
        let _ = poll(&mut fds, timeout);
        !fds.get(1).and_then(PollFd::any).unwrap_or(false)
    }
}

/// Locks; a thread that panicked while holding the lock left whole frames behind, so its state is usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
