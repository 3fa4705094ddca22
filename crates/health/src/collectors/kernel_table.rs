//! The two kinds of tables in /proc/net: a header and a row for each CPU, and `Name: header` above `Name: values`.

/// The sum of a column over all CPUs, of hexadecimal numbers, as in /proc/net/stat.
pub(super) fn sum_hex(text: &str, column: &str) -> Option<f64> {
    let (head, rows) = text.split_once('\n')?;
    let at = head.split_whitespace().position(|name| name == column)?;
    let cell = |row: &str| u32::from_str_radix(row.split_whitespace().nth(at)?, 16).ok();
    rows.lines().map(|row| cell(row).map(f64::from)).sum()
}

/// A value of a protocol, as in /proc/net/snmp.
pub(super) fn value(text: &str, protocol: &str, column: &str) -> Option<f64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(": "));
    let (head, values) = (lines.next()?, lines.next()?);
    let at = head.split(' ').position(|name| name == column)?;
    values.split(' ').nth(at)?.parse().ok()
}
