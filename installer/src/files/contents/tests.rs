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

#[test]
fn damage_of_a_power_cut_is_recognized() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let damaged = |name: &str, contents: &[u8]| {
        fs::write(&path, contents).unwrap();
        is_damaged(open_file(&path).unwrap(), name).unwrap()
    };
    let program = fs::read("/proc/self/exe").unwrap();
    let zeroed = |from: usize| [&program[..from], &vec![0; program.len() - from]].concat();
    for healthy in [&program[..], b"#!/bin/sh\n", b"xxxxxxx", &[&[0; 100][..], b"x"].concat()] {
        assert!(!damaged("vcn-native", healthy));
    }
    for cut in
        [b"".to_vec(), vec![0; 100], program[..program.len() / 2].to_vec(), zeroed(4096), zeroed(program.len() - 4096)]
    {
        assert!(damaged("vcn-native", &cut), "{}", cut.len());
        assert!(is_our_plugin(&path).unwrap());
    }
    for healthy in ["{}", r#"{"name":"x"}"#, "{\"name\": \"\u{fffd}\"}"] {
        assert!(!damaged(vcn::CONFLIST_FILE, healthy.as_bytes()));
    }
    for cut in ["", "\0\0\0\0", "{", r#"{"name":"x""#, "null", "[]", "{}\0"] {
        assert!(damaged(vcn::CONFLIST_FILE, cut.as_bytes()), "{cut:?}");
    }
}
