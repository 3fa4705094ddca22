//! Secrets by the name that stands before them, in any text: `name=value`, `name: value`, and JSON that is none because it is
//! half written, has a comma too many, or only Go takes it. So are the values of `name: PASSWORD`, `value: …` of one object.

use super::ahead::Ahead;
use super::object::{Line, Object};
use super::value::{is_of_name, measure, split, value_after, value_of_option};
use super::{REDACTED, is_name, is_perhaps_secret, is_secret, is_value, letters};

/// What stands in a value's place without being a secret.
const NOTHING: [&str; 3] = ["null", "true", "false"];

/// Takes the values out of a text.
pub(super) fn take_out(text: &str, count: &mut usize) -> String {
    take_out_by(text, count, &mut Ahead::of(text))
}

/// The same, by such looks ahead.
pub(super) fn take_out_by(text: &str, count: &mut usize, ahead: &mut Ahead) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    // An object that has said the name of a secret, and not its value yet; and from where on it was not gone through.
    let mut object: Option<Object> = None;
    let (mut unseen, mut line) = (text, Line::new(text));
    while let Some((before, from)) = rest.find(is_of_name).and_then(|at| rest.split_at_checked(at)) {
        let (name, after) = split(from, from.find(|letter| !is_of_name(letter)).unwrap_or(from.len()));
        kept.push_str(before);
        let in_path = kept.ends_with('/');
        kept.push_str(name);
        rest = after;
        line.reach(from);
        let piece = split(unseen, unseen.len().saturating_sub(from.len())).0;
        object = object.and_then(|mut it| (it.goes_on(piece) && !it.is_next(name, &line)).then_some(it));
        unseen = from;
        if is_name(name) && ahead.says_secret(after) {
            object.get_or_insert_with(|| Object::new(line.column())).again(line.column());
            unseen = value_after(after, false).unwrap_or(after);
        }
        let is_value = is_value(name) && (object.is_some() || ahead.is_named_behind(after, line.column()));
        if is_value && value_after(after, false).is_some() {
            object = object.filter(|it| !it.is_key(after));
        }
        let perhaps = is_perhaps_secret(name);
        if !perhaps && !is_secret(name) && !is_value {
            continue;
        }
        let Some(value) = value_after(after, in_path).or_else(|| value_of_option(name, after)) else { continue };
        if perhaps && !is_secret(name) && !is_value && value.starts_with('{') {
            continue;
        }
        let (open, length) = match measure(value) {
            // Some kinds of it are a list of names and values.
            (0, _) if letters(name).ends_with("authorization") && !value.starts_with(['[', '{']) => {
                (0, value.find('\n').unwrap_or(value.len()))
            }
            measured => measured,
        };
        let (secret, beyond) = split(value.get(open..).unwrap_or_default(), length);
        if secret.is_empty() || NOTHING.contains(&secret) {
            continue;
        }
        kept.push_str(split(after, after.len() - value.len() + open).0);
        kept.push_str(REDACTED);
        *count += 1;
        rest = beyond;
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> (String, usize) {
        let mut count = 0;
        (take_out(text, &mut count), count)
    }

    #[test]
    fn what_a_name_stands_before_is_taken_out_of_json_that_is_none() {
        for (text, left) in [
            (r#"{"k8s_auth_token":"abc",}"#, r#"{"k8s_auth_token":"REDACTED",}"#),
            (r#"{"token" : "a \" b, c", "x": 1"#, r#"{"token" : "REDACTED", "x": 1"#),
            (r#"{"note":"\ud800","password":"a\\","x":"y"}"#, r#"{"note":"\ud800","password":"REDACTED","x":"y"}"#),
            (r#"{"secret":"not closed, {"#, r#"{"secret":"REDACTED"#),
            (r#"{"args":["--token", "a b", "-v"],}"#, r#"{"args":["--token", "REDACTED", "-v"],}"#),
            (r#"{"auth": "a=="#, r#"{"auth": "REDACTED"#),
            (r#"{"apiKey":12345,"x":2,}"#, r#"{"apiKey":REDACTED,"x":2,}"#),
            (r#"{"sshAuthorizedKeys":["a b","c ] d"],"x":1,}"#, r#"{"sshAuthorizedKeys":REDACTED,"x":1,}"#),
            (r#"{"credentials":{"user":"u","x":[{}]},"y":1,}"#, r#"{"credentials":REDACTED,"y":1,}"#),
            (r#"{"credentials":{"user":"u""#, r#"{"credentials":REDACTED"#),
            (
                r#"[{"name":"A","value":"b"},{"name":"DB_PASSWORD","x":1,"value":"S"},{"name":"B","value":"c"},]"#,
                r#"[{"name":"A","value":"b"},{"name":"DB_PASSWORD","x":1,"value":"REDACTED"},{"name":"B","value":"c"},]"#,
            ),
            (
                r#"{"name":"DB_PASSWORD","note":"a}b","value":"S",}"#,
                r#"{"name":"DB_PASSWORD","note":"a}b","value":"REDACTED",}"#,
            ),
            (
                r#"{"name":"DB_PASSWORD","note":"the \"value\" a}b","x":{"y":1},"value":"S",}"#,
                r#"{"name":"DB_PASSWORD","note":"the \"value\" a}b","x":{"y":1},"value":"REDACTED",}"#,
            ),
            (r#"{"Name":"DB_PASSWORD","Value":"S",}"#, r#"{"Name":"DB_PASSWORD","Value":"REDACTED",}"#),
            (
                r#"{"Value":"S","note":"a} value","Key":"DB_PASSWORD",}"#,
                r#"{"Value":"REDACTED","note":"a} value","Key":"DB_PASSWORD",}"#,
            ),
            (
                r#""inner": "{\"name\":\"DB_PASSWORD\",\"note\":\"a}b\",\"value\":\"S\"},{\"name\":\"A\",\"value\":\"b\"}","#,
                r#""inner": "{\"name\":\"DB_PASSWORD\",\"note\":\"a}b\",\"value\":\"REDACTED\"},{\"name\":\"A\",\"value\":\"b\"}","#,
            ),
            (r#"{"value":"S", "x":1, "key":"api-token",}"#, r#"{"value":"REDACTED", "x":1, "key":"api-token",}"#),
            ("{\"token\":\n  \"abc\",}", "{\"token\":\n  \"REDACTED\",}"),
            (
                r#""inner": "{\"password\": \"x y\", \"a\": 1}","#,
                r#""inner": "{\"password\": \"REDACTED\", \"a\": 1}","#,
            ),
        ] {
            assert_eq!(taken(text), (left.to_owned(), 1), "{text}");
        }
    }

    #[test]
    fn what_a_name_stands_before_is_taken_out_of_plain_text() {
        for (text, left) in [
            ("password = hunter2 user = me", "password = REDACTED user = me"),
            ("password='two words' x", "password='REDACTED' x"),
            ("Authorization: Basic abc= then\nx", "Authorization: REDACTED\nx"),
            ("proxy_token: Basic abc= then", "proxy_token: REDACTED then"),
            ("WPA_PSK=S x", "WPA_PSK=REDACTED x"),
            ("net/ipv6/conf/ens3/stable_secret=fd00::1\nx", "net/ipv6/conf/ens3/stable_secret=REDACTED\nx"),
            ("token: |\n  abc\n  def\nnext: 1", "token: REDACTEDnext: 1"),
            (
                "- name: A\n  value: b\n- name: DB_PASSWORD\n  value: S\n- name: B\n  value: c\n",
                "- name: A\n  value: b\n- name: DB_PASSWORD\n  value: REDACTED\n- name: B\n  value: c\n",
            ),
            (
                "- name: DB_PASSWORD\n  tags:\n    - a\n  value: S\n- name: B\n  value: c\n",
                "- name: DB_PASSWORD\n  tags:\n    - a\n  value: REDACTED\n- name: B\n  value: c\n",
            ),
            (
                "- \"name\": DB_PASSWORD\n  tags:\n  - it's - a\n  value: S\n- name: B\n  value: c\n",
                "- \"name\": DB_PASSWORD\n  tags:\n  - it's - a\n  value: REDACTED\n- name: B\n  value: c\n",
            ),
            (
                "- Value: S\n  tags:\n  - a\n  Name: DB_PASSWORD\n- name: B\n  value: c\n",
                "- Value: REDACTED\n  tags:\n  - a\n  Name: DB_PASSWORD\n- name: B\n  value: c\n",
            ),
            ("- name: DB_PASSWORD\n- value: c\n  password: S", "- name: DB_PASSWORD\n- value: c\n  password: REDACTED"),
            ("secret => abc, x", "secret => REDACTED, x"),
        ] {
            assert_eq!(taken(text), (left.to_owned(), 1), "{text}");
        }
        let values = |count| format!("{{{},}}", r#""x":{"value":1},"#.repeat(count));
        assert_eq!(taken(&values(16).replacen('{', r#"{"value":"b","#, 1)).1, 0);
        assert_eq!(taken(&values(17).replacen('{', r#"{"value":"b","#, 1)).1, 1);
        for text in [
            "a token that is late; the password, too",
            "reading /var/run/secrets/token: No such file",
            "{\"hasToken\":true,\"token\":null,\"secret\":\"\",}",
            "token",
            "token:",
            "--token",
            r#"["--token", "--x", "y",]"#,
            r#"{"auth": {"user": "u"},}"#,
        ] {
            assert_eq!(taken(text), (text.to_owned(), 0));
        }
    }

    /// `Q` is in secrets only.
    #[test]
    fn no_part_of_a_secret_survives_wherever_a_document_ends_or_breaks() {
        let document = r#"{"name":"x","plugins":[{"type":"calico","k8s_auth_token":"QQ\"Q, Q","etcd":{"password":'QQ'},
            "user_data" : ["QQQ","{\"secret\":\"QQ\"}"],"inner":"{\"token\": \"QQ\\\" QQ\"}","apiKey":QQQ,"a":{"clientKey":{"a":["QQ}"]}},
            "env":[{"name":"a","value":"b"},{"name":"DB_PASSWORD","value":"QQ"}]}]}"#;
        let survives = |text: &str| super::super::redact(text).text.contains('Q');
        for end in 0..=document.len() {
            let (whole, tail) = document.split_at(end);
            assert!(!survives(whole), "{whole}");
            // Not between a name and what it is the name of: that makes another document.
            let breaks = tail.starts_with([',', ']', '}']);
            for broken in [",", "{", "\u{fffd}", "\n"].into_iter().filter(|_| breaks) {
                let text = [whole, broken, tail].concat();
                assert!(!survives(&text), "{text}");
            }
        }
    }
}
