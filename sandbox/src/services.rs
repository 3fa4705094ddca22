//! The services on 169.254.169.254: metadata (80), DNS (53), time (123), and on 169.254.0.2 a stand-in for a boot disk
//! (3260), in a namespace of their own behind the fabric.

mod dns;
mod imds;
mod ntp;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use ipnetwork::IpNetwork;
use netlink::{Address, LinkChange, Netns, Route, Socket, Sysctls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use vcn::{Family, Mtu, TableId};

use crate::background::Background;
use crate::error::{Error, ErrorContext, Result};
use crate::fabric::{BOOT_DISK_V4, SERVICES_V4, SERVICES_V6};
use crate::network::Inventory;
use crate::node::everywhere;

pub use dns::DOMAIN;
pub use imds::MetadataFault;

/// The route protocol `RTPROT_STATIC` of linux/rtnetlink.h.
const STATIC: u8 = 4;

#[derive(Debug)]
pub(crate) struct Services {
    _thread: Background,
    netns: Arc<Netns>,
    dns_limit: Arc<DnsLimit>,
}

/// The most queries of one second that the resolver answers; `u32::MAX` for no limit.
#[derive(Debug)]
struct DnsLimit(AtomicU32);

/// The sockets, opened in the namespace: a socket stays in the namespace that it was opened in.
struct Sockets {
    http: TcpListener,
    dns_tcp: TcpListener,
    dns_udp: UdpSocket,
    ntp: UdpSocket,
    disk: TcpListener,
}

impl Services {
    /// Makes the namespace. [`Services::start`] comes after its link was plugged into the fabric.
    pub(crate) fn namespace() -> Result<Netns> {
        let netns = Netns::create().during(|| "make the services' namespace")?;
        netns
            .run(|| {
                // Usable at once: the fabric lets no VNIC have these addresses.
                let _ = Sysctls::default().write("net/ipv6/conf/default/accept_dad", "0");
            })
            .during(|| "enter the services' namespace")?;
        Ok(netns)
    }

    /// Configures the namespace and starts serving. On success, all ports are open.
    pub(crate) fn start(netns: Netns, inventory: Inventory) -> Result<Self> {
        configure(&netns).during(|| "configure the services' namespace")?;
        let netns = Arc::new(netns);
        let inside = Arc::clone(&netns);
        let dns_limit = Arc::new(DnsLimit(AtomicU32::new(u32::MAX)));
        let limit = Arc::clone(&dns_limit);
        let (opened, ready) = std::sync::mpsc::channel();
        let thread = Background::start("services", move |stopped| {
            // The runtime has this thread only, so that every socket it opens is in the namespace.
            let outcome = inside.run(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let sockets = runtime.block_on(Sockets::open());
                match sockets {
                    Ok(sockets) => {
                        let _ = opened.send(Ok(()));
                        runtime.block_on(async {
                            // Cancel-safe: whichever ends first ends the services.
                            tokio::select! {
                                () = sockets.serve(inventory, &limit) => {}
                                _ = stopped => {}
                            }
                        });
                    }
                    Err(error) => drop(opened.send(Err(error))),
                }
                io::Result::Ok(())
            });
            if let Err(error) = outcome {
                tracing::error!(%error, "the sandbox's services ended");
            }
        })?;
        ready.recv().map_err(|_| Error::Panicked("the services' thread"))?.during(|| "open the services' ports")?;
        Ok(Self { _thread: thread, netns, dns_limit })
    }

    /// Changes the resolver's limit.
    pub(crate) fn limit_dns(&self, per_second: Option<u32>) {
        self.dns_limit.0.store(per_second.unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Opens a port of the kernel's choice on the services' addresses, for another server.
    pub(crate) fn listen(&self) -> io::Result<std::net::TcpListener> {
        let open = || {
            let listener = std::net::TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        self.netns.run(open).map_err(io::Error::other)?
    }
}

/// Every address is on-link: the fabric answers ARP and NDP for all.
fn configure(netns: &Netns) -> netlink::Result<()> {
    let mut socket = Socket::open_in(netns)?;
    let Some(link) = socket.links()?.into_iter().find(|link| !link.loopback) else { return Ok(()) };
    let index = link.index;
    socket.change_link(index, &[LinkChange::Up, LinkChange::Mtu(Mtu::VCN)])?;
    for address in [IpAddr::V4(SERVICES_V4), IpAddr::V6(SERVICES_V6)] {
        let mut own = Address::new(index, IpNetwork::from(address));
        own.nodad = true;
        socket.add_address(&own)?;
        let anywhere = everywhere(Family::of(address));
        let mut route = Route::new(anywhere, index, TableId::MAIN, STATIC);
        route.scope_link = address.is_ipv4();
        socket.add_route(&route)?;
    }
    socket.add_address(&Address::new(index, IpNetwork::from(IpAddr::V4(BOOT_DISK_V4))))?;
    Ok(())
}

impl Sockets {
    async fn open() -> io::Result<Self> {
        let any = |port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        Ok(Self {
            http: TcpListener::bind(any(80)).await?,
            dns_tcp: TcpListener::bind(any(53)).await?,
            dns_udp: UdpSocket::bind(any(53)).await?,
            ntp: UdpSocket::bind(any(123)).await?,
            disk: TcpListener::bind((BOOT_DISK_V4, 3260)).await?,
        })
    }

    async fn serve(self, inventory: Inventory, limit: &DnsLimit) {
        let counted = Mutex::new((Instant::now(), 0));
        tokio::join!(
            serve_http(&self.http, &inventory),
            serve_dns_streams(&self.dns_tcp, &inventory, limit),
            serve_datagrams(&self.dns_udp, |query| {
                limit.admits(&counted).then(|| dns::answer(&inventory, query)).flatten()
            }),
            serve_datagrams(&self.ntp, |query| ntp::answer(query, SystemTime::now())),
            serve_disk(&self.disk),
        );
    }
}

impl DnsLimit {
    /// Whether one more query is answered in this second.
    fn admits(&self, counted: &Mutex<(Instant, u32)>) -> bool {
        let most = self.0.load(Ordering::Relaxed);
        let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.0.elapsed() >= Duration::from_secs(1) {
            *counted = (Instant::now(), 0);
        }
        counted.1 += 1;
        counted.1 <= most
    }
}

async fn serve_http(listener: &TcpListener, inventory: &Inventory) {
    loop {
        let (stream, from) = accept(listener).await;
        let inventory = inventory.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| metadata(inventory.clone(), from.ip().to_canonical(), request));
            // A client may close the connection at any time.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

pub(crate) async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            // Out of descriptors, most likely: other connections must end first.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn metadata(
    inventory: Inventory,
    from: IpAddr,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let answer = imds::answer(&inventory, from, request.method(), request.uri().path(), request.headers());
    let mut response = Response::new(Full::new(Bytes::from(answer.body)));
    *response.status_mut() = answer.status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
    Ok(response)
}

async fn serve_dns_streams(listener: &TcpListener, inventory: &Inventory, limit: &DnsLimit) {
    loop {
        let (stream, _) = accept(listener).await;
        if limit.0.load(Ordering::Relaxed) == 0 {
            continue;
        }
        let inventory = inventory.clone();
        tokio::spawn(async move {
            // As above.
            let _ = serve_dns_stream(stream, &inventory).await;
        });
    }
}

/// Over TCP, every message follows its length.
async fn serve_dns_stream(mut stream: TcpStream, inventory: &Inventory) -> io::Result<()> {
    loop {
        let mut query = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut query).await?;
        let Some(reply) = dns::answer(inventory, &query) else { return Ok(()) };
        stream.write_u16(u16::try_from(reply.len()).map_err(io::Error::other)?).await?;
        stream.write_all(&reply).await?;
    }
}

/// Speaks no iSCSI: it echoes, which shows that the connection works.
async fn serve_disk(listener: &TcpListener) {
    loop {
        let (mut stream, _) = accept(listener).await;
        tokio::spawn(async move {
            let (mut from, mut to) = stream.split();
            // As above.
            let _ = tokio::io::copy(&mut from, &mut to).await;
        });
    }
}

async fn serve_datagrams(socket: &UdpSocket, answer: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    let mut buffer = vec![0; 9000];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
        if let Some(reply) = buffer.get(..length).and_then(&answer) {
            let _ = socket.send_to(&reply, from).await;
        }
    }
}
