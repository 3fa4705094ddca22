//! The two ends of a connection, as typed.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectName {
    pub namespace: String,
    pub name: String,
}

/// Where a connection starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// As typed: NODE or NODE/ADDRESS.
    Node(String),
    Pod(ObjectName),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Service {
        name: ObjectName,
        /// Number or name; the first one if absent.
        port: Option<String>,
    },
    Pod(ObjectName),
    /// A Node, a service of nodes, or what is outside the cluster.
    Other(String),
}

impl Source {
    /// # Errors
    /// When it is `pod/` with something else than a namespace and a name.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some(("pod" | "pods" | "po", rest)) => object_name(rest, "pod/NAMESPACE/NAME").map(Self::Pod),
            _ => Ok(Self::Node(text.to_owned())),
        }
    }
}

impl Target {
    /// # Errors
    /// When it is `pod/` or `service/` with something else than a namespace and a name.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        const SERVICE: &str = "service/NAMESPACE/NAME or service/NAMESPACE/NAME:PORT";
        match text.split_once('/') {
            Some(("pod" | "pods" | "po", rest)) => object_name(rest, "pod/NAMESPACE/NAME").map(Self::Pod),
            Some(("service" | "services" | "svc", rest)) => {
                let (name, port) = rest.split_once(':').map_or((rest, None), |(name, port)| (name, Some(port)));
                if port.is_some_and(|port| !is_name(port)) {
                    return Err(format!("expected {SERVICE}"));
                }
                let name = object_name(name, SERVICE)?;
                Ok(Self::Service { name, port: port.map(str::to_owned) })
            }
            _ => Ok(Self::Other(text.to_owned())),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// It becomes a part of a path.
fn object_name(text: &str, form: &str) -> Result<ObjectName, String> {
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => {
            Ok(ObjectName { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err(format!("expected {form}")),
    }
}

/// Whether it can be the name of an object: never a path.
pub(crate) fn is_name(text: &str) -> bool {
    let is_valid = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || matches!(char, '-' | '.');
    !text.is_empty() && text.len() <= 253 && !text.starts_with('.') && text.chars().all(is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_ends() {
        let name = |namespace: &str, name: &str| ObjectName { namespace: namespace.into(), name: name.into() };
        assert_eq!(Source::read("pod/shop/front-0"), Ok(Source::Pod(name("shop", "front-0"))));
        assert_eq!(Source::read("10.0.10.2/10.0.11.2"), Ok(Source::Node("10.0.10.2/10.0.11.2".into())));
        let service = |port: Option<&str>| Ok(Target::Service { name: name("a", "b"), port: port.map(Into::into) });
        assert_eq!(Target::read("service/a/b"), service(None));
        assert_eq!(Target::read("svc/a/b:http"), service(Some("http")));
        assert_eq!(Target::read("https://b.org/c"), Ok(Target::Other("https://b.org/c".into())));
        for refused in ["pod/a", "pod/a/b/c", "service/a", "service/a/b:", "service/../b", "svc/a/B", "pod//b"] {
            assert!(Target::read(refused).is_err(), "{refused}");
        }
    }
}
