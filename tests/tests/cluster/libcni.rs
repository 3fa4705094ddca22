//! libcni, by which containerd and CRI-O load configurations, gives the verdicts that the installer's reader is tested with:
//! `installer/golden/libcni.txt`. `UPDATE_GOLDEN=1` writes them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::root;

/// The program that tests/libcni/build built.
fn judge() -> PathBuf {
    let output = Command::new(root().join("tests/libcni/build")).arg("--where").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().into()
}

/// A line is `VERDICT FILE TEXT`, or `+ FILE TEXT` for another file in the directory of the line before.
#[test]
fn recorded_verdicts_are_those_of_libcni() {
    let (path, directory) = (root().join("installer/golden/libcni.txt"), tempfile::tempdir().unwrap());
    let recorded = fs::read_to_string(&path).unwrap();
    let lines: Vec<Vec<&str>> = recorded.lines().map(|line| line.splitn(3, ' ').collect()).collect();
    let (mut judged, mut place) = (Vec::new(), PathBuf::new());
    for (at, line) in lines.iter().enumerate() {
        if line[0] != "+" {
            place = directory.path().join(at.to_string());
            judged.push(place.join(line[1]));
        }
        let file = place.join(line[1]);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, line[2].replace('\u{2400}', "\0")).unwrap();
    }
    let output = Command::new(judge()).args(&judged).output().unwrap();
    let verdicts = String::from_utf8(output.stdout).unwrap();
    assert_eq!(verdicts.lines().count(), judged.len(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut verdicts = verdicts.lines();
    let lines = lines.iter().map(|line| match line[0] {
        "+" => line.join(" ") + "\n",
        _ => format!("{} {} {}\n", verdicts.next().unwrap(), line[1], line[2]),
    });
    let lines: String = lines.collect();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &lines).unwrap();
    }
    assert_eq!(lines, fs::read_to_string(&path).unwrap());
    assert!(judged.len() > 300);
}
