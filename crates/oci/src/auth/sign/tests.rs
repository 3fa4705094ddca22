//! The test values that Oracle publishes with the description of its signatures.
//!
//! Their key has 1024 bits, too few for us to sign with. But a signature of this kind is the same every time. If the published
//! signature fits the text that we would sign, that proves as much.

use aws_lc_rs::signature::{RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, UnparsedPublicKey};

use super::*;

const PUBLIC_KEY: &str = "MIGJAoGBAMIUQ0bDffIaKHL3akONlCGXQLfqs8mP4K99ILz6rbyHEDXrVAU1R3XfC4JNRyrRB3aqwF7/aEXJzYMIkmDSHUvv\
    z7pnhQxHsQ5yl91QT0d/eb+Gz4VRHjm4El4MrUdIUcPxscoPqS/wU8Z8lOi1z7bGMnChiL7WGqnV8h6RrGzJAgMBAAE=";
const HOST: &str = "iaas.us-phoenix-1.oraclecloud.com";
/// No Thursday, but so it stands there.
const DATE: &str = "Thu, 05 Jan 2014 21:31:40 GMT";

#[track_caller]
fn assert_published(message: &str, signature: &str) {
    let key = STANDARD.decode(PUBLIC_KEY).unwrap();
    let key = UnparsedPublicKey::new(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, key);
    assert!(key.verify(message.as_bytes(), &STANDARD.decode(signature).unwrap()).is_ok(), "{message}");
    assert!(key.verify(format!("{message} ").as_bytes(), &STANDARD.decode(signature).unwrap()).is_err());
}

#[test]
fn a_get_is_signed_as_published() {
    let target = "/20160918/instances?availabilityDomain=Pjwf%3A%20PHX-AD-1&\
        compartmentId=ocid1.compartment.oc1..aaaaaaaam3we6vgnherjq5q2idnccdflvjsnog7mlr6rtdb25gilchfeyjxa&\
        displayName=TeamXInstances&volumeId=ocid1.volume.oc1.phx.abyhqljrgvttnlx73nmrwfaux7kcvzfs3s66izvxf2h4lgvyndsdsnoiwr5q";
    let request = Signable { method: "GET", target, host: Some(HOST), body: None };
    let (names, message, headers) = prepare(request, DATE);
    assert_eq!(names, "date (request-target) host");
    assert_published(
        &message,
        "GBas7grhyrhSKHP6AVIj/h5/Vp8bd/peM79H9Wv8kjoaCivujVXlpbKLjMPeDUhxkFIWtTtLBj3sUzaFj34XE6YZAHc9r2DmE4pMwOAy/kiITcZxa1oHPOeR\
         heC0jP2dqbTll8fmTZVwKZOKHYPtrLJIJQHJjNvxFWeHQjMaR7M=",
    );
    assert_eq!(headers, [("date", DATE.to_owned()), ("host", HOST.to_owned())]);
}

#[test]
fn a_post_is_signed_as_published() {
    let body = "{\n    \"compartmentId\": \"ocid1.compartment.oc1..aaaaaaaam3we6vgnherjq5q2idnccdflvjsnog7mlr6rtdb25gilchfeyjxa\",\n    \
        \"instanceId\": \"ocid1.instance.oc1.phx.abuw4ljrlsfiqw6vzzxb43vyypt4pkodawglp3wqxjqofakrwvou52gb6s5a\",\n    \
        \"volumeId\": \"ocid1.volume.oc1.phx.abyhqljrgvttnlx73nmrwfaux7kcvzfs3s66izvxf2h4lgvyndsdsnoiwr5q\"\n}";
    let target = "/20160918/volumeAttachments";
    let request = Signable { method: "POST", target, host: Some(HOST), body: Some(body.as_bytes()) };
    let (names, message, headers) = prepare(request, DATE);
    assert_eq!(names, "date (request-target) host content-length content-type x-content-sha256");
    assert_published(
        &message,
        "Mje8vIDPlwIHmD/cTDwRxE7HaAvBg16JnVcsuqaNRim23fFPgQfLoOOxae6WqKb1uPjYEl0qIdazWaBy/Ml8DRhqlocMwoSXv0fbukP8J5N80LCmzT/FFBvI\
         vTB91XuXI3hYfP9Zt1l7S6ieVadHUfqBedWH0itrtPJBgKmrWso=",
    );
    let digest = headers.iter().find(|(name, _)| *name == "x-content-sha256");
    assert_eq!(digest.map(|(_, value)| value.as_str()), Some("V9Z20UJTvkvpJ50flBzKE32+6m2zJjweHpDMX/U4Uy0="));
    assert!(headers.contains(&("content-length", "316".to_owned())));
}

#[test]
fn an_empty_body_is_hashed_too() {
    let request = Signable { method: "POST", target: "/x", host: Some(HOST), body: Some(b"") };
    let (_, message, _) = prepare(request, DATE);
    assert!(message.ends_with("x-content-sha256: 47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="), "{message}");
    assert!(message.contains("content-length: 0\n"));
}

#[test]
fn the_federation_service_wants_no_host_signed() {
    let request = Signable { method: "POST", target: "/v1/x509", host: None, body: Some(b"{}") };
    let (names, message, _) = prepare(request, DATE);
    assert_eq!(names, "date (request-target) content-length content-type x-content-sha256");
    assert!(!message.contains("host:"));
}

#[test]
fn the_authorization_header_names_key_algorithm_and_version() {
    let key = Arc::new(RsaKey::generate().unwrap());
    let who = Credentials { key_id: "ST$token".into(), key };
    let request = Signable { method: "DELETE", target: "/20160918/vnicAttachments/x", host: Some(HOST), body: None };
    let headers = sign(request, SystemTime::UNIX_EPOCH, &who).unwrap();
    let (_, authorization) = headers.iter().find(|(name, _)| *name == "authorization").unwrap();
    assert!(
        authorization.starts_with(
            "Signature version=\"1\",keyId=\"ST$token\",algorithm=\"rsa-sha256\",headers=\"date (request-target) host\",signature=\""
        ),
        "{authorization}"
    );
    assert!(headers.contains(&("date", "Thu, 01 Jan 1970 00:00:00 GMT".to_owned())));
}
