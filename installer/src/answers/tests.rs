//! Plugins that count how often they are asked, that hang, and that become others.

use std::sync::mpsc;

use tempfile::TempDir;

use super::*;

const SOUND: &str = r#"echo '{"supportedVersions":["1.0.0"]}'"#;

/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

struct Plugins {
    directory: TempDir,
}

impl Plugins {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&directory.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        Self { directory }
    }

    /// A plugin that notes that it was asked.
    fn write(&self, name: &str, script: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        sandbox::write_program(&path, format!("#!/bin/sh\necho >>$0.asked\n{script}\n").as_bytes()).unwrap();
        path
    }

    fn hanging(&self, name: &str) -> PathBuf {
        self.write(name, "read line <${0%/*}/pipe")
    }
}

fn asked(path: &Path) -> usize {
    fs::read_to_string(path.with_file_name(format!("{}.asked", path.file_name().unwrap().display())))
        .map_or(0, |text| text.lines().count())
}

fn speaks() -> Answer {
    Answer::Speaks(["1.0.0".parse().unwrap()].into())
}

fn beside() -> (Answers, mpsc::Receiver<()>) {
    let (told, tellings) = mpsc::channel();
    // The test may be over by then.
    (Answers::beside(|| 1.0, move || _ = told.send(())), tellings)
}

fn unanswered() -> Answer {
    Answer::Refused("no answer within 2s".to_owned())
}

#[test]
fn an_answer_holds_as_long_as_the_binary_is_the_same_file() {
    let plugins = Plugins::new();
    let path = [plugins.write("portmap", SOUND)];
    let answers = Answers::waited_for();
    for _ in 0..3 {
        assert_eq!(answers.of(&path), [speaks()]);
    }
    assert_eq!(asked(&path[0]), 1);
    plugins.write("portmap", "exit 3");
    assert!(matches!(&answers.of(&path)[..], [Answer::Refused(_)]));
    fs::remove_file(&path[0]).unwrap();
    assert_eq!(answers.of(&path), [Answer::Missing]);
    plugins.write("portmap", SOUND);
    assert_eq!(answers.of(&path), [speaks()]);
    assert_eq!(asked(&path[0]), 3);
}

#[test]
fn what_a_binary_answers_that_is_not_asked_for_any_more_is_forgotten() {
    let plugins = Plugins::new();
    let (one, other) = ([plugins.write("one", SOUND)], [plugins.write("other", SOUND)]);
    let answers = Answers::waited_for();
    for path in [&one, &other, &one] {
        assert_eq!(answers.of(path), [speaks()]);
    }
    assert_eq!((asked(&one[0]), asked(&other[0])), (2, 1));
}

