//! Texts with each kind of secret, and without.

use super::*;

fn redacted(text: &str) -> (String, Redactions) {
    let mut redactor = Redactor::new().unwrap();
    (redactor.text(text).into_owned(), redactor.counts())
}

const JWT: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl-_x";

#[test]
fn secrets_of_every_kind_are_replaced() {
    let token = format!("sa token {JWT} expired");
    for (text, expected) in [
        ("Authorization: Bearer abc.def-123==", "Authorization: Bearer [redacted]"),
        ("authorization: bearer s3cr3t, next", "authorization: bearer [redacted], next"),
        (r#"{"Authorization":"Basic dXNlcjpwYXNz"}"#, r#"{"Authorization":"Basic [redacted]"}"#),
        ("curl -H 'Authorization: s3cr3t'", "curl -H 'Authorization: [redacted]'"),
        (token.as_str(), "sa token [redacted] expired"),
        ("proxy http://me:hunter2@10.0.0.1:3128/x", "proxy http://[redacted]@10.0.0.1:3128/x"),
        ("git clone https://ghp_abc@github.com/a", "git clone https://[redacted]@github.com/a"),
        (
            "PUT https://objectstorage.iad.oraclecloud.com/p/AbCdEfGhIjKlMnOpQrSt-_x/n/ns/b/x",
            "PUT https://objectstorage.iad.oraclecloud.com/p/[redacted]/n/ns/b/x",
        ),
        ("password=hunter2", "password=[redacted]"),
        ("DB_PASSWORD=hunter2&x=1", "DB_PASSWORD=[redacted]&x=1"),
        ("password = 'hunter 2' next", "password = '[redacted]' next"),
        (r#"{"password":"hunter 2","a":1}"#, r#"{"password":"[redacted]","a":1}"#),
        (r#"msg="{\"client_secret\":\"hunter2\"}""#, r#"msg="{\"client_secret\":\"[redacted]\"}""#),
        ("token: kubeconfigtoken", "token: [redacted]"),
        ("--token hunter2 --password=hunter2", "--token [redacted] --password=[redacted]"),
        ("access_token=abc;refresh_token=def", "access_token=[redacted];refresh_token=[redacted]"),
        ("token%3Dabc", "token%3D[redacted]"),
        ("password=12345678", "password=[redacted]"),
        ("apiKey: abc, api_key=def", "apiKey: [redacted], api_key=[redacted]"),
        ("secretKey => abc", "secretKey => [redacted]"),
        ("client-key-data: LS0tLS1CRUdJTiBSU0E=", "client-key-data: [redacted]"),
        (r"key -----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\n end", r"key [redacted]\n end"),
    ] {
        let (found, counts) = redacted(text);
        assert_eq!(found, expected, "{text}");
        assert_ne!(counts, Redactions::default(), "{text}");
    }
}

#[test]
fn text_without_secrets_stays_as_it_is() {
    for text in [
        "ens5: up mtu 9000\nIPv4 pref 512 from all lookup 999\n",
        r#"{"keys":["type","k8s_auth_token","etcd_key"],"tokenSeconds":3600,"secret":null}"#,
        "Unable to authenticate the request: bearer token expired",
        "the token expired; a secret was not found",
        "http://10.0.0.1/a@b and user@host",
        "ocid1.vnic.oc1.iad.abcdefghijklmnopqrstuvwxyz",
        "",
        "\n\n",
    ] {
        assert_eq!(redacted(text), (text.to_owned(), Redactions::default()));
    }
}

#[test]
fn pem_block_of_a_journal_is_redacted_line_by_line() {
    let text = "\
10:00 host app[1]: -----BEGIN RSA PRIVATE KEY-----
10:00 host app[1]: MIIEowIBAAKCAQEA
10:00 host app[1]: another message, which says nothing.
10:00 host app[1]: Aw==
10:00 host app[1]: -----END RSA PRIVATE KEY-----
10:01 host app[1]: started
";
    let expected = "\
10:00 host app[1]: [redacted]
10:00 host app[1]: [redacted]
10:00 host app[1]: another message, which says nothing.
10:00 host app[1]: [redacted]
10:00 host app[1]: [redacted]
10:01 host app[1]: started
";
    let (found, counts) = redacted(text);
    assert_eq!(found, expected);
    assert_eq!(counts, Redactions { pem: 1, ..Redactions::default() });
}

#[test]
fn pem_block_without_end_hides_no_later_text() {
    let text = format!("-----BEGIN KEY-----\n{}", "word\n".repeat(PEM_LINES_MAX + 2));
    let (found, _) = redacted(&text);
    assert!(found.ends_with("[redacted]\nword\nword\n"), "{}", &found[found.len() - 60..]);
    let mut redactor = Redactor::new().unwrap();
    assert_eq!(redactor.text("-----BEGIN KEY-----\n"), "[redacted]\n");
    assert_eq!(redactor.text("word\n"), "word\n");
}
