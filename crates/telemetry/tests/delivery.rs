//! A record reaches the agent if one listens, the file if not, and never holds a plugin up.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail by panicking, its helper functions too")]

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use telemetry::{Delivery, LINE_LIMIT, Listener, Sink, VerbRecord, log_path, read_log, take_log};

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn record(container: impl ToString) -> VerbRecord {
    VerbRecord { container_id: container.to_string(), ..VerbRecord::begin("vcn-native", "0.1.0", "ADD") }
}

fn containers(dir: &Path) -> Vec<String> {
    read_log(dir).unwrap().into_iter().map(|record| record.container_id).collect()
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_record_reaches_a_listening_agent_and_leaves_no_file() {
    let dir = dir();
    let listener = Listener::bind(dir.path()).unwrap();
    assert_eq!(listener.recv().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(Sink::new(dir.path()).send(&record("a")), Delivery::Agent);
    assert_eq!(listener.recv().unwrap().container_id, "a");
    assert!(!log_path(dir.path()).exists());
    assert_eq!(mode(&dir.path().join("telemetry.sock")), 0o600);
}

#[test]
fn without_an_agent_the_record_goes_to_a_private_file() {
    let dir = dir();
    assert_eq!(Sink::new(dir.path()).send(&record("a")), Delivery::Log);
    assert_eq!(containers(dir.path()), ["a"]);
    assert_eq!(mode(&log_path(dir.path())), 0o600);
}

#[test]
fn a_dead_agents_socket_is_passed_by_and_then_replaced() {
    let dir = dir();
    drop(UnixDatagram::bind(dir.path().join("telemetry.sock")).unwrap());
    let sink = Sink::new(dir.path());
    assert_eq!(sink.send(&record("a")), Delivery::Log);
    let listener = Listener::bind(dir.path()).unwrap();
    assert_eq!(sink.send(&record("b")), Delivery::Agent);
    assert_eq!(listener.recv().unwrap().container_id, "b");
}

#[test]
fn newer_agent_takes_over_and_exit_of_older_is_harmless() {
    let dir = dir();
    let older = Listener::bind(dir.path()).unwrap();
    let newer = Listener::bind(dir.path()).unwrap();
    drop(older);
    assert_eq!(Sink::new(dir.path()).send(&record("a")), Delivery::Agent);
    assert_eq!(newer.recv().unwrap().container_id, "a");
    drop(newer);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn slow_agent_delays_no_writer_and_loses_no_record() {
    let dir = dir();
    let listener = Listener::bind(dir.path()).unwrap();
    let sink = Sink::new(dir.path());
    let start = Instant::now();
    let sent: Vec<_> = (0..2000).map(|number| sink.send(&record(number))).collect();
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    let to_agent = sent.iter().filter(|delivery| **delivery == Delivery::Agent).count();
    assert!(to_agent > 0 && to_agent < sent.len(), "the buffer must have filled: {to_agent}");
    let mut got = containers(dir.path());
    while let Ok(record) = listener.recv() {
        got.push(record.container_id);
    }
    got.sort_by_key(|number| number.parse::<usize>().unwrap());
    assert_eq!(got, (0..2000).map(|number| number.to_string()).collect::<Vec<_>>());
}

#[test]
fn missing_or_unwritable_directory_loses_only_the_record() {
    let dir = dir();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    // Root may write anywhere; /proc takes no files.
    for bad in [dir.path().join("missing"), file, "/proc".into(), dir.path().join("x".repeat(200))] {
        assert_eq!(Sink::new(&bad).send(&record("a")), Delivery::Lost, "{}", bad.display());
        assert!(Listener::bind(&bad).is_err(), "{}", bad.display());
    }
}

#[test]
fn symlink_or_pipe_in_place_of_log_is_never_written() {
    let dir = dir();
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, log_path(dir.path())).unwrap();
    assert_eq!(Sink::new(dir.path()).send(&record("a")), Delivery::Lost);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");

    fs::remove_file(log_path(dir.path())).unwrap();
    nix::unistd::mkfifo(&log_path(dir.path()), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    assert_eq!(Sink::new(dir.path()).send(&record("a")), Delivery::Lost, "and it did not wait for a reader");
}

#[test]
fn foreign_datagrams_are_distinguished_from_records() {
    let dir = dir();
    let listener = Listener::bind(dir.path()).unwrap();
    let stranger = UnixDatagram::unbound().unwrap();
    let mut long = record("a").to_line().trim_end().to_owned();
    long.push_str(&" ".repeat(LINE_LIMIT));
    long.push('x');
    for datagram in [&b""[..], b"hello", b"{\"code\":-1}", b"\xff", long.as_bytes()] {
        stranger.send_to(datagram, dir.path().join("telemetry.sock")).unwrap();
        assert_eq!(listener.recv().unwrap_err().kind(), ErrorKind::InvalidData);
    }
    assert_eq!(Sink::new(dir.path()).send(&record("b")), Delivery::Agent);
    assert_eq!(listener.recv().unwrap().container_id, "b");
}

#[test]
fn the_file_is_bounded_and_the_older_generation_is_kept() {
    let dir = dir();
    let sink = Sink::new(dir.path()).with_log_limit(10_000);
    for number in 0..200 {
        assert_eq!(sink.send(&record(number)), Delivery::Log);
    }
    for name in ["verbs.log", "verbs.log.1"] {
        let size = fs::metadata(dir.path().join(name)).unwrap().len();
        assert!((1..=10_000).contains(&size), "{name}: {size}");
    }
    let kept: Vec<usize> = containers(dir.path()).iter().map(|number| number.parse().unwrap()).collect();
    assert_eq!(kept, (200 - kept.len()..200).collect::<Vec<_>>(), "the newest, in order, without a gap");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

fn taken(dir: &Path) -> Vec<String> {
    let mut containers = Vec::new();
    match take_log(dir, |record| containers.push(record.container_id)) {
        Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
        _ => containers,
    }
}

#[test]
fn logged_records_are_taken_once_and_in_order() {
    let dir = dir();
    let sink = Sink::new(dir.path()).with_log_limit(1000);
    let mut sent = 0;
    while !dir.path().join("verbs.log.1").exists() {
        assert_eq!(sink.send(&record(sent)), Delivery::Log);
        sent += 1;
    }
    assert_eq!(taken(dir.path()), (0..sent).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(taken(dir.path()), [""; 0]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    sink.send(&record("later"));
    // As if an agent had been killed while it took.
    fs::rename(log_path(dir.path()), dir.path().join("verbs.log.taken")).unwrap();
    sink.send(&record("last"));
    assert_eq!(taken(dir.path()), ["later", "last"]);
}

#[test]
fn concurrent_writes_lose_no_record_while_files_are_taken() {
    let dir = dir();
    let (writers, each) = (4, 200);
    // A generation holds 40 lines. What is taken when more are there comes from both; were it taken when 80 are, the older
    // one would have been overwritten, so the writers wait where 60 are.
    let (generation, most) = (40, 60);
    let limit = record("w0-000").to_line().len() as u64 * generation as u64;
    let (sent, read) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let waiting = || sent.load(Ordering::SeqCst) - read.load(Ordering::SeqCst);
    let patient_until = Instant::now() + Duration::from_secs(60);
    let (mut got, mut rotated) = (Vec::new(), 0);
    thread::scope(|scope| {
        let writer = |writer: usize| {
            let sink = Sink::new(dir.path()).with_log_limit(limit);
            for number in 0..each {
                while waiting() >= most {
                    assert!(Instant::now() < patient_until, "{} lines are missing", waiting());
                    thread::yield_now();
                }
                sent.fetch_add(1, Ordering::SeqCst);
                assert_eq!(sink.send(&record(format!("w{writer}-{number:03}"))), Delivery::Log);
            }
        };
        let writing: Vec<_> = (0..writers).map(|number| scope.spawn(move || writer(number))).collect();
        let ended = || writing.iter().all(thread::ScopedJoinHandle::is_finished);
        for round in 0.. {
            // After one, after nearly all, and after anything between.
            while waiting() <= round * 7 % most && !ended() {
                thread::yield_now();
            }
            if ended() {
                break;
            }
            rotated += usize::from(dir.path().join("verbs.log.1").exists());
            got.extend(taken(dir.path()));
            read.store(got.len(), Ordering::SeqCst);
        }
    });
    assert!(rotated > 0, "all was taken before a generation was full");
    got.extend(taken(dir.path()));
    got.sort();
    let mut expected: Vec<_> = (0..writers).flat_map(|w| (0..each).map(move |n| format!("w{w}-{n:03}"))).collect();
    expected.sort();
    assert_eq!(got, expected);
}

/// Runs on a thread with mounts of its own, so that a file system can be made that is full or read-only.
fn on_file_system(options: &str, act: impl FnOnce(&Path) + Send) {
    use nix::mount::{MsFlags, mount};
    let dir = dir();
    let path = dir.path();
    let work = || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
        mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::empty(), Some(options)).unwrap();
        act(path);
    };
    thread::scope(|scope| scope.spawn(work).join().unwrap());
}

#[test]
fn read_only_state_directory_still_allows_delivery_to_an_agent() {
    on_file_system("size=1m", |dir| {
        use nix::mount::{MsFlags, mount};
        let listener = Listener::bind(dir).unwrap();
        mount(None::<&str>, dir, None::<&str>, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, None::<&str>).unwrap();
        let start = Instant::now();
        assert_eq!(Sink::new(dir).send(&record("a")), Delivery::Agent);
        assert_eq!(listener.recv().unwrap().container_id, "a");
        let sent: Vec<_> = (0..2000).map(|number| Sink::new(dir).send(&record(number))).collect();
        assert_eq!(sent.last(), Some(&Delivery::Lost), "the queue is full and there is no other way");
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    });
}

#[test]
fn a_full_state_directory_costs_records_and_nothing_else() {
    on_file_system("size=8k", |dir| {
        let sent: Vec<_> = (0..200).map(|number| Sink::new(dir).send(&record(number))).collect();
        assert_eq!((sent.first(), sent.last()), (Some(&Delivery::Log), Some(&Delivery::Lost)));
        let kept = sent.iter().filter(|delivery| **delivery == Delivery::Log).count();
        assert_eq!(taken(dir).len(), kept);
        assert_eq!(Sink::new(dir).send(&record("again")), Delivery::Log, "as soon as there is room");
    });
}

#[test]
fn damaged_lines_are_left_out_when_the_file_is_read() {
    let dir = dir();
    let sink = Sink::new(dir.path());
    sink.send(&record("a"));
    let mut text = fs::read(log_path(dir.path())).unwrap();
    text.extend_from_slice(b"{\"verb\":\"AD\n\xff\xfe\n\n");
    fs::write(log_path(dir.path()), &text).unwrap();
    sink.send(&record("b"));
    assert_eq!(containers(dir.path()), ["a", "b"]);
    assert_eq!(read_log(&dir.path().join("missing")).unwrap(), []);
}

#[test]
fn huge_log_is_read_only_up_to_two_limits() {
    let dir = dir();
    assert_eq!(Sink::new(dir.path()).send(&record("a")), Delivery::Log);
    // A line that does not end.
    File::options().write(true).open(log_path(dir.path())).unwrap().set_len(3 << 30).unwrap();
    assert_eq!(containers(dir.path()), ["a"]);
    let mut taken = Vec::new();
    assert_eq!(take_log(dir.path(), |record| taken.push(record.container_id)).unwrap(), 1);
    assert!(taken == ["a"] && !log_path(dir.path()).exists());
}
