//! An error and its causes, for a log line or a terminal.

use std::error::Error;

use kube::core::Status;

/// An error and its causes in one line. A cause that only repeats the line is left out. A refusal of the API server is its
/// message, because kube prints it as a data structure, also in the errors around it.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let refusal = std::iter::successors(Some(error), |error| Error::source(*error)).find_map(refusal);
    let text = |error: &dyn Error| match &refusal {
        Some(Refusal { structure, message }) => error.to_string().replace(structure, message),
        None => error.to_string(),
    };
    let mut line = text(error);
    let mut next = error.source();
    while let Some(cause) = next {
        // The message of a refusal is there already.
        if refusal.is_some() && (cause.is::<Status>() || cause.is::<Box<Status>>()) {
            break;
        }
        let text = text(cause);
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        next = cause.source();
    }
    line
}

/// What the API server answered instead of an object.
struct Refusal {
    structure: String,
    message: String,
}

fn refusal(error: &(dyn Error + 'static)) -> Option<Refusal> {
    let boxed = || error.downcast_ref::<Box<kube::Error>>().map(|error| &**error);
    let error = error.downcast_ref::<kube::Error>().or_else(boxed)?;
    let kube::Error::Api(status) = error else { return None };
    let message = match status.message.as_str() {
        "" => &status.reason,
        message => message,
    };
    Some(Refusal { structure: error.to_string(), message: format!("{message} ({})", status.code) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Link(&'static str, #[source] Option<Box<Link>>);

    #[test]
    fn cause_that_repeats_its_parent_message_is_omitted() {
        let link = |text, cause: Option<Link>| Link(text, cause.map(Box::new));
        let error = link("step failed: link set up", Some(link("link set up", Some(link("not permitted", None)))));
        assert_eq!(chain(&error), "step failed: link set up: not permitted");
        let error =
            link("no way: (of two: the first: no file)", Some(link("the first: no file", Some(link("no file", None)))));
        assert_eq!(chain(&error), "no way: (of two: the first: no file)");
    }

    #[test]
    fn refusal_of_the_api_server_is_its_message() {
        #[derive(Debug, thiserror::Error)]
        #[error("write the object: {0}")]
        struct Write(#[source] Box<kube::Error>);
        let status = serde_json::json!({ "status": "Failure", "message": "nodes \"a\" is forbidden", "reason": "Forbidden",
            "code": 403 });
        let error = || kube::Error::Api(Box::new(serde_json::from_value(status.clone()).unwrap()));
        assert_eq!(chain(&error()), "nodes \"a\" is forbidden (403)");
        let error = Write(Box::new(error()));
        assert_eq!(chain(&error), "write the object: nodes \"a\" is forbidden (403)");
    }
}
