//! A client as a case sees it: operations by name, JSON in the API's own field names.

use serde_json::Value;

/// A client of the API.
pub(crate) trait Client {
    fn name(&self) -> &'static str;

    /// Makes a call, once.
    fn call(&mut self, operation: &str, arguments: Value) -> Result<Reply, Refusal>;
}

#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) value: Value,
    pub(crate) etag: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) request_id: String,
}

impl Refusal {
    /// Compares what must be, and that there is a request's number.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16, code: &str) {
        assert_eq!((self.status, self.code.as_str()), (status, code), "{self:?}");
        assert!(!self.request_id.is_empty(), "{self:?}");
    }
}

/// The value of a field, as text.
pub(crate) fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value}")).to_owned()
}
