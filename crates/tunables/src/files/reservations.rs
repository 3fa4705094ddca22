//! What a kubelet reserves for the system and keeps free, as one drop-in of its folder. Pure. Where OKE's nodes have these settings:
//! docs/decisions/0032.

use std::collections::BTreeMap;

use api::node_policy::{KUBELET_FOLDER, KubeletReservations};
use serde_json::{Value, json};

use crate::refusal::Refusal;

/// The resources that a kubelet reserves.
const RESOURCES: [&str; 4] = ["cpu", "ephemeral-storage", "memory", "pid"];
/// The signals of which a policy names all or none: a kubelet has no threshold for a signal that its configuration leaves out,
/// once it names another one.
const SIGNALS: [&str; 5] =
    ["imagefs.available", "imagefs.inodesFree", "memory.available", "nodefs.available", "nodefs.inodesFree"];
/// A further signal, which has no threshold by default.
const PID_SIGNAL: &str = "pid.available";
/// The largest part of a node's memory and processors that policies reserve.
const PERCENT_MAX: u128 = 50;

const RESOURCE: Refusal = Refusal {
    reason: "a kubelet reserves cpu, memory, ephemeral-storage and pid only, in quantities such as 500m or 1Gi",
    next_step: "Correct the name or the quantity.",
};
const SIGNAL: Refusal = Refusal {
    reason: "evictionHard needs all five signals of memory, nodefs and imagefs, because a kubelet has no threshold for others",
    next_step: "Name memory.available, nodefs.available, nodefs.inodesFree, imagefs.available and imagefs.inodesFree.",
};
const THRESHOLD: Refusal = Refusal {
    reason: "a threshold is neither a quantity such as 500Mi nor a percentage from 1% to 50%",
    next_step: "Correct the threshold; a threshold of 0 lets a node run out of the resource.",
};
const MEMORY: Refusal = Refusal {
    reason: "the reservations and the threshold take more than half of the node's memory",
    next_step: "Reserve less, or select larger nodes.",
};
const PROCESSORS: Refusal = Refusal {
    reason: "the reservations take more than half of the node's processors",
    next_step: "Reserve less, or select larger nodes.",
};

/// Checks names and quantities.
///
/// # Errors
/// If a kubelet would not start with them, or would lose a threshold.
pub fn check(reservations: &KubeletReservations) -> Result<(), Refusal> {
    let is_resource = |(name, amount): (&String, &String)| {
        RESOURCES.contains(&name.as_str()) && quantity(amount).is_some() && (name != "pid" || is_number(amount))
    };
    if !reservations.system_reserved.iter().chain(&reservations.kube_reserved).all(is_resource) {
        return Err(RESOURCE);
    }
    let names: Vec<&str> =
        reservations.eviction_hard.keys().map(String::as_str).filter(|name| *name != PID_SIGNAL).collect();
    if !reservations.eviction_hard.is_empty() && names != SIGNALS {
        return Err(SIGNAL);
    }
    if !reservations.eviction_hard.values().all(|amount| is_threshold(amount)) {
        return Err(THRESHOLD);
    }
    Ok(())
}

/// Checks that a node of this memory, in bytes, and these logical processors keeps room for pods.
///
/// # Errors
/// If it does not.
pub fn check_capacity(reservations: &KubeletReservations, memory: u64, processors: u64) -> Result<(), Refusal> {
    let memory = u128::from(memory) * 1000;
    let of = |of: &BTreeMap<String, String>, name| of.get(name).and_then(|amount| quantity(amount)).unwrap_or(0);
    let reserved = |name| of(&reservations.system_reserved, name) + of(&reservations.kube_reserved, name);
    let threshold = reservations.eviction_hard.get("memory.available").map_or(0, |amount| match percent(amount) {
        Some(percent) => memory / 10_000 * percent,
        None => quantity(amount).unwrap_or(0),
    });
    if (reserved("memory") + threshold) * 100 > memory * PERCENT_MAX {
        return Err(MEMORY);
    }
    let is_too_much = reserved("cpu") * 100 > u128::from(processors) * 1000 * PERCENT_MAX;
    if is_too_much { Err(PROCESSORS) } else { Ok(()) }
}

/// The flag of a kubelet's command line that sets a field, too: it outranks each drop-in.
pub fn outranked_by<'a>(reservations: &KubeletReservations, command_line: &'a [String]) -> Option<&'a str> {
    let KubeletReservations { system_reserved, kube_reserved, eviction_hard } = reservations;
    // The kubelet takes _ for - in the names of flags.
    let is_set = |name: &str| match name.replace('_', "-").as_str() {
        "system-reserved" => !system_reserved.is_empty(),
        "kube-reserved" => !kube_reserved.is_empty(),
        "eviction-hard" => !eviction_hard.is_empty(),
        // It replaces the processors of both.
        "reserved-cpus" => system_reserved.contains_key("cpu") || kube_reserved.contains_key("cpu"),
        _ => false,
    };
    command_line.iter().filter_map(|argument| flag(argument)).map(|(name, _)| name).find(|name| is_set(name))
}

