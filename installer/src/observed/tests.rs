//! Configurations as runtimes read them, and what is not read.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;
use crate::settings::Settings;
use crate::settings::fixture::{self, conf_file, faulty};

#[test]
fn files_are_listed_as_the_runtime_loads_them() {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("87-podman.conflist", r#"{"name":"podman","plugins":[{"type":"bridge"},{"type":"portmap"}]}"#),
        ("99-dummy.conf", ""),
        ("20-single.conf", r#"{"type":"flannel"}"#),
        ("30-nameless.json", r#"{"plugins":[{}]}"#),
        (".conf", r#"{"type":"hidden"}"#),
        ("00-old.conflist.bak", "{"),
        (".oke-cni-installer.1.tmp", "{"),
    ] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    fs::create_dir(directory.path().join("50-folder.conf")).unwrap();
    symlink("nowhere", directory.path().join("40-link.conf")).unwrap();
    fs::write(directory.path().join(OsStr::from_bytes(b"20-\xff.conf")), r#"{"type":"x"}"#).unwrap();
    let refused = |why: &str| Some(Fault::Refused(why.to_owned()));
    let unread = || Some(Fault::Unread("it is a link to nowhere, out of its directory or to nothing".to_owned()));
    let expected = [
        (".conf", vec!["hidden"], None),
        ("20-single.conf", vec!["flannel"], None),
        ("20-\u{fffd}.conf", vec!["x"], None),
        (
            "30-nameless.json",
            vec![],
            refused("a plugin has no type: it is a list of plugins, and its name does not end in .conflist"),
        ),
        ("40-link.conf", vec![], unread()),
        ("87-podman.conflist", vec!["bridge", "portmap"], None),
        ("99-dummy.conf", vec![], refused("EOF while parsing a value at line 1 column 0")),
    ];
    let found = conf_files(directory.path()).unwrap();
    let found = found.iter().map(|file| (file.name.as_str(), file.kinds().collect(), file.fault.clone()));
    assert_eq!(found.collect::<Vec<_>>(), expected);
    assert_eq!(conf_files(Path::new("/nowhere/at/all")).unwrap(), []);
}

/// A line is `VERDICT FILE TEXT`, or `+ FILE TEXT` for another file in the directory of the line before. The verdicts are libcni's
/// (tests/tests/cluster/libcni.rs): the types of the plugins that it loads, or that it refuses the file.
#[test]
fn files_are_judged_as_libcni_judges_them() {
    let root = tempfile::tempdir().unwrap();
    let (mut place, mut judged) = (root.path().to_owned(), Vec::new());
    let golden = include_str!("../../golden/libcni.txt");
    for (at, line) in golden.lines().enumerate() {
        let parts: Vec<&str> = line.splitn(3, ' ').collect();
        let [verdict, name, text] = parts[..] else { panic!("{line}") };
        if verdict != "+" {
            place = root.path().join(at.to_string());
            judged.push((place.clone(), name, verdict, line));
        }
        fs::create_dir_all(place.join(name).parent().unwrap()).unwrap();
        fs::write(place.join(name), text.replace('\u{2400}', "\0")).unwrap();
    }
    let differences = judged.iter().filter_map(|(place, name, expected, line)| {
        let files = conf_files(place).unwrap();
        let file = files.iter().find(|file| file.name == *name)?;
        let kinds = file.kinds().collect::<Vec<_>>().join(",");
        let verdict = if file.fault.is_some() { "refused" } else { &kinds };
        (verdict != *expected).then(|| format!("{line}\n  here: {verdict} {:?}", file.fault))
    });
    assert_eq!(differences.collect::<Vec<_>>().join("\n"), "");
    assert!(judged.len() > 300);
}

#[test]
fn fault_names_file_field_and_value() {
    let directory = tempfile::tempdir().unwrap();
    let list = |fields: &str| format!(r#"{{"name": "x", {fields}}}"#);
    fs::create_dir(directory.path().join("x")).unwrap();
    for (text, drop_in, expected) in [
        (list(r#""disableCheck": 1"#), "", "disableCheck is 1, which must be true or false"),
        (
            list(r#""plugins": [{"type": "a", "capabilities": {"mac": "yes"}}]"#),
            "",
            r#"capabilities.mac is "yes", which must be true or false"#,
        ),
        (
            list(r#""plugins": [{"type": "a", "dns": {"nameservers": "10.0.0.2"}}]"#),
            "",
            r#"nameservers is "10.0.0.2", which must be a list"#,
        ),
        (list(r#""plugins": [{"type": "a"}]"#), r#"{"type": 7}"#, "x/10-a.conf: type is 7, which must be a text"),
        (list(r#""plugins": [{"type": "a"}]"#), "{", "x/10-a.conf: EOF while parsing"),
    ] {
        fs::write(directory.path().join("10-x.conflist"), &text).unwrap();
        fs::write(directory.path().join("x/10-a.conf"), if drop_in.is_empty() { r#"{"type":"b"}"# } else { drop_in })
            .unwrap();
        let files = conf_files(directory.path()).unwrap();
        assert!(matches!(&files[0].fault, Some(Fault::Refused(why)) if why.starts_with(expected)), "{:?}", files[0]);
    }
}

#[test]
fn folder_that_cannot_be_read_here_is_no_proof() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("net.d");
    fs::create_dir_all(directory.join("real")).unwrap();
    fs::create_dir(root.path().join("outside")).unwrap();
    for (network, to, is_known) in [
        ("a", Some("../outside"), false),
        ("a", Some("/nowhere/at/all"), false),
        ("a", Some("real"), true),
        ("../outside", None, false),
        ("../net.d/real", None, true),
    ] {
        to.iter().for_each(|to| symlink(to, directory.join(network)).unwrap());
        assert_eq!(matches!(drop_ins(&directory, network), Err(Fault::Unread(_))), !is_known, "{network} {to:?}");
        to.iter().for_each(|_| fs::remove_file(directory.join(network)).unwrap());
    }
    fs::write(directory.join("real/1.conf"), r#"{"type":"a"}"#).unwrap();
    symlink("/nowhere/at/all", directory.join("real/2.conf")).unwrap();
    let unread = drop_ins(&directory, "real");
    assert!(matches!(&unread, Err(Fault::Unread(why)) if why.starts_with("real/2.conf: it is a link")), "{unread:?}");
}

#[test]
fn folder_of_any_name_and_content_is_read_with_bounds() {
    let directory = tempfile::tempdir().unwrap();
    for network in ["n".repeat(1 << 20), "a\0b".to_owned(), "../\u{1b}[2J\n".repeat(1000)] {
        let (Err(Fault::Refused(why) | Fault::Unread(why)), name) =
            (drop_ins(directory.path(), &network), network.len())
        else {
            panic!("read");
        };
        assert!(why.len() < 400 && !why.contains(char::is_control), "{name}: {why}");
    }
    fs::create_dir(directory.path().join("many")).unwrap();
    mkfifo(&directory.path().join("many/pipe"), Mode::S_IRWXU).unwrap();
    for number in 0..64 {
        fs::write(directory.path().join(format!("many/{number}.conf")), r#"{"type":"a"}"#).unwrap();
    }
    assert_eq!(drop_ins(directory.path(), "many").map(|found| found.len()), Ok(64));
    fs::write(directory.path().join("many/more.conf"), "{").unwrap();
    let more = drop_ins(directory.path(), "many");
    assert!(matches!(&more, Err(Fault::Unread(why)) if why == "many has more than 64 files"), "{more:?}");
    fs::remove_file(directory.path().join("many/more.conf")).unwrap();
    fs::rename(directory.path().join("many/pipe"), directory.path().join("many/63.conf")).unwrap();
    assert!(matches!(drop_ins(directory.path(), "many"), Err(Fault::Unread(_))), "a pipe");
}

#[test]
fn owner_and_network_of_file_follow_from_name_and_plugins() {
    let refused = |name: &str, kinds: &[&str]| faulty(name, kinds, Fault::Refused(String::new()));
    assert!(refused("10-oci.conflist", &[]).is_oke());
    let list = ConfText::new(br#"{"name":"x","plugins":[{"type":"oci-ptp"},{"type":7}]}"#.to_vec(), 0o644);
    for name in ["10-a.conf", "10-a.conflist"] {
        let refused = ConfFile::new(Path::new("/nowhere"), name.to_owned(), ConfAt::File(list.clone()));
        assert!(refused.fault.is_some() && refused.is_oke(), "{name}");
    }
    assert!(conf_file("05-renamed.conflist", &["oci-ipvlan", "oci-ptp"]).is_oke());
    assert!(conf_file("10-flannel.conflist", &[]).is_flannel());
    assert!(conf_file("10-cbr0.conflist", &["flannel", "portmap"]).is_flannel());
    for (kinds, gives) in [
        (&["flannel", "portmap"][..], ProvidedNetwork::Network),
        (&["multus", "bridge"], ProvidedNetwork::Network),
        (&["loopback", "multus-shim"], ProvidedNetwork::CalledNetwork),
        (&["multus-shim", "portmap", "istio-cni"], ProvidedNetwork::CalledNetwork),
        (&["loopback"], ProvidedNetwork::Nothing),
        (&["linkerd-cni"], ProvidedNetwork::Nothing),
        (&["portmap", "bandwidth", "firewall", "sbr", "tuning", "istio-cni"], ProvidedNetwork::Nothing),
    ] {
        let found = conf_file("00-x.conflist", kinds);
        assert_eq!(
            (found.gives(), found.gives_another_network()),
            (gives, gives == ProvidedNetwork::Network),
            "{kinds:?}"
        );
    }
    assert!(!conf_file(vcn::CONFLIST_FILE, &["vcn-native"]).gives_another_network());
    assert!(!refused("10-flannel.conflist", &["flannel"]).gives_another_network());
}

#[test]
fn half_written_file_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("05-vcn-native.conflist");
    fs::write(&path, "{\"plugins\": [").unwrap();
    let reads = Cell::new(0);
    let found = ConfAt::settled_by(|| {
        reads.set(reads.get() + 1);
        if reads.get() == 10 {
            fs::write(&path, "{\"plugins\": []}").unwrap();
        }
        ConfAt::ours(&path)
    });
    assert_eq!(found.file().unwrap().contents, b"{\"plugins\": []}");
    fs::write(&path, [b'{', 0xff]).unwrap();
    assert_eq!(ConfAt::settled(&path).file().unwrap().contents, [b'{', 0xff], "it stays so");
}

#[test]
fn links_are_followed_within_the_directory_only_and_never_to_our_file() {
    let root = tempfile::tempdir().unwrap();
    let (directory, outside) = (root.path().join("net.d"), root.path().join("outside"));
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("real"), "{}").unwrap();
    fs::write(&outside, "{}").unwrap();
    let link = directory.join("05-vcn-native.conflist");
    let why = |read: fn(&Path) -> ConfAt, to: &Path| {
        let _ = fs::remove_file(&link);
        symlink(to, &link).unwrap();
        if let ConfAt::Unread(why) = read(&link) { Some(why) } else { None }
    };
    for to in [Path::new("real"), Path::new("../net.d/real"), &directory.join("real")] {
        assert_eq!(why(ConfAt::any, to), None, "{}", to.display());
        let refused = format!("it is a symbolic link to {}; replace it by a regular file", to.display());
        assert_eq!(why(ConfAt::ours, to), Some(refused));
    }
    for to in [&outside, Path::new("../outside"), Path::new("nothing"), Path::new("05-vcn-native.conflist")] {
        let refused = format!("it is a link to {}, out of its directory or to nothing", to.display());
        assert_eq!(why(ConfAt::any, to), Some(refused));
    }
}

#[test]
fn special_and_huge_files_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let (pipe, folder, huge) =
        (directory.path().join("pipe"), directory.path().join("folder"), directory.path().join("huge"));
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    fs::create_dir(&folder).unwrap();
    File::create(&huge).unwrap().set_len((1 << 20) + 1).unwrap();
    for (path, why) in [(pipe, "special file"), (folder, "directory"), (huge, "longer than 1048576 bytes")] {
        let found = ConfAt::ours(&path);
        assert!(matches!(&found, ConfAt::Unread(reason) if reason.contains(why)), "{found:?}");
    }
}

#[test]
fn plugins_of_settings_and_without_a_binary_are_looked_up() {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings { chain: fixture::chain("portmap,vnic-attach"), ..fixture::settings_in(directory.path()) };
    fs::create_dir_all(&settings.cni_bin_dir).unwrap();
    fs::write(settings.cni_bin_dir.join("bridge"), "").unwrap();
    assert_eq!(missing(&settings, &conf_file("00-a.conflist", &["bridge", "gone"])), ["gone"]);
    let names: Vec<_> = chain(&settings, None).into_iter().map(|binary| binary.name).collect();
    assert_eq!(names, ["vcn-native", "portmap", "vnic-attach"]);
}
