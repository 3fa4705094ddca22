//! Both sides over loopback: who is refused, and which bounds hold.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, its helper functions too")]

use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use channel::{
    BODY_MAX, Client, Fingerprint, Handler, Identity, Limits, Peer, Reply, Request, SendError, SentReply, TrustedKeys,
    serve,
};
use stream::{Chunks, pipe};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::sleep;

const LIMIT: Duration = Duration::from_secs(20);

/// Repeats the request, or misbehaves on request.
struct Echo;

impl Handler for Echo {
    async fn handle(&self, request: Request) -> Reply {
        match request.path.as_str() {
            "/tagged" => Reply { etag: Some("\"1\"".to_owned()), ..Reply::ok("tagged") },
            "/long" => Reply::ok(vec![b' '; BODY_MAX + 1]),
            "/never" => std::future::pending().await,
            path => Reply::ok([path.as_bytes(), request.body.unwrap_or_default().as_ref()].concat()),
        }
    }

    fn stream(&self, request: &Request) -> Option<Result<Chunks, Reply>> {
        let (sender, chunks) = pipe();
        match request.path.as_str() {
            "/stream" => {
                let mut writer = sender.into_writer();
                thread::spawn(move || {
                    for _ in 0..STREAM_BYTES / 1024 {
                        writer.write_all(&[7; 1024])?;
                        WRITTEN.fetch_add(1024, Ordering::Relaxed);
                    }
                    writer.finish()
                });
            }
            "/broken-stream" => {
                tokio::spawn(async move { sender.send("half".into()).await });
            }
            // The writer waits, and neither writes nor ends.
            "/silent-stream" => std::mem::forget(sender),
            "/busy-stream" => return Some(Err(Reply::text(429, "busy\n"))),
            _ => return None,
        }
        Some(Ok(chunks))
    }
}

/// What the writer of `/stream` wrote. One test reads it.
static WRITTEN: AtomicUsize = AtomicUsize::new(0);

/// An agent that trusts some keys; where it listens, and its key.
async fn agent(trusted: &[Fingerprint]) -> Peer {
    agent_of(Echo, trusted).await
}

async fn agent_of(handler: impl Handler, trusted: &[Fingerprint]) -> Peer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let identity = Identity::generate().unwrap();
    let peer = Peer { address: listener.local_addr().unwrap(), key: identity.fingerprint() };
    let trusted: BTreeSet<_> = trusted.iter().copied().collect();
    let trusted: TrustedKeys = Arc::new(move || trusted.clone());
    tokio::spawn(async move { serve(listener, &identity, trusted, Arc::new(handler), Limits::default()).await });
    peer
}

fn controller() -> (Client, Fingerprint) {
    let identity = Identity::generate().unwrap();
    let key = identity.fingerprint();
    (Client::new(identity), key)
}

#[tokio::test]
async fn trusted_peers_exchange_requests() {
    let (client, key) = controller();
    let peer = agent(&[Fingerprint::of(b"another"), key]).await;
    let get = |path: &str| client.send(peer, Request::get(path), LIMIT);
    assert_eq!(get("/a?b=c").await.unwrap().body, "/a?b=c".as_bytes());
    let posted = client.send(peer, Request::post("/a", "body"), LIMIT).await.unwrap();
    assert_eq!((posted.status, posted.body.as_ref()), (200, b"/abody".as_slice()));
}

/// Passes the outcome of its replies on.
struct Observed(UnboundedSender<SentReply>);

impl Handler for Observed {
    async fn handle(&self, _: Request) -> Reply {
        Reply::ok(vec![b' '; BODY_MAX / 2])
    }

    fn replied(&self, reply: SentReply) {
        self.0.send(reply).unwrap();
    }
}

#[tokio::test]
async fn server_sees_that_its_reply_arrived() {
    let (sender, mut replies) = unbounded_channel();
    let ((client, key), (stranger, _)) = (controller(), controller());
    let peer = agent_of(Observed(sender), &[key]).await;
    let before = Instant::now();
    assert!(stranger.send(peer, Request::get("/a"), LIMIT).await.is_err());
    client.send(peer, Request::get("/a"), LIMIT).await.unwrap();
    let reply = replies.recv().await.unwrap();
    assert_eq!((reply.peer, reply.is_acknowledged), (Ipv4Addr::LOCALHOST.into(), true));
    assert!(reply.accepted > before && reply.segment.is_some_and(|bytes| bytes > 1200), "{reply:?}");
    assert!(replies.try_recv().is_err(), "a stranger's connection does not count as a reply");
}