/// The drop-in: a part of a KubeletConfiguration. JSON is read, too.
pub fn drop_in(reservations: &KubeletReservations) -> String {
    let mut object = serde_json::Map::new();
    object.insert("apiVersion".to_owned(), json!("kubelet.config.k8s.io/v1beta1"));
    object.insert("kind".to_owned(), json!("KubeletConfiguration"));
    if let Value::Object(fields) = json!(reservations) {
        object.extend(fields);
    }
    format!("{:#}\n", Value::Object(object))
}

/// The folder that a kubelet's command line names for drop-ins.
pub fn folder_of(command_line: &[String]) -> Option<&str> {
    command_line.iter().enumerate().rev().find_map(|(index, argument)| match flag(argument)? {
        ("config-dir", Some(folder)) => Some(folder),
        ("config-dir", None) => command_line.get(index + 1).map(String::as_str),
        _ => None,
    })
}

/// A drop-in of the kubelet's unit that adds [`KUBELET_FOLDER`] to its command line. `start` is the one command of ExecStart, as systemd
/// reports it; `None` if it is empty or has characters that systemd does not read back alike.
pub fn unit_drop_in(start: &[String]) -> Option<String> {
    let (program, arguments) = start.split_first()?;
    let flag = format!("--config-dir={KUBELET_FOLDER}");
    let words = arguments.iter().chain([&flag]).map(|word| quoted(word)).collect::<Option<Vec<_>>>()?;
    let program = program.starts_with('/').then(|| quoted(program))??;
    Some(format!("[Service]\nExecStart=\nExecStart={program} {}\n", words.join(" ")))
}

/// A word of a command in a unit's file. systemd expands variables when it starts the program, and has expanded specifiers before.
fn quoted(word: &str) -> Option<String> {
    if word.chars().any(char::is_control) {
        return None;
    }
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    let is_plain =
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._=:,@+-${}".contains(&byte));
    Some(if is_plain { escaped } else { format!("\"{escaped}\"") })
}

/// A flag's name, and its value if the argument has it. Other words are values of the flag before.
fn flag(argument: &str) -> Option<(&str, Option<&str>)> {
    let name = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))?;
    match name.split_once('=') {
        Some((name, value)) => Some((name, Some(value))),
        None => Some((name, None)),
    }
}