#[test]
fn one_that_hangs_is_awaited_beside_and_keeps_nobody_when_it_is_asked_again() {
    let plugins = Plugins::new();
    let paths = [plugins.hanging("portmap"), plugins.write("bandwidth", SOUND)];
    let (answers, tellings) = beside();
    // At the first look the other one may be late, too, where the machine is busy.
    assert_eq!(answers.of(&paths)[0], Answer::Awaited);
    tellings.recv_timeout(PATIENCE).unwrap();
    let end = Instant::now() + PATIENCE;
    while answers.of(&paths) != [unanswered(), speaks()] {
        assert!(Instant::now() < end, "{answers:?}");
        thread::sleep(Duration::from_millis(5));
    }
    // What it is known for is said while it is being asked: had that been waited for, it would be over.
    let under_way = || {
        assert_eq!(answers.of(&paths), [unanswered(), speaks()]);
        answers.shared.state().known.values().filter(|known| known.asked.is_some()).count()
    };
    while asked(&paths[0]) < 2 || under_way() == 0 {
        assert!(Instant::now() < end, "{answers:?}");
        assert_eq!(answers.of(&paths), [unanswered(), speaks()]);
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn another_binary_in_the_place_of_one_that_is_being_asked_is_told_of() {
    let plugins = Plugins::new();
    let path = [plugins.hanging("portmap")];
    let (answers, tellings) = beside();
    assert_eq!(answers.of(&path), [Answer::Awaited]);
    plugins.write("portmap", SOUND);
    let end = Instant::now() + PATIENCE;
    while answers.of(&path) != [speaks()] {
        assert!(Instant::now() < end, "{answers:?}");
        tellings.recv_timeout(PATIENCE).unwrap();
    }
}

#[test]
fn whoever_waits_is_told_what_the_binary_that_is_there_answers_not_the_one_before() {
    let plugins = Plugins::new();
    let path = [plugins.hanging("portmap")];
    let answers = Answers::waited_for();
    thread::scope(|scope| {
        scope.spawn(|| answers.of(&path));
        let end = Instant::now() + PATIENCE;
        while asked(&path[0]) == 0 {
            assert!(Instant::now() < end, "{answers:?}");
            thread::sleep(Duration::from_millis(5));
        }
        plugins.write("portmap", SOUND);
        assert_eq!(answers.of(&path), [speaks()]);
    });
}

#[test]
fn a_late_answer_of_a_binary_that_was_removed_is_not_one_of_that_which_was_put_there_after_it() {
    let plugins = Plugins::new();
    let path = [plugins.hanging("portmap")];
    let (answers, tellings) = beside();
    assert_eq!(answers.of(&path), [Answer::Awaited]);
    fs::remove_file(&path[0]).unwrap();
    assert_eq!(answers.of(&path), [Answer::Missing]);
    let under_way = answers.shared.state().known.values().filter(|known| known.asked.is_some()).count();
    assert_eq!(under_way, 1, "it still counts");
    plugins.write("portmap", SOUND);
    let end = Instant::now() + PATIENCE;
    loop {
        match &answers.of(&path)[..] {
            [answer] if *answer == speaks() => break,
            other => assert_eq!(other, [Answer::Awaited]),
        }
        tellings.recv_timeout(PATIENCE).unwrap();
    }
    // Each thread that asks holds what is known; after the last it is ours alone.
    while Arc::strong_count(&answers.shared) > 1 {
        assert!(Instant::now() < end, "{answers:?}");
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(answers.of(&path), [speaks()]);
}

#[test]
fn however_many_hang_only_so_many_are_asked_at_a_time_and_each_is_in_the_end() {
    let plugins = Plugins::new();
    let paths: Vec<PathBuf> = (0..MOST + 2).map(|number| plugins.hanging(&format!("plugin{number}"))).collect();
    let (answers, tellings) = beside();
    let under_way = || answers.shared.state().known.values().filter(|known| known.asked.is_some()).count();
    assert_eq!((answers.of(&paths), under_way()), (vec![Answer::Awaited; MOST + 2], MOST));
    let end = Instant::now() + PATIENCE;
    while answers.of(&paths).contains(&Answer::Awaited) {
        assert!(Instant::now() < end && under_way() <= MOST, "{answers:?}");
        tellings.recv_timeout(PATIENCE).unwrap();
    }
    assert_eq!(answers.of(&paths), vec![unanswered(); MOST + 2]);
}

/// As one does whose disk hangs: no signal ends it.
#[test]
fn that_a_question_does_not_end_is_told_to_whoever_went_without_the_answer() {
    let plugins = Plugins::new();
    let path = [plugins.write("portmap", SOUND)];
    let refused = [Answer::Refused("no answer within 2s, and it does not end".to_owned())];
    let went_without = || {
        let (told, tellings) = mpsc::channel();
        let never = |_: &Path| -> Answer {
            loop {
                thread::park();
            }
        };
        let answers = Answers::new(GLANCE, || 1.0, never, move || _ = told.send(()));
        // On a busy machine the first look may last until this is known; then there is nobody to tell.
        let first = answers.of(&path);
        if first == refused {
            return false;
        }
        assert_eq!(first, [Answer::Awaited]);
        tellings.recv_timeout(PATIENCE).unwrap();
        assert_eq!(answers.of(&path), refused);
        tellings.try_recv().unwrap_err();
        true
    };
    assert!((0..5).any(|_| went_without()), "no first look was short");
}
