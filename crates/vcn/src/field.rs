//! A place in a JSON document that knows its own path, so that every error names the field and shows its value.
//! Fields are read by hand, because serde's errors name line and column, which are useless for an object that no person
//! sees as text.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;
use thiserror::Error;

/// The most of an offending value that an error shows, in characters.
const SHOWN: usize = 120;

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FieldError {
    /// A compulsory field is absent, null or an empty text.
    #[error("{path} is missing")]
    Missing {
        /// The path of the field, as `status.vnics[0].vnicId`.
        path: String,
    },
    /// The field holds something else than it should.
    #[error("{path} is {value}, not {expected}")]
    Unexpected {
        /// The path of the field, as `status.vnics[0].vnicId`.
        path: String,
        /// The value as JSON, shortened.
        value: String,
        /// What would have been right, with its article.
        expected: &'static str,
    },
}

/// Whether a value says something: null does not, nor does what Go prints for it.
pub fn is_given(value: &Value) -> bool {
    !value.is_null() && value != "<null>"
}

/// A value and its path. `value` is `None` where the field is absent or null, which both mean "not given".
#[derive(Clone, Debug)]
pub struct Field<'a> {
    path: String,
    value: Option<&'a Value>,
}

impl<'a> Field<'a> {
    /// The field that is the whole document.
    pub const fn root(value: &'a Value) -> Self {
        Self { path: String::new(), value: Some(value) }
    }

    /// The member `name` of an object; absent if this field is.
    ///
    /// # Errors
    /// When this is not an object.
    pub fn member(&self, name: &str) -> Result<Self, FieldError> {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        let value = match self.value {
            None => None,
            Some(Value::Object(members)) => members.get(name).filter(|value| is_given(value)),
            Some(_) => return Err(self.unexpected("an object")),
        };
        Ok(Self { path, value })
    }

    /// The elements of a list; none if the field is absent.
    ///
    /// # Errors
    /// When this is not a list.
    pub fn elements(&self) -> Result<Vec<Self>, FieldError> {
        match self.value {
            None => Ok(Vec::new()),
            Some(Value::Array(elements)) => Ok(elements
                .iter()
                .enumerate()
                .map(|(index, value)| Self {
                    path: format!("{}[{index}]", self.path),
                    value: Some(value).filter(|value| is_given(value)),
                })
                .collect()),
            Some(_) => Err(self.unexpected("a list")),
        }
    }

    /// The elements of a list, or the field itself where it is not one.
    pub fn one_or_many(&self) -> Vec<Self> {
        self.elements().unwrap_or_else(|_| vec![self.clone()])
    }

    /// A text; an empty one counts as absent, as Go writes it where a pointer was not used.
    ///
    /// # Errors
    /// When this is not a text.
    pub fn text(&self) -> Result<Option<&'a str>, FieldError> {
        match self.value {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(_) => Err(self.unexpected("a text")),
        }
    }

    /// A text of one of our types.
    ///
    /// # Errors
    /// When this is not a text, or not one of that type; `expected` names the right type, with its article.
    pub fn parsed<T: FromStr>(&self, expected: &'static str) -> Result<Option<T>, FieldError> {
        self.text()?.map(|text| text.parse().map_err(|_| self.unexpected(expected))).transpose()
    }

    /// A whole number of any of our types.
    ///
    /// # Errors
    /// When this is not a whole number, or does not fit.
    pub fn number<T: TryFrom<u64>>(&self) -> Result<Option<T>, FieldError> {
        let number = |value: &Value| value.as_u64().and_then(|n| T::try_from(n).ok());
        self.value.map(|value| number(value).ok_or_else(|| self.unexpected("a whole number in range"))).transpose()
    }

    /// The value as it stands; `None` where the field is absent or null.
    pub const fn value(&self) -> Option<&'a Value> {
        self.value
    }

    /// The complaint that it is not there.
    pub fn missing(&self) -> FieldError {
        FieldError::Missing { path: self.path.clone() }
    }

    /// The complaint that it is something else than `expected`, which has its article.
    pub fn unexpected(&self, expected: &'static str) -> FieldError {
        let path = if self.path.is_empty() { "the document".to_owned() } else { self.path.clone() };
        FieldError::Unexpected { path, value: self.to_string(), expected }
    }
}

/// The value as JSON, shortened.
impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.value.map_or_else(|| "absent".to_owned(), Value::to_string);
        let mut characters = text.chars();
        for character in characters.by_ref().take(SHOWN) {
            write!(f, "{character}")?;
        }
        f.write_str(if characters.next().is_some() { "…" } else { "" })
    }
}
