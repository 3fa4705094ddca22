//! The log line of a plugin run: pod, addresses, result and duration. Limited, because a runtime that retries in a loop must
//! not fill the disk.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use backoff::TokenBucket;
use telemetry::VerbRecord;

/// Lines at once: the ADDs of a full node, twice, and their DELs.
const BURST: f64 = 1000.0;

/// Lines per second after that.
const PER_SECOND: f64 = 20.0;

/// Logs plugin runs. Failures have their own limit, so that a flood of successes does not hide them.
#[derive(Debug)]
pub(super) struct RunLog {
    successes: LimitedLog,
    failures: LimitedLog,
}

#[derive(Debug)]
struct LimitedLog {
    limit: TokenBucket,
    dropped: u64,
}

impl RunLog {
    pub(super) fn new(now: Instant) -> Self {
        let limited = || LimitedLog { limit: TokenBucket::new(BURST, PER_SECOND, now), dropped: 0 };
        Self { successes: limited(), failures: limited() }
    }

    /// Logs a run unless the limit is reached; returns whether it did. `late`: the record was read from the file.
    pub(super) fn log(&mut self, record: &VerbRecord, late: bool, now: Instant) -> bool {
        let has_problem = record.code != 0 || !record.message.is_empty();
        let log = if has_problem { &mut self.failures } else { &mut self.successes };
        if !log.limit.take(now) {
            log.dropped = log.dropped.saturating_add(1);
            return false;
        }
        let dropped = std::mem::take(&mut log.dropped);
        if dropped > 0 {
            tracing::warn!(event = "cni.lines_dropped", dropped, "the rate limit of plugin runs was reached");
        }
        let VerbRecord { plugin, verb, network, code, total_micros, unix_millis, .. } = record;
        let known = |text: &String| (!text.is_empty()).then(|| text.clone());
        let (container, interface) = (known(&record.container_id), known(&record.ifname));
        let (namespace, pod) = (record.pod_namespace.as_deref(), record.pod_name.as_deref());
        let (addresses, phases) = (listed(record), phases(record));
        let late = late.then_some(true);
        let clause = clause(record);
        // Level and event name must be constants.
        macro_rules! line {
            ($level:ident, $event:literal) => {
                tracing::$level!(
                    event = $event,
                    plugin,
                    verb,
                    network,
                    container,
                    interface,
                    namespace,
                    pod,
                    addresses,
                    code,
                    total_micros,
                    phases,
                    begun_unix_millis = unix_millis,
                    late,
                    "{clause}"
                )
            };
        }
        match (code, has_problem) {
            (0, false) => line!(info, "cni.done"),
            (0, true) => line!(warn, "cni.done"),
            _ => line!(warn, "cni.failed"),
        }
        true
    }
}

/// For people: `ADD default/web 10.0.4.7 in 1.5 ms`.
fn clause(record: &VerbRecord) -> String {
    let mut text = record.verb.clone();
    // Writing to a String does not fail.
    match (&record.pod_namespace, &record.pod_name) {
        (Some(namespace), Some(pod)) => drop(write!(text, " {namespace}/{pod}")),
        _ if !record.container_id.is_empty() => drop(write!(text, " {}", record.container_id)),
        _ => drop(write!(text, " {}", record.network)),
    }
    if let Some(addresses) = listed(record) {
        let _ = write!(text, " {addresses}");
    }
    if record.code != 0 {
        let _ = write!(text, " failed with {}", record.code);
    }
    let millis = Duration::from_micros(record.total_micros).as_secs_f64() * 1000.0;
    let _ = write!(text, " in {millis:.1} ms");
    if !record.message.is_empty() {
        let _ = write!(text, ": {}", record.message);
    }
    text
}

/// `10.0.4.7,fd00::7 and 3 more`
fn listed(record: &VerbRecord) -> Option<String> {
    let texts: Vec<String> = record.addresses.iter().map(ToString::to_string).collect();
    let more = match record.addresses_left_out {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!texts.is_empty()).then(|| texts.join(",") + &more)
}

/// The phases of a run, in microseconds: `pools=80,ipam=210`. `None` if it has none.
fn phases(record: &VerbRecord) -> Option<String> {
    let texts: Vec<String> = record.phases.iter().map(|(name, micros)| format!("{name}={micros}")).collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(code: u32) -> VerbRecord {
        VerbRecord {
            verb: "ADD".into(),
            container_id: "c1".into(),
            addresses: vec!["10.0.4.7".parse().unwrap(), "fd00::7".parse().unwrap()],
            code,
            phases: vec![("pools".into(), 80), ("ipam".into(), 210)],
            total_micros: 1540,
            ..VerbRecord::default()
        }
    }

    #[test]
    fn line_has_pod_addresses_duration_and_failure() {
        assert_eq!(clause(&record(0)), "ADD c1 10.0.4.7,fd00::7 in 1.5 ms");
        let cut = VerbRecord { addresses_left_out: 3, ..record(0) };
        assert_eq!(clause(&cut), "ADD c1 10.0.4.7,fd00::7 and 3 more in 1.5 ms");
        let (namespace, name) = (Some("default".into()), Some("web".into()));
        let failed = VerbRecord {
            pod_namespace: namespace,
            pod_name: name,
            addresses: Vec::new(),
            message: "no address is free".into(),
            ..record(11)
        };
        assert_eq!(clause(&failed), "ADD default/web failed with 11 in 1.5 ms: no address is free");
        assert_eq!(phases(&failed).unwrap(), "pools=80,ipam=210");
    }

    #[test]
    fn flood_is_limited_and_hides_no_failure() {
        let begun = Instant::now();
        let mut lines = RunLog::new(begun);
        let logged = (0..2000).filter(|_| lines.log(&record(0), false, begun)).count();
        assert_eq!(logged, 1000);
        assert!(lines.log(&record(11), false, begun), "failures have their own limit");
        let later = begun + Duration::from_secs(2);
        assert_eq!((0..2000).filter(|_| lines.log(&record(0), false, later)).count(), 40);
        assert_eq!(lines.successes.dropped, 1960);
    }
}