fn is_number(amount: &str) -> bool {
    amount.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_threshold(amount: &str) -> bool {
    match percent(amount) {
        Some(percent) => (100..=5000).contains(&percent),
        None => quantity(amount).is_some_and(|amount| amount > 0),
    }
}

/// A percentage, in hundredths of a percent.
fn percent(amount: &str) -> Option<u128> {
    let (whole, part) = decimal(amount.strip_suffix('%')?, 2)?;
    Some(whole * 100 + part)
}

/// A quantity, in thousandths.
fn quantity(amount: &str) -> Option<u128> {
    let digits = amount.trim_end_matches(|char: char| char.is_ascii_alphabetic());
    let factor: u128 = match amount.strip_prefix(digits)? {
        "m" => 1,
        "" => 1000,
        "k" => 1_000_000,
        "M" => 1_000_000_000,
        "G" => 1_000_000_000_000,
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        _ => return None,
    };
    let (whole, part) = decimal(digits, 3)?;
    Some(whole * factor + part * factor / 1000)
}

/// The digits before a period, and the given number of digits after it.
fn decimal(text: &str, places: usize) -> Option<(u128, u128)> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_short = |digits: &str, most: usize| !digits.is_empty() && digits.len() <= most && is_number(digits);
    if !is_short(whole, 12) || !is_short(part, places) {
        return None;
    }
    Some((whole.parse().ok()?, format!("{part:0<places$}").parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reservations(system: &[(&str, &str)], kube: &[(&str, &str)], eviction: &[(&str, &str)]) -> KubeletReservations {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        KubeletReservations { system_reserved: map(system), kube_reserved: map(kube), eviction_hard: map(eviction) }
    }

    fn thresholds(memory: &str) -> KubeletReservations {
        let others = SIGNALS.map(|signal| (signal, if signal == "memory.available" { memory } else { "10%" }));
        reservations(&[], &[], &others)
    }

    fn line(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn kubelet_would_start_with_what_is_accepted() {
        for good in [
            reservations(
                &[("cpu", "500m"), ("memory", "1.5Gi"), ("ephemeral-storage", "1Gi"), ("pid", "1000")],
                &[],
                &[],
            ),
            reservations(&[], &[("cpu", "0.25"), ("memory", "300M")], &[]),
            thresholds("500Mi"),
            thresholds("5.5%"),
        ] {
            assert_eq!(check(&good), Ok(()), "{good:?}");
        }
        for bad in [
            ("gpu", "1"),
            ("memory", "1Gb"),
            ("memory", "-1Gi"),
            ("memory", "1e3"),
            ("cpu", ""),
            ("pid", "1k"),
            ("cpu", ".5"),
        ] {
            assert_eq!(check(&reservations(&[bad], &[], &[])), Err(RESOURCE), "{bad:?}");
        }
        for bad in ["0", "0%", "51%", "100%", "x", "10%%", "-5%"] {
            assert_eq!(check(&thresholds(bad)), Err(THRESHOLD), "{bad}");
        }
    }

    #[test]
    fn thresholds_name_every_signal_or_none() {
        assert_eq!(check(&reservations(&[], &[], &[("memory.available", "500Mi")])), Err(SIGNAL));
        let mut more = thresholds("500Mi");
        more.eviction_hard.insert(PID_SIGNAL.to_owned(), "5%".to_owned());
        assert_eq!(check(&more), Ok(()));
        more.eviction_hard.insert("containerfs.available".to_owned(), "5%".to_owned());
        assert_eq!(check(&more), Err(SIGNAL));
    }

    #[test]
    fn node_keeps_half_of_its_memory_and_processors_for_pods() {
        let check_memory = |of: &KubeletReservations, memory| check_capacity(of, memory, 4);
        let two = reservations(&[("cpu", "1500m")], &[("cpu", "0.5")], &[]);
        assert_eq!(check_capacity(&two, 1 << 30, 4), Ok(()));
        assert_eq!(check_capacity(&two, 1 << 30, 3), Err(PROCESSORS));
        let gibibytes = |count: u64| count << 30;
        let mut half = reservations(&[("memory", "1Gi")], &[("memory", "2Gi")], &[]);
        half.eviction_hard = thresholds("1Gi").eviction_hard;
        assert_eq!(check_memory(&half, gibibytes(8)), Ok(()));
        assert_eq!(check_memory(&half, gibibytes(8) - 1), Err(MEMORY));
        assert_eq!(check_memory(&thresholds("50%"), gibibytes(8)), Ok(()));
        half.eviction_hard = thresholds("20%").eviction_hard;
        assert_eq!(check_memory(&half, gibibytes(8)), Err(MEMORY));
        assert_eq!(check_memory(&half, gibibytes(16)), Ok(()));
    }

    #[test]
    fn flag_that_outranks_the_drop_in_is_named() {
        let oke = line("/usr/bin/kubelet --config=/etc/kubernetes/kubelet-config.json --kube-reserved=cpu=500m --v 2");
        assert_eq!(outranked_by(&reservations(&[], &[("cpu", "1")], &[]), &oke), Some("kube-reserved"));
        assert_eq!(outranked_by(&reservations(&[("cpu", "1")], &[], &[]), &oke), None);
        let spaced = line("kubelet -eviction-hard memory.available<1Gi --node-labels=a=--system-reserved=x");
        assert_eq!(outranked_by(&thresholds("1Gi"), &spaced), Some("eviction-hard"));
        assert_eq!(outranked_by(&reservations(&[("cpu", "1")], &[], &[]), &spaced), None);
        let pinned = line("kubelet --reserved_cpus=0-1");
        assert_eq!(outranked_by(&reservations(&[("cpu", "1")], &[], &[]), &pinned), Some("reserved_cpus"));
        assert_eq!(outranked_by(&reservations(&[("memory", "1Gi")], &[], &[]), &pinned), None);
    }

    #[test]
    fn folder_is_the_last_one_of_the_command_line() {
        assert_eq!(folder_of(&line("kubelet --config-dir=/a --config-dir /b --v=2")), Some("/b"));
        assert_eq!(folder_of(&line("kubelet --config=/a")), None);
    }

    #[test]
    fn drop_in_has_what_is_named_and_nothing_else() {
        let text = drop_in(&reservations(&[("cpu", "500m")], &[], &[]));
        let read: Value = serde_json::from_str(&text).unwrap();
        let expected = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "systemReserved": { "cpu": "500m" }
        });
        assert_eq!(read, expected);
    }

    #[test]
    fn unit_starts_the_same_command_with_the_folder() {
        let start = ["/usr/bin/kubelet", "--v=2", "$KUBELET_EXTRA_ARGS", "--x=a b\"c\\%"].map(str::to_owned);
        let expected = "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --v=2 $KUBELET_EXTRA_ARGS \"--x=a b\\\"c\\\\%%\" \
                        --config-dir=/etc/kubernetes/kubelet.conf.d\n";
        assert_eq!(unit_drop_in(&start).unwrap(), expected);
        for odd in [&[][..], &["kubelet".to_owned()], &["/usr/bin/kubelet".to_owned(), "a\nExecStartPre=/x".to_owned()]]
        {
            assert_eq!(unit_drop_in(odd), None, "{odd:?}");
        }
    }
}
