//! A correctly signed request, and every way to tamper with it.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use rcgen::{KeyPair, PKCS_RSA_SHA256, PublicKeyData, SigningKey};

use super::*;

type Tamper = fn(&mut Request);

const BODY: &[u8] = br#"{"instanceId":"ocid1.instance.oc1.iad.a"}"#;
const ALL: &str = "date (request-target) host content-length content-type x-content-sha256";
const BY_X_DATE: &str = "x-date (request-target) host content-length content-type x-content-sha256";

/// A POST, its listed headers signed.
fn post(key: &KeyPair, listed: &str, date: SystemTime) -> Request {
    let mut headers = HeaderMap::new();
    let values = [
        (if listed.contains("x-date") { "x-date" } else { "date" }, httpdate::fmt_http_date(date)),
        ("host", "iaas.us-ashburn-1.oraclecloud.com".to_owned()),
        ("content-length", BODY.len().to_string()),
        ("content-type", "application/json".to_owned()),
        ("x-content-sha256", STANDARD.encode(digest(&SHA256, BODY))),
    ];
    for (name, value) in values {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_str(&value).unwrap());
    }
    let mut request = Request {
        method: Method::POST,
        path: "/20160918/vnicAttachments".to_owned(),
        query: Default::default(),
        target: "/20160918/vnicAttachments".to_owned(),
        headers,
        body: BODY.to_vec(),
    };
    let unsigned =
        Signature { key_id: "me", headers: listed.split(' ').map(str::to_owned).collect(), signature: Vec::new() };
    let signature = STANDARD.encode(key.sign(unsigned.message(&request).unwrap().as_bytes()).unwrap());
    let header = format!(
        "Signature version=\"1\",keyId=\"me\",algorithm=\"rsa-sha256\",headers=\"{listed}\",signature=\"{signature}\""
    );
    request.headers.insert("authorization", HeaderValue::from_str(&header).unwrap());
    request
}

fn check(request: &Request, key: &KeyPair) -> Result<(), String> {
    let signature = Signature::of(request).map_err(|refusal| refusal.message)?;
    signature.check(request, &key.subject_public_key_info(), true).map_err(|refusal| {
        assert_eq!((refusal.status, refusal.code.as_str()), (401, "NotAuthenticated"));
        refusal.message
    })
}

#[test]
fn a_signed_part_may_not_change() {
    let key = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
    let now = SystemTime::now();
    let good = || post(&key, ALL, now);
    assert_eq!(check(&good(), &key), Ok(()));
    let mut other_case = good();
    let header = other_case.header("authorization").unwrap().replace("date", "Date").replace("host", "Host");
    other_case.headers.insert("authorization", HeaderValue::from_str(&header).unwrap());
    assert_eq!(check(&other_case, &key), Ok(()));

    let tampered: [(&str, Tamper); 6] = [
        ("another body", |request| request.body.push(b' ')),
        ("another path", |request| request.target.push('x')),
        ("another method", |request| request.method = Method::PUT),
        ("another host", |request| drop(request.headers.insert("host", HeaderValue::from_static("evil.example")))),
        ("another date", |request| {
            let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(60));
            request.headers.insert("date", HeaderValue::from_str(&date).unwrap());
        }),
        ("no authorization", |request| drop(request.headers.remove("authorization"))),
    ];
    for (what, tamper) in tampered {
        let mut request = good();
        tamper(&mut request);
        assert!(check(&request, &key).is_err(), "{what}");
    }
    let other = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
    assert!(check(&good(), &other).is_err(), "another key");
}

#[test]
fn every_required_header_must_be_signed() {
    let key = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
    for missing in ALL.split(' ') {
        let listed: Vec<_> = ALL.split(' ').filter(|name| *name != missing).collect();
        let refusal = check(&post(&key, &listed.join(" "), SystemTime::now()), &key).unwrap_err();
        assert!(refusal.contains(&format!("{missing} is not signed")), "{refusal}");
    }
}

#[test]
fn the_signed_date_is_near() {
    let key = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
    let (now, near, far) = (SystemTime::now(), Duration::from_secs(240), Duration::from_secs(310));
    for listed in [ALL, BY_X_DATE] {
        for (date, good) in [(now - near, true), (now + near, true), (now - far, false), (now + far, false)] {
            assert_eq!(check(&post(&key, listed, date), &key).is_ok(), good);
        }
    }
    let mut request = post(&key, BY_X_DATE, now);
    let date = request.headers.remove("x-date").unwrap();
    request.headers.insert("date", date);
    assert!(check(&request, &key).is_err(), "the signed header is missing");
}
