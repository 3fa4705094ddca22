//! Texts of every manner: kept to the byte, and an insertion taken out again leaves none.

use serde_json::json;

use super::*;

const ARRAYS: [&str; 8] = [
    "[]",
    "[1]",
    "[1,2,3]",
    "[ 1 , 2 , 3 ]",
    "[\n  {\"a\": 1},\n  {\"b\": [1,\n2]}\n]",
    "[\r\n\t{\"a\": 1},\r\n\t\"x,]\"\r\n]\r\n",
    "  [ \"\\\"\" , [[]], {\"k\":\"}\"} ]  ",
    "[1\n,2\n,3]",
];
const OBJECTS: [&str; 4] = [
    "{}",
    r#"{"a":1}"#,
    "{\n  \"a\" : 12345678901234567890123 ,\n  \"b,{\": 1.0e+2\n}\n",
    "{ \"a\":1,\"a\":2, \"z\": null }",
];

fn keep(document: &Document<'_>) -> Vec<Slot> {
    (0..document.parts.len()).map(Slot::Keep).collect()
}

#[test]
fn what_is_kept_keeps_every_byte() {
    for text in ARRAYS {
        let document = Document::array(text).unwrap();
        assert_eq!(document.with(&keep(&document)), text);
    }
    for text in OBJECTS {
        let document = Document::object(text).unwrap();
        assert_eq!(document.with(&keep(&document)), text);
    }
}

#[test]
fn what_was_put_in_is_taken_out_without_a_trace() {
    for text in ARRAYS {
        let document = Document::array(text).unwrap();
        for at in 0..=document.parts.len() {
            let mut slots = keep(&document);
            slots.insert(at, Slot::New { key: None, value: json!({"type": "ours", "list": [1, 2]}) });
            let longer = document.with(&slots);
            let again = Document::array(&longer).unwrap();
            assert_eq!(again.parts.len(), document.parts.len() + 1, "{longer}");
            let mut slots = keep(&again);
            slots.remove(at);
            // Where nothing else is, nothing tells how much space there was; every other text comes back.
            assert_eq!(again.with(&slots), text, "{at}");
        }
    }
}

#[test]
fn a_member_is_changed_added_and_removed() {
    let text = "{\n  \"a\": 12345678901234567890123,\n  \"b\": 1.0e+2\n}";
    let document = Document::object(text).unwrap();
    assert_eq!(document.get("b"), Some("1.0e+2"));
    let slots =
        [Slot::Keep(0), Slot::Change(1, "true".into()), Slot::New { key: Some("c".into()), value: json!({"d": 1}) }];
    assert_eq!(
        document.with(&slots),
        "{\n  \"a\": 12345678901234567890123,\n  \"b\": true,\n  \"c\": {\n    \"d\": 1\n  }\n}"
    );
    assert_eq!(document.with(&[Slot::Keep(1)]), "{\n  \"b\": 1.0e+2\n}");
    assert_eq!(document.with(&[]), "{\n}");
}

#[test]
fn what_is_no_object_or_array_is_refused() {
    for text in ["", "{", "[1", "[] []", "{} x", "1", "{\"a\":}", "\u{feff}{}"] {
        assert!(Document::object(text).is_none() && Document::array(text).is_none(), "{text}");
    }
}
