//! The engine: collectors that hang, and all collectors on this machine.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use health::collectors::KINDS;
use health::engine::{Engine, Now, RulesFiles};
use health::hardware::messages::{Reader, Subsystem};
use health::host::Carrier;
use health::kernel_log::{Record, records};
use health::system::{Machine, System as _};
use health::{Area, Facts, Gap, Host, Kind, Report, Sample, Signal, Unit, Verdict};

const fn signal(name: &'static str) -> Signal {
    Signal { name, unit: Unit::Count, source: "a test", why: "-", remedy: "-" }
}

static GATE_OPEN: AtomicBool = AtomicBool::new(false);
static STARTED: AtomicUsize = AtomicUsize::new(0);

/// Hangs until the gate opens, as a read from a file system that is gone.
fn hangs(_: &Host, sample: &mut Sample) -> Result<(), Gap> {
    STARTED.fetch_add(1, Ordering::SeqCst);
    while !GATE_OPEN.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
    sample.value("hangs", 1.0, "");
    Ok(())
}

fn works(_: &Host, sample: &mut Sample) -> Result<(), Gap> {
    sample.value("works", 1.0, "");
    Ok(())
}

fn machine() -> Host {
    Host {
        proc: "/proc".into(),
        sys: "/sys".into(),
        root: "/".into(),
        facts: Arc::default(),
        system: Arc::new(Machine),
        now: Instant::now(),
    }
}

fn at(begun: Instant, seconds: u64) -> Now {
    Now { instant: begun + Duration::from_secs(seconds), unix_millis: seconds * 1000 }
}

/// Steps at one time until a result is as wanted.
fn until(engine: &mut Engine, now: Now, is_reached: impl Fn(&Report) -> bool) {
    let begun = Instant::now();
    loop {
        engine.step(now, Facts::default);
        if is_reached(&engine.report()) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(180), "{:#?}", engine.report());
        engine.wait(now.instant);
    }
}

#[test]
fn a_collector_that_hangs_is_unknown_and_delays_no_other() {
    const EVERY: Duration = Duration::from_secs(60);
    const KINDS: &[Kind] = &[
        Kind {
            area: Area::Host,
            name: "hangs",
            signals: &[signal("hangs")],
            every: EVERY,
            privilege: "-",
            collect: hangs,
        },
        Kind {
            area: Area::Host,
            name: "works",
            signals: &[signal("works")],
            every: EVERY,
            privilege: "-",
            collect: works,
        },
    ];
    let host = machine();
    let begun = host.now;
    let mut engine = Engine::new(KINDS, host, RulesFiles::default(), || 0.0);
    let state = |report: &Report, name: &str| report.signals.iter().find(|state| state.signal == name).cloned();
    let sampled = |report: &Report, name: &str| state(report, name).map(|state| state.sampled_unix_millis);
    until(&mut engine, at(begun, 20), |report| sampled(report, "works") == Some(20_000));
    assert_eq!(sampled(&engine.report(), "hangs"), None);
    until(&mut engine, at(begun, 26), |report| sampled(report, "hangs") == Some(26_000));
    let hangs = state(&engine.report(), "hangs").unwrap();
    assert_eq!(
        (hangs.verdict, hangs.detail.as_str()),
        (Verdict::Unknown, "the collector hangs has not returned for 5 s")
    );
    for seconds in [100, 200, 300] {
        until(&mut engine, at(begun, seconds), |report| sampled(report, "works") == Some(seconds * 1000));
    }
    assert_eq!(STARTED.load(Ordering::SeqCst), 1, "it is not started again until it returns");
    GATE_OPEN.store(true, Ordering::SeqCst);
    until(&mut engine, at(begun, 300), |report| state(report, "hangs").is_some_and(|it| it.value == Some(1.0)));
}

/// The newest message that the kernel of this machine has logged about a device that collectors read, not of programs and disks;
/// none where the log may not be read.
fn newest_message() -> Option<f64> {
    let log = records(&Machine.kernel_log().ok()?);
    let mut reader = Reader::default();
    let is_of_device = |record: &&Record| {
        let found = reader.read(record);
        !found.code.is_empty() && !matches!(found.subsystem, Subsystem::Machine | Subsystem::Storage)
    };
    log.iter().filter(is_of_device).filter_map(|record| record.at).next_back()
}

#[test]
fn carrier_of_a_real_link_has_three_states() {
    let folder = tempfile::tempdir().unwrap();
    let sys = folder.path().to_str().unwrap().to_owned();
    let run = |command: &str| {
        let words: Vec<&str> = command.split(' ').collect();
        assert!(Command::new(words[0]).args(&words[1..]).status().unwrap().success(), "{command}");
    };
    run(&format!("mount -t sysfs sysfs {sys}"));
    run("ip link add carrier0 type veth peer name carrier1");
    let host = Host { sys: sys.clone().into(), ..machine() };
    assert_eq!(host.carrier("carrier0"), Ok(Carrier::AdministrativelyDown));
    run("ip link set carrier0 up");
    assert_eq!(host.carrier("carrier0"), Ok(Carrier::Absent));
    run("ip link set carrier1 up");
    let begun = Instant::now();
    while host.carrier("carrier0") != Ok(Carrier::Present) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", host.carrier("carrier0"));
    }
    run("ip link delete carrier0");
    assert!(host.carrier("carrier0").is_err());
    run(&format!("umount {sys}"));
}

#[test]
fn all_collectors_run_on_this_machine_and_add_no_kernel_message() {
    let newest = newest_message();
    let host = machine();
    let begun = host.now;
    let mut engine = Engine::new(KINDS, host, RulesFiles::default(), || 0.0);
    let signals = health::collectors::signals().count();
    for seconds in [20, 340] {
        let current = move |report: &Report| {
            report.signals.iter().filter(|state| state.sampled_unix_millis == seconds * 1000).count() == signals
        };
        until(&mut engine, at(begun, seconds), current);
    }
    let report = engine.report();
    let value = |name: &str| report.signals.iter().find(|state| state.signal == name).and_then(|state| state.value);
    assert!(value("open_files").is_some_and(|share| share > 0.0 && share < 100.0), "{report:#?}");
    assert!(value("softnet_drops").is_some(), "{report:#?}");
    assert_eq!(newest_message(), newest, "no read of a collector makes the kernel report a device");
}
