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
        ("30-nameless.json", vec![], refused("a plugin has no type")),
        ("40-link.conf", vec![], unread()),
        ("87-podman.conflist", vec!["bridge", "portmap"], None),
        ("99-dummy.conf", vec![], refused("EOF while parsing a value at line 1 column 0")),
    ];
    let found = conf_files(directory.path()).unwrap();
    let found = found.iter().map(|file| (file.name.as_str(), file.kinds().collect(), file.fault.clone()));
    assert_eq!(found.collect::<Vec<_>>(), expected);
    assert_eq!(conf_files(Path::new("/nowhere/at/all")).unwrap(), []);
}

#[test]
fn files_that_containerd_refuses_are_recognized() {
    for (name, text, refused) in [
        ("10-a.conflist", r#"{"name":"a","plugins":[{"type":"bridge"}]}"#, None),
        ("10-a.conflist", r#"{"plugins":[{"type":"bridge"}]}"#, Some("it has no name")),
        ("10-a.conflist", r#"{"name":"a","plugins":[]}"#, Some("its list of plugins is empty")),
        ("10-a.conflist", r#"{"name":"a","type":"bridge"}"#, Some("its name promises a list")),
        ("10-a.conf", r#"{"name":"a","type":"bridge"}"#, None),
        ("10-a.conf", r#"{"name":"a","plugins":[{"type":"bridge"}]}"#, Some("does not end in .conflist")),
        ("10-a.conflist", r#"{"name":"a","plugins":[{"Type":"bridge"}]}"#, None),
        ("10-a.conflist", "{\"name\":\"a\\ufffd\",\"plugins\":[{\"type\":\"bridge\"}]}", None),
        ("10-a.conflist", r#"{"name":"a","plugins":[{"type":""}]}"#, Some("")),
        ("10-a.conflist", r#"{"name":"a","x":1e999,"plugins":[{"type":"bridge"}]}"#, Some("")),
        ("10-a.conflist", "[]", Some("")),
    ] {
        let found = ConfFile::new(name.to_owned(), ConfAt::File(ConfText::new(text.into(), 0o644)));
        match (&found.fault, refused) {
            (None, None) => assert!(found.kinds().eq(["bridge"]), "{name}: {text}"),
            (Some(Fault::Refused(why)), Some(part)) => assert!(why.contains(part), "{text}: {why}"),
            _ => panic!("{text}: {found:?}"),
        }
    }
}

#[test]
fn owner_and_network_of_file_follow_from_name_and_plugins() {
    let refused = |name: &str, kinds: &[&str]| faulty(name, kinds, Fault::Refused(String::new()));
    assert!(refused("10-oci.conflist", &[]).is_oke());
    assert!(conf_file("05-renamed.conflist", &["oci-ipvlan", "oci-ptp"]).is_oke());
    assert!(conf_file("10-flannel.conflist", &[]).is_flannel());
    assert!(conf_file("10-cbr0.conflist", &["flannel", "portmap"]).is_flannel());
    for (kinds, gives) in [
        (&["flannel", "portmap"][..], ProvidedNetwork::Network),
        (&["multus", "bridge"], ProvidedNetwork::Network),
        (&["loopback", "multus-shim"], ProvidedNetwork::CalledNetwork),
        (&["loopback"], ProvidedNetwork::Nothing),
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
    let asked: Vec<_> = chain(&settings, None).into_iter().map(|binary| binary.name).collect();
    assert_eq!(asked, ["vcn-native", "portmap", "vnic-attach"]);
}
