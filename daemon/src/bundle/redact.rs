//! Takes secrets out of texts: by the names of JSON members and of `name=value`, and by what gives itself away (private
//! keys, bearer tokens, JSON web tokens, passwords in URLs). In doubt it takes more: a bundle is read by strangers.

mod ahead;
mod object;
mod pairs;
mod value;

use serde_json::Value;

/// What stands in a secret's place.
const REDACTED: &str = "REDACTED";

/// Parts of names whose values are secrets, in lower case and without `-` and `_`.
const SECRETS: [&str; 14] = [
    "token",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "credential",
    "privatekey",
    "apikey",
    "accesskey",
    "clientkey",
    "userdata",
    "sshauthorizedkeys",
    "authorization",
    "initscript",
];

/// Ends of such names. They are words of other meanings, too, of whole objects above all.
const ENDS: [&str; 4] = ["pass", "pwd", "psk", "auth"];

/// Members whose value may be the name of what [`VALUE`] beside them holds, by their letters.
const NAMES: [&str; 2] = ["name", "key"];
const VALUE: &str = "value";

/// A text without its secrets.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Redacted {
    pub(super) text: String,
    /// How many there were.
    pub(super) count: usize,
}

/// Takes the secrets out of a text, JSON or not.
pub(super) fn redact(text: &str) -> Redacted {
    let mut count = 0;
    // Only a document has members; a number or a word alone is text.
    if let Ok(mut value @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str::<Value>(text) {
        members(&mut value, &mut count);
        // What nothing was taken from stays byte for byte.
        let text = if count == 0 { text.to_owned() } else { format!("{value:#}\n") };
        return Redacted { text, count };
    }
    let mut text = pairs::take_out(&blocks(text, &mut count), &mut count);
    text = text.split_inclusive('\n').map(|line| in_line(line, &mut count)).collect();
    Redacted { text, count }
}

fn members(value: &mut Value, count: &mut usize) {
    match value {
        Value::Object(members_of) => {
            let mut names = members_of.iter().filter(|(name, _)| is_name(name));
            let named = names.any(|(_, name)| name.as_str().is_some_and(names_secret));
            for (name, member) in members_of {
                let secret =
                    is_secret(name) || is_perhaps_secret(name) && !member.is_object() || named && is_value(name);
                if secret && !matches!(member, Value::Null | Value::Bool(_)) {
                    *member = REDACTED.into();
                    *count += 1;
                } else {
                    members(member, count);
                }
            }
        }
        Value::Array(elements) => {
            // Of a command line: the value of an option is the element behind it.
            let mut option = false;
            for element in elements {
                let is_value = std::mem::take(&mut option);
                option = element.as_str().is_some_and(|word| word.starts_with('-') && names_secret(word));
                match element {
                    Value::String(value) if is_value && !value.starts_with('-') => {
                        *value = REDACTED.to_owned();
                        *count += 1;
                    }
                    _ => members(element, count),
                }
            }
        }
        Value::String(text) => {
            let inner = redact(text);
            if inner.count > 0 {
                *count += inner.count;
                *text = inner.text;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_secret(name: &str) -> bool {
    let name = letters(name);
    SECRETS.iter().any(|secret| name.contains(secret))
}

fn is_perhaps_secret(name: &str) -> bool {
    let name = letters(name);
    ENDS.iter().any(|secret| name.ends_with(secret))
}

/// Whether a member's value may be the name of what the member beside it holds that [`is_value`].
fn is_name(name: &str) -> bool {
    NAMES.contains(&letters(name).as_str())
}

fn is_value(name: &str) -> bool {
    letters(name) == VALUE
}

fn names_secret(name: &str) -> bool {
    is_secret(name) || is_perhaps_secret(name)
}

fn letters(name: &str) -> String {
    let name: String = name.chars().filter(|letter| letter.is_ascii_alphanumeric()).collect();
    name.to_lowercase()
}

/// Private keys, from their first line to their last. One without end takes all that follows, one without beginning all
/// that comes before.
fn blocks(text: &str, count: &mut usize) -> String {
    let (mut kept, mut rest) = (String::new(), text);
    if let Some((_, after)) = rest.split_once("-----END ").filter(|(before, _)| !before.contains("-----BEGIN "))
        && let Some((kind, after)) = after.split_once("-----")
        && kind.contains("PRIVATE")
    {
        kept.push_str(REDACTED);
        *count += 1;
        rest = after;
    }
    while let Some((before, key)) = rest.split_once("-----BEGIN ") {
        kept.push_str(before);
        let kind = key.split("-----").next().unwrap_or_default();
        let end = format!("-----END {kind}-----");
        let (body, after) = key.split_once(&end).unwrap_or((key, ""));
        if kind.contains("PRIVATE") {
            kept.push_str(REDACTED);
            *count += 1;
        } else {
            kept.push_str("-----BEGIN ");
            kept.push_str(body);
            kept.push_str(&end);
        }
        rest = after;
    }
    kept + rest
}

/// Word by word; what stands between words stays.
fn in_line(line: &str, count: &mut usize) -> String {
    let mut kept = String::new();
    let mut next_is_secret = false;
    for word in line.split_inclusive(|letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'' | ',' | ';'))
    {
        let body =
            word.trim_end_matches(|letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'' | ',' | ';'));
        let end = word.get(body.len()..).unwrap_or_default();
        let taken = if body.is_empty() { body.to_owned() } else { in_word(body, &mut next_is_secret, count) };
        kept.push_str(&taken);
        kept.push_str(end);
    }
    kept
}

fn in_word(word: &str, next_is_secret: &mut bool, count: &mut usize) -> String {
    if std::mem::take(next_is_secret) {
        *count += 1;
        return REDACTED.to_owned();
    }
    if word.eq_ignore_ascii_case("bearer") {
        *next_is_secret = true;
        return word.to_owned();
    }
    if word.starts_with("eyJ") && word.matches('.').count() >= 2 {
        *count += 1;
        return REDACTED.to_owned();
    }
    if let Some((before, host)) = around_login(word) {
        *count += 1;
        return format!("{before}{REDACTED}@{host}");
    }
    word.to_owned()
}

/// A login in a URL, or in an iSCSI root of the kernel's command line (`iscsi:user:password@server`): what stands before it,
/// and what comes behind its `@`.
fn around_login(word: &str) -> Option<(&str, &str)> {
    let (at, mark) = ["://", "iscsi:"].into_iter().filter_map(|mark| Some((word.find(mark)?, mark))).min()?;
    let (before, rest) = word.split_at_checked(at + mark.len())?;
    // A password may have slashes, and then it has a colon before it.
    let (login, host) = rest.rsplit_once('@').filter(|(login, _)| !login.contains('/') || login.contains(':'))?;
    (!login.is_empty()).then_some((before, host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_by_their_names() {
        let text = r#"{"plugins":[{"type":"x","kubernetes":{"k8s_auth_token":"abc","kubeconfig":"/k"}}],
            "user_data":"IyE=","key":{"network":"n"},"sshAuthorizedKeys":["a"],"hasToken":true}"#;
        let Redacted { text, count } = redact(text);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(count, 3);
        assert_eq!(value["plugins"][0]["kubernetes"]["k8s_auth_token"], REDACTED);
        assert_eq!(value["plugins"][0]["kubernetes"]["kubeconfig"], "/k");
        assert_eq!((&value["user_data"], &value["sshAuthorizedKeys"]), (&REDACTED.into(), &REDACTED.into()));
        assert_eq!((&value["key"]["network"], &value["hasToken"]), (&"n".into(), &true.into()));
    }

    #[test]
    fn secrets_are_taken_out_of_sound_json_wherever_they_are() {
        for (json, left) in [
            (r#"["--token","S","--password","S","-v"]"#, r#"["--token","REDACTED","--password","REDACTED","-v"]"#),
            (r#"["--token","--verbose","x"]"#, r#"["--token","--verbose","x"]"#),
            (r#"["--token=S"]"#, r#"["--token=REDACTED"]"#),
            (r#"{"pwd":"S","psk":"S","dbPass":"S"}"#, r#"{"pwd":"REDACTED","psk":"REDACTED","dbPass":"REDACTED"}"#),
            (r#"{"auths":{"r":{"auth":"S"}}}"#, r#"{"auths":{"r":{"auth":"REDACTED"}}}"#),
            (r#"{"pass":{"changes":["S"]}}"#, r#"{"pass":{"changes":["S"]}}"#),
            (r#"{"env":["DB_PASS=S","A=b"]}"#, r#"{"env":["DB_PASS=REDACTED","A=b"]}"#),
            (
                r#"[{"name":"DB_PASSWORD","value":"S"},{"value":["S"],"key":"api-token"},{"name":"A","value":"b"}]"#,
                r#"[{"name":"DB_PASSWORD","value":"REDACTED"},{"value":"REDACTED","key":"api-token"},{"name":"A","value":"b"}]"#,
            ),
            (r#"{"Name":"DB_PASSWORD","Value":"S"}"#, r#"{"Name":"DB_PASSWORD","Value":"REDACTED"}"#),
            (r#"{"VALUE":"S","Key":"DB_PASSWORD"}"#, r#"{"VALUE":"REDACTED","Key":"DB_PASSWORD"}"#),
            (r#"{"env":["AWS_ACCESS_KEY_ID=S"]}"#, r#"{"env":["AWS_ACCESS_KEY_ID=REDACTED"]}"#),
            (r#"{"url":"https://S@host"}"#, r#"{"url":"https://REDACTED@host"}"#),
            (r#"["Authorization: Digest username=a, response=S"]"#, r#"["Authorization: REDACTED"]"#),
            (r#"{"root":"netroot=iscsi:user:S@host"}"#, r#"{"root":"netroot=iscsi:REDACTED@host"}"#),
        ] {
            let text = redact(json).text;
            let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            assert_eq!(value(&text), value(left), "{json}");
        }
    }

    #[test]
    fn secrets_are_taken_out_of_any_text() {
        for (text, redacted) in [
            ("a\n-----BEGIN RSA PRIVATE KEY-----\nMII\nx=\n-----END RSA PRIVATE KEY-----\nb", "a\nREDACTED\nb"),
            ("-----BEGIN EC PRIVATE KEY-----\nMII", "REDACTED"),
            ("Authorization: Bearer abc.def, then", "Authorization: REDACTED"),
            ("Authorization: Digest username=a, response=S\nnext", "Authorization: REDACTED\nnext"),
            ("proxy https://S@host/x", "proxy https://REDACTED@host/x"),
            ("netroot=iscsi:user:S@10.0.0.1::3260::iqn", "netroot=iscsi:REDACTED@10.0.0.1::3260::iqn"),
            ("run x --token S --pass 'S S' -v", "run x --token REDACTED --pass 'REDACTED' -v"),
            ("MII\n-----END RSA PRIVATE KEY-----\nb", "REDACTED\nb"),
            (
                r#"{"name":"DB_PASSWORD","note":"a}b","value":"S",}"#,
                r#"{"name":"DB_PASSWORD","note":"a}b","value":"REDACTED",}"#,
            ),
            (
                "- name: DB_PASSWORD\n  tags:\n    - a\n  value: S\n",
                "- name: DB_PASSWORD\n  tags:\n    - a\n  value: REDACTED\n",
            ),
            ("said Bearer abc", "said Bearer REDACTED"),
            ("password=hunter2 user=me", "password=REDACTED user=me"),
            ("token: abc\nnext", "token: REDACTED\nnext"),
            ("jwt eyJhbGciOi.eyJzdWIi.c2ln end", "jwt REDACTED end"),
            ("proxy http://me:pw@10.0.0.1:80/x", "proxy http://REDACTED@10.0.0.1:80/x"),
            (r#"["{\"password\": \"x\"}"]"#, "[\n  \"{\\n  \\\"password\\\": \\\"REDACTED\\\"\\n}\\n\"\n]\n"),
        ] {
            assert_eq!(redact(text).text, redacted);
            assert!(redact(text).count > 0, "{text}");
        }
    }

    #[test]
    fn what_holds_no_secret_stays_byte_for_byte() {
        for text in [
            "{\"a\":  1, \"key\": \"vcn-native/c/eth0\"}",
            "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n",
            "default via 10.0.0.1 dev ens3, table main; proto 157\n",
            "ocid1.vnic.oc1.iad.abc 02:00:17:00:00:01 2603:c020::7",
            "see https://example.com/a@b and iscsi:@10.0.0.1::3260, me@example.com",
        ] {
            assert_eq!(redact(text), Redacted { text: text.to_owned(), count: 0 });
        }
    }
}
