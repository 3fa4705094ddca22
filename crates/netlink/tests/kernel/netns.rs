//! Network namespaces against the real kernel.

use std::path::Path;

use netlink::{Cause, Home, Netns, Socket};

#[test]
fn each_new_namespace_is_another_one() {
    let (one, two) = (Netns::create().unwrap(), Netns::create().unwrap());
    assert_ne!(one.id(), two.id());
    assert_ne!(one.id(), Netns::current().unwrap().id());
    assert_eq!(one.run(|| Netns::current().unwrap().id()).unwrap(), one.id());
}

#[test]
fn the_caller_stays_where_it_was_whatever_the_closure_does() {
    let (before, other) = (Netns::current().unwrap().id(), Netns::create().unwrap());
    let failed: Result<(), &str> = other.run(|| Err("no")).unwrap();
    assert_eq!(failed, Err("no"));
    assert_eq!(Netns::current().unwrap().id(), before);
    let error = other.run(|| panic!("on purpose")).unwrap_err();
    assert!(matches!(error.cause(), netlink::Cause::Panicked), "{error}");
    assert_eq!(Netns::current().unwrap().id(), before);
}

#[test]
fn home_netns_is_same_from_socket_and_proc() {
    let home = || (Home::of_socket(&Socket::open().unwrap()).unwrap().id(), Home::of_this_thread().unwrap().id());
    let (here, other) = (Netns::current().unwrap().id(), Netns::create().unwrap());
    assert_eq!(home(), (here, here));
    assert_eq!(other.run(home).unwrap(), (other.id(), other.id()));
}

#[test]
fn a_socket_stays_in_the_namespace_where_it_was_opened() {
    let netns = Netns::create().unwrap();
    let mut socket = Socket::open_in(&netns).unwrap();
    let other = Netns::create().unwrap();
    let links = other.run(|| socket.links()).unwrap().unwrap();
    assert_eq!(links.len(), 1, "only loopback: {links:?}");
}

#[test]
fn non_netns_file_is_distinguished_from_missing_file() {
    let directory = tempfile::tempdir().unwrap();
    let missing = Netns::open(&directory.path().join("gone")).unwrap_err();
    assert!(missing.is_not_found());
    let plain = directory.path().join("plain");
    std::fs::write(&plain, "").unwrap();
    for path in [plain.as_path(), directory.path(), Path::new("/proc/self/ns/mnt"), Path::new("/dev/null")] {
        let error = Netns::open(path).unwrap_err();
        assert!(matches!(error.cause(), Cause::NotANamespace), "{}: {error}", path.display());
    }
}

#[test]
fn a_pipe_in_its_place_does_not_hang() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert!(matches!(Netns::open(&pipe).unwrap_err().cause(), Cause::NotANamespace));
}

#[test]
fn bound_netns_opens_by_path_until_it_is_unbound() {
    // The mount is made in a mount namespace of this test's own.
    std::thread::scope(|scope| {
        let test = || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
            let private = nix::mount::MsFlags::MS_REC | nix::mount::MsFlags::MS_PRIVATE;
            nix::mount::mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("pod");
            let netns = Netns::create().unwrap();
            netns.bind_to(&path).unwrap();
            assert_eq!(Netns::open(&path).unwrap().id(), netns.id());
            assert!(netns.bind_to(&path).unwrap_err().is_already_exists());
            Netns::unbind(&path).unwrap();
            assert!(Netns::open(&path).unwrap_err().is_not_found());
            assert!(Netns::unbind(&path).unwrap_err().is_not_found());
        };
        scope.spawn(test).join().unwrap();
    });
}