#[tokio::test]
async fn known_version_is_not_sent_again() {
    let (client, key) = controller();
    let peer = agent(&[key]).await;
    let first = client.send(peer, Request::get("/tagged"), LIMIT).await.unwrap();
    assert_eq!((first.status, first.etag.as_deref()), (200, Some("\"1\"")));
    let again = Request { if_none_match: first.etag, ..Request::get("/tagged") };
    let again = client.send(peer, again, LIMIT).await.unwrap();
    assert_eq!((again.status, again.body.len()), (304, 0));
}

#[tokio::test]
async fn other_keys_are_refused_on_either_side() {
    let (client, key) = controller();
    let (stranger, _) = controller();
    let peer = agent(&[key]).await;
    let refused = stranger.send(peer, Request::get("/a"), LIMIT).await;
    assert!(matches!(refused, Err(SendError::Handshake { .. })), "{refused:?}");
    let impostor = Peer { key: Fingerprint::of(b"expected"), ..peer };
    let refused = client.send(impostor, Request::get("/a"), LIMIT).await;
    assert!(matches!(refused, Err(SendError::Handshake { .. })), "{refused:?}");
    let without_keys = agent(&[]).await;
    let refused = client.send(without_keys, Request::get("/a"), LIMIT).await;
    assert!(matches!(refused, Err(SendError::Handshake { .. })), "{refused:?}");
}

#[tokio::test]
async fn bodies_beyond_the_bound_are_refused() {
    let (client, key) = controller();
    let peer = agent(&[key]).await;
    let long = client.send(peer, Request::post("/a", vec![b' '; BODY_MAX + 1]), LIMIT).await;
    // The server may close before it read everything; then there is no reply.
    assert!(matches!(long, Ok(Reply { status: 413, .. }) | Err(SendError::Exchange { .. })), "{long:?}");
    let long = client.send(peer, Request::get("/long"), LIMIT).await;
    assert!(matches!(long, Err(SendError::TooLong(_))), "{long:?}");
}

#[tokio::test]
async fn missing_reply_ends_at_the_limit() {
    let (client, key) = controller();
    let peer = agent(&[key]).await;
    let slow = client.send(peer, Request::get("/never"), Duration::from_millis(300)).await;
    assert!(matches!(slow, Err(SendError::Slow { .. })), "{slow:?}");
    let closed = Peer { address: free_port().await, ..peer };
    let refused = client.send(closed, Request::get("/a"), LIMIT).await;
    assert!(matches!(refused, Err(SendError::Connect { .. })), "{refused:?}");
}

/// A port without a listener: bound, and not listening.
async fn free_port() -> SocketAddr {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    // Bound as long as the test runs.
    std::mem::forget(socket);
    address
}

#[tokio::test]
async fn plain_http_and_garbage_get_no_reply() {
    let (_, key) = controller();
    for text in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), &[0x16, 3, 1, 0xff, 0xff], &[0xff; 4096], b""] {
        let (peer, text) = (agent(&[key]).await, text.to_vec());
        let read = tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(peer.address).unwrap();
            stream.write_all(&text).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut reply = Vec::new();
            // A reset is an answer as well.
            let _ = stream.read_to_end(&mut reply);
            reply
        });
        let reply = read.await.unwrap();
        assert!(!String::from_utf8_lossy(&reply).contains("HTTP/1"), "{reply:?}");
    }
}

#[tokio::test]
async fn idle_connections_do_not_lock_the_controller_out() {
    let (client, key) = controller();
    let peer = agent(&[key]).await;
    let mut idle = Vec::new();
    // From another address, as a stranger would.
    for _ in 0..200 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        idle.push(socket.connect(peer.address).await.unwrap());
    }
    assert_eq!(client.send(peer, Request::get("/a"), LIMIT).await.unwrap().status, 200);
    drop(idle);
}

