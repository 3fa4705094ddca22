//! Lines of a file in sysctl.d. systemd-sysctl sets them as root on the host, so a file could do what a policy's `sysctls` must not.

use crate::keys;
use crate::refusal::Refusal;

const FORM: Refusal = Refusal {
    reason: "a line is neither a comment nor one setting with its value",
    next_step: "Write each setting as KEY = VALUE, without wildcards.",
};

/// What the agent and the kubelet set, and a value that only takes rights away: usual lines of files for Kubernetes nodes.
const SAFE: [(&str, &str); 8] = [
    ("fs.suid_dumpable", "0"),
    ("kernel.keys.root_maxbytes", "25000000"),
    ("kernel.keys.root_maxkeys", "1000000"),
    ("kernel.panic", "10"),
    ("kernel.panic_on_oops", "1"),
    ("net.ipv4.ip_forward", "1"),
    ("vm.overcommit_memory", "1"),
    ("vm.panic_on_oom", "0"),
];

/// Checks each line.
///
/// # Errors
/// If one could run a program, or sets what the agent or the kubelet sets; or if it has another form.
pub(super) fn check(content: &str) -> Result<(), Refusal> {
    content.lines().try_for_each(check_line)
}

fn check_line(line: &str) -> Result<(), Refusal> {
    let line = line.trim();
    if line.is_empty() || line.starts_with(['#', ';']) {
        return Ok(());
    }
    let (name, value) = line.split_once('=').ok_or(FORM)?;
    // A leading - makes systemd-sysctl ignore errors.
    let name = name.trim();
    let key = key(name.strip_prefix('-').unwrap_or(name).trim()).ok_or(FORM)?;
    if value.trim().is_empty() {
        return Err(FORM);
    }
    match keys::is_refused_in_files(&key) {
        Some(refusal) if !SAFE.contains(&(key.as_str(), value.trim())) => Err(refusal),
        _ => Ok(()),
    }
}

/// With periods between the parts, as systemd reads it: the first separator decides what the others are.
fn key(name: &str) -> Option<String> {
    let is_char = |char: char| char.is_ascii_alphanumeric() || "._-/".contains(char);
    let first = name.find(['.', '/'])?;
    let path = match name.get(first..)?.starts_with('/') {
        true => name.to_owned(),
        false => name
            .chars()
            .map(|char| {
                if char == '.' {
                    '/'
                } else if char == '/' {
                    '.'
                } else {
                    char
                }
            })
            .collect(),
    };
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    (name.chars().all(is_char) && path.split('/').all(is_part)).then(|| path.replace('/', "."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_settings_are_accepted_in_each_notation() {
        let content = "# comment\n; comment\n\nvm.max_map_count = 262144\n-net/core/somaxconn=16384\n\tvm.nr_hugepages=8\n\
                       kernel.pid_max = 4194304\nnet.ipv4.conf.eth0/100.log_martians = 1\nnet.ipv4.ip_forward=1\n\
                       vm.overcommit_memory = 1\nkernel.panic = 10\nfs/suid_dumpable=0\n";
        assert_eq!(check(content), Ok(()));
    }

    #[test]
    fn line_that_runs_programs_or_takes_over_settings_is_refused() {
        for line in [
            "kernel.core_pattern = |/bin/sh",
            "kernel/core_pattern=|/bin/sh",
            "-kernel.modprobe=/tmp/x",
            " kernel.modprobe = /tmp/x",
            "fs/binfmt_misc/register=:x:",
            "net.ipv4.ip_forward = 0",
            "net.ipv4.conf.all.rp_filter = 1",
            "net/ipv4/conf/eth0.100/rp_filter = 1",
            "net.ipv4.conf.eth0/100.rp_filter = 1",
            "kernel.panic = 0",
            "kernel.core_*=|/bin/sh",
            "net.ipv4.conf.*.rp_filter=1",
            "kernel//core_pattern=|/bin/sh",
            "kernel/../kernel/core_pattern=|/bin/sh",
            "../sys/kernel/core_pattern=x",
            "vm.swappiness",
            "vm.swappiness =",
            "-vm.swappiness",
            "= 1",
            "vm = 1",
            "include /etc/x",
        ] {
            assert!(check(&format!("vm.swappiness = 10\n{line}\n")).is_err(), "{line}");
        }
    }
}
