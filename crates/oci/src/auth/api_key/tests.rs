//! Configuration files, and keys that cannot be used.

use super::*;

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
fn unusable_key_is_refused_without_revealing_it() {
    let encrypted = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nc2VjcmV0\n-----END ENCRYPTED PRIVATE KEY-----\n";
    for pem in [&encrypted[..], b"secret", b"-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"] {
        let error = ApiKey::new(OWNER, pem).unwrap_err();
        let story = format!("{error:?}");
        assert!(!story.contains("secret") && !story.contains("c2Vj"), "{story}");
        assert_eq!(story.contains("openssl pkey -in"), pem == encrypted, "{story}");
    }
}