/// Connects from `source` thirty times a second, until it is aborted, and sends this. Counts connections that end without an
/// answer.
async fn flood(peer: Peer, source: Ipv4Addr, sent: &'static [u8], refused: Arc<AtomicUsize>) {
    loop {
        let refused = refused.clone();
        tokio::spawn(async move {
            let socket = TcpSocket::new_v4()?;
            socket.bind((source, 0).into())?;
            let mut stream = socket.connect(peer.address).await?;
            stream.write_all(sent).await?;
            if !matches!(stream.read(&mut [0; 1]).await, Ok(1)) {
                refused.fetch_add(1, Ordering::Relaxed);
            }
            io::Result::Ok(())
        });
        sleep(Duration::from_millis(33)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_of_the_leader_is_answered_during_a_flood() {
    // Idle connections, and bytes that are not a handshake.
    for sent in [b"".as_slice(), &[0xff; 64]] {
        let (client, key) = controller();
        let peer = agent(&[key]).await;
        let refused = Arc::new(AtomicUsize::new(0));
        let strangers = (2..14).map(|number| Ipv4Addr::new(127, 0, 0, number));
        let flood: Vec<_> = strangers.map(|source| tokio::spawn(flood(peer, source, sent, refused.clone()))).collect();
        // Longer than a handshake may take: idle connections then hold all that they can get.
        for second in 0..8 {
            for _ in 0..4 {
                let get = || client.send(peer, Request::get("/a"), LIMIT);
                let (one, two, three) = tokio::join!(get(), get(), get());
                for answer in [one, two, three] {
                    let status = answer.map(|reply| reply.status).map_err(|error| error.to_string());
                    assert_eq!(status, Ok(200), "second {second}, {} were refused", refused.load(Ordering::Relaxed));
                }
                sleep(Duration::from_millis(250)).await;
            }
        }
        flood.iter().for_each(JoinHandle::abort);
        assert!(refused.load(Ordering::Relaxed) > 0);
    }
}

#[tokio::test]
async fn several_requests_at_once_are_answered() {
    let (client, key) = controller();
    let peer = agent(&[key]).await;
    let requests = (0..6).map(|_| {
        let client = client.clone();
        tokio::spawn(async move { client.send(peer, Request::get("/a"), LIMIT).await.unwrap().status })
    });
    for request in requests.collect::<Vec<_>>() {
        assert_eq!(request.await.unwrap(), 200);
    }
}

/// The bytes that a stream of [`Echo`] has: more than every buffer between the two ends.
const STREAM_BYTES: usize = 64 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn stream_waits_for_its_reader_and_delays_no_other_request() {
    let (client, key) = controller();
    let peer = agent(&[key]).await;
    let written = || WRITTEN.load(Ordering::Relaxed);
    let mut reply = client.open(peer, Request::get("/stream"), LIMIT).await.unwrap();
    assert_eq!(reply.status(), 200);
    // Nothing is read: the writer stops soon, and other requests are answered.
    let mut before = usize::MAX;
    while before != written() {
        before = written();
        for _ in 0..10 {
            assert_eq!(client.send(peer, Request::get("/a"), LIMIT).await.unwrap().status, 200);
        }
    }
    assert!(before < STREAM_BYTES / 4, "{before} bytes wait in buffers");
    let mut read = 0;
    while let Some(bytes) = reply.next(LIMIT).await.unwrap() {
        read += bytes.len();
    }
    assert_eq!(read, STREAM_BYTES);
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_and_refused_streams_are_no_success() {
    let (client, key) = controller();
    let peer = agent(&[key]).await;
    let mut broken = client.open(peer, Request::get("/broken-stream"), LIMIT).await.unwrap();
    // What was written may be lost with the connection.
    let ended = loop {
        match broken.next(LIMIT).await {
            Ok(Some(bytes)) => assert_eq!(bytes, "half".as_bytes()),
            ended => break ended,
        }
    };
    assert!(matches!(ended, Err(SendError::Exchange { .. })), "{ended:?}");
    let mut silent = client.open(peer, Request::get("/silent-stream"), LIMIT).await.unwrap();
    let ended = silent.next(Duration::from_millis(300)).await;
    assert!(matches!(ended, Err(SendError::Slow { .. })), "{ended:?}");
    assert_eq!(client.open(peer, Request::get("/busy-stream"), LIMIT).await.unwrap().status(), 429);
}
