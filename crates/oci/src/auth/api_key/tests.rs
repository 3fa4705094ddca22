//! Configuration files, and keys that cannot be used.

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::RsaKeyPair;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;
use std::fs;

const OWNER: KeyOwner<'static> = KeyOwner { tenancy: "t", user: "u", fingerprint: "f" };

const CONFIG: &str = "; mine\n[DEFAULT]\nuser = ocid1.user.oc1..a\nfingerprint=aa:bb\ntenancy=ocid1.tenancy.oc1..t\n\
    key_file=~/k.pem\nregion=us-ashburn-1\n\n[OTHER]\n# only this differs\nuser=ocid1.user.oc1..b\n";

#[test]
fn a_profile_inherits_from_the_default_one() {
    let other = entries(CONFIG, "OTHER").unwrap();
    assert_eq!((&*other["user"], &*other["fingerprint"]), ("ocid1.user.oc1..b", "aa:bb"));
    assert_eq!(entries(CONFIG, "DEFAULT").unwrap()["user"], "ocid1.user.oc1..a");
    assert_eq!(entries(CONFIG, "NONE"), None);
}

#[test]
fn a_missing_entry_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    let refused = |text: &str, profile: &str| {
        fs::write(&path, text).unwrap();
        ApiKey::from_config_file(&path, profile).unwrap_err().to_string()
    };
    let at = path.display();
    assert_eq!(
        refused("[DEFAULT]\nuser=u\n", "DEFAULT"),
        format!("setting up the OCI client: profile DEFAULT of {at}: key_file is missing")
    );
    assert_eq!(refused("", "DEFAULT"), format!("setting up the OCI client: profile DEFAULT of {at}: there is none"));
    let no_key = refused("[DEFAULT]\nkey_file=/nonexistent/k.pem\n", "DEFAULT");
    assert!(no_key.ends_with("key_file /nonexistent/k.pem"), "{no_key}");
}

#[test]
fn pipe_and_oversized_file_are_refused_immediately() {
    let folder = tempfile::tempdir().unwrap();
    let (path, key) = (folder.path().join("config"), folder.path().join("key.pem"));
    let refused = || crate::error::chain(&ApiKey::from_config_file(&path, DEFAULT).unwrap_err());
    let pipe = |path: &Path| assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    pipe(&path);
    assert!(refused().ends_with("it is not a regular file"), "{}", refused());
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    assert!(refused().ends_with("it is not a regular file"), "{}", refused());
    fs::remove_file(&path).unwrap();
    fs::write(&path, format!("[DEFAULT]\nuser=u\nfingerprint=f\ntenancy=t\nkey_file={}\n", key.display())).unwrap();
    pipe(&key);
    assert!(refused().ends_with("it is not a regular file"), "{}", refused());
    fs::remove_file(&key).unwrap();
    fs::write(&key, vec![b'a'; (1 << 20) + 1]).unwrap();
    assert!(refused().ends_with("it is longer than 1 MiB"), "{}", refused());
}

#[test]
fn unusable_key_is_refused_without_revealing_it() {
    let encrypted = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nc2VjcmV0\n-----END ENCRYPTED PRIVATE KEY-----\n";
    for pem in [&encrypted[..], b"secret", b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"] {
        let error = ApiKey::new(OWNER, pem).unwrap_err();
        let story = format!("{error:?}");
        assert!(!story.contains("secret") && !story.contains("c2Vj"), "{story}");
        assert_eq!(story.contains("openssl pkey -in"), pem == encrypted, "{story}");
    }
}

#[test]
fn files_that_are_not_read_in_time_are_logged_once_a_minute() {
    let folder = tempfile::tempdir().unwrap();
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let der: Pkcs8V1Der<'_> = pair.as_der().unwrap();
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(der.as_ref()));
    let mut used = ApiKey::new(OWNER, pem.as_bytes()).unwrap();
    used.source = Some(Source { path: folder.path().join("config"), profile: DEFAULT.to_owned() });
    let (used, lines) = (used.into_used(), tempfile::NamedTempFile::new().unwrap());
    let writer = Arc::new(lines.reopen().unwrap());
    let _log = tracing::subscriber::set_default(tracing_subscriber::fmt().with_writer(writer).finish());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        // No thread is free to read.
        let (release, held) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || held.recv());
        for _ in 0..2 {
            assert!(!used.reject(&used.credentials(), Instant::now()).await);
        }
        drop(release);
        assert!(busy.await.unwrap().is_err());
    });
    let logged = std::fs::read_to_string(lines.path()).unwrap();
    assert_eq!((logged.lines().count(), logged.contains("its files were not read in time")), (1, true), "{logged}");
}
