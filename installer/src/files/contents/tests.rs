//! Our mark, wherever it is.

use std::fs;

use super::*;

#[test]
fn mark_is_found_anywhere_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plugin");
    let is_ours = |before: usize, mark: &str| {
        fs::write(&path, ["x".repeat(before).as_str(), mark, "\0"].concat()).unwrap();
        is_our_plugin(&path).unwrap()
    };
    for mark in vcn::PLUGIN_MARKS {
        assert!([0, PIECE - 1, PIECE, 2 * PIECE - 20].into_iter().all(|before| is_ours(before, mark)));
        assert!(!is_ours(PIECE, &mark[1..]));
    }
}
