//! A list of the index, as text. The first builds wrote arrays, `["3f0c…-1a2b3c4d",["10.0.1.8"]]` and `["10.0.1.9",71321,true]`,
//! under the same format version: they are read too, so that addresses that rest go on resting when a node is upgraded.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The list.
pub(super) struct List<'a>(pub(super) Cow<'a, str>);

struct Either;

impl<'de: 'a, 'a> Deserialize<'de> for List<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either)
    }
}

impl<'de> Visitor<'de> for Either {
    type Value = List<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list, as text or as an array")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<List<'de>, E> {
        Ok(List(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<List<'de>, E> {
        Ok(List(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<List<'de>, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element::<Value>()? {
            let text = text_of(&element).ok_or_else(|| A::Error::custom(format_args!("{element} is no element")))?;
            list.push(text);
        }
        Ok(List(Cow::Owned(list.join(" "))))
    }
}

/// The element as it is written now; whether it makes sense is seen when that is read.
fn text_of(element: &Value) -> Option<String> {
    match element.as_array()?.as_slice() {
        [Value::String(name), Value::Array(addresses), ..] => {
            let addresses: Vec<&str> = addresses.iter().map(Value::as_str).collect::<Option<_>>()?;
            Some(format!("{name}={}", addresses.join(",")))
        }
        [Value::String(address), Value::Number(at), rest @ ..] => {
            let forgotten = if rest.first() == Some(&Value::Bool(true)) { "!" } else { "" };
            Some(format!("{address}@{at}{forgotten}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::Allocations;

    const BOOT: &str = "3ef52951-a75e-4776-acee-1963f3fe64cd";

    /// As a build of before wrote it, for pods of which one has gone.
    #[test]
    fn an_index_with_arrays_says_the_same_as_one_with_texts() {
        let old = format!(
            r#"{{"version":1,"bootId":"{BOOT}","held":[["a3-77c5c043",["10.0.32.5","2603:c020:0:2::5"]],["a4-3a2c3068",["10.0.32.6"]]],"freed":[["10.0.32.4",39940708],["2603:c020:0:2::4",39940709,true]],"anew":39940653,"more":[1]}}"#
        );
        let new = format!(
            r#"{{"held":"a3-77c5c043=10.0.32.5,2603:c020:0:2::5 a4-3a2c3068=10.0.32.6","freed":"10.0.32.4@39940708 2603:c020:0:2::4@39940709!","version":1,"bootId":"{BOOT}","anew":39940653,"more":[1]}}"#
        );
        let [old, new] = [old, new].map(|text| serde_json::from_str::<Allocations>(&text).unwrap());
        assert_eq!(old, new);
        assert_eq!((old.others.len(), old.freed.len()), (2, 2));
        let empty = format!(r#"{{"version":1,"bootId":"{BOOT}","held":[],"freed":[]}}"#);
        assert_eq!(serde_json::from_str::<Allocations>(&empty).unwrap().others, []);
    }

    #[test]
    fn an_array_that_makes_no_sense_is_damage() {
        for held in
            [r#"[["a"]]"#, r#"["a=10.0.0.1"]"#, r#"[["a-1",[7]]]"#, r#"[["a-1",["nowhere"]]]"#, r#"[["",[]]]"#, "7"]
        {
            let text = format!(r#"{{"version":1,"bootId":"{BOOT}","held":{held},"freed":[]}}"#);
            assert!(serde_json::from_str::<Allocations>(&text).is_err(), "{held}");
        }
    }
}
