//! Kubernetes' quantities of memory.

/// A quantity such as `65536000Ki` or `100Mi`, in MiB.
pub fn mebibytes(amount: &str) -> Option<f64> {
    let digits = amount.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match amount.strip_prefix(digits)? {
        "m" => 1e-3 / f64::from(1 << 20),
        "" => 1.0 / f64::from(1 << 20),
        "Ki" => 1.0 / 1024.0,
        "Mi" => 1.0,
        "Gi" => 1024.0,
        "Ti" => 1024.0 * 1024.0,
        "k" => 1e3 / f64::from(1 << 20),
        "M" => 1e6 / f64::from(1 << 20),
        "G" => 1e9 / f64::from(1 << 20),
        "T" => 1e12 / f64::from(1 << 20),
        _ => return None,
    };
    Some(digits.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_with_every_unit() {
        let read =
            ["1048576", "1048576000m", "1024Ki", "1Mi", "1Gi", "1Ti", "1048576k", "100M", "1Gb", ""].map(mebibytes);
        let expected = [1.0, 1.0, 1.0, 1.0, 1024.0, 1048576.0, 1000.0, 100e6 / 1048576.0]
            .map(Some)
            .into_iter()
            .chain([None, None]);
        assert!(expected.eq(read), "{read:?}");
    }
}
