//! When a copy is written, removed and rejected.

use super::*;

fn at(minutes: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_mins(minutes)
}

fn read(copy: &CachedCopy) -> Option<(String, Duration)> {
    let answer: Option<CachedAnswer<String>> = copy.read().unwrap();
    answer.map(|answer| (answer.value.clone(), answer.age(at(500))))
}

#[test]
fn copy_is_written_when_answer_changes_or_ages_an_hour() {
    let folder = tempfile::tempdir().unwrap();
    let mut copy = CachedCopy::new(folder.path(), "copy.json");
    assert_eq!(read(&copy), None);
    let mut store = |value: &str, minutes| {
        copy.store(Some(value), at(minutes)).unwrap();
        let written = read(&copy);
        let _ = fs::remove_file(copy.path());
        written
    };
    let written = |value: &str, minutes: u64| Some((value.to_owned(), Duration::from_mins(500 - minutes)));
    assert_eq!(store("a", 100), written("a", 100));
    assert_eq!([store("a", 41), store("a", 159)], [None, None]);
    assert_eq!(store("a", 160), written("a", 160));
    assert_eq!(store("a", 100), written("a", 100), "the clock was set back");
    assert_eq!(store("b", 100), written("b", 100));
    assert_eq!(store("b", 700), Some(("b".to_owned(), Duration::ZERO)), "it is from the future");
}

#[test]
fn failed_write_or_removal_is_retried_by_the_next_call() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lib");
    let mut copy = CachedCopy::new(&place, "copy.json");
    for _ in 0..2 {
        let error = copy.store(Some("a"), at(1)).unwrap_err();
        assert!(error.starts_with(&format!("writing {}: ", copy.path().display())), "{error}");
    }
    fs::create_dir(&place).unwrap();
    copy.store(Some("a"), at(1)).unwrap();
    assert_eq!(read(&copy).unwrap().0, "a");
    for _ in 0..2 {
        copy.store::<str>(None, at(2)).unwrap();
        assert_eq!(read(&copy), None);
    }
    fs::create_dir(copy.path()).unwrap();
    assert!(copy.store::<str>(None, at(2)).unwrap_err().starts_with("removing "));
}

#[test]
fn damaged_copy_and_newer_format_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let copy = CachedCopy::new(folder.path(), "copy.json");
    for text in [r#"{"version": 1,"#, r#"{"version": 2, "asOfUnixMillis": 0, "bootId": null, "value": "a"}"#] {
        fs::write(copy.path(), text).unwrap();
        assert!(copy.read::<String>().is_err());
    }
}
