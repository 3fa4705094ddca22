//! A target by URL, as its probe needs it.

use hyper::Uri;
use nettest::probe::{ProbeKind, ProbeTarget};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpUrl {
    /// The scheme: only HTTP or HTTPS.
    pub(crate) kind: ProbeKind,
    /// An address, or a name that the source resolves.
    pub(crate) host: ProbeTarget,
    pub(crate) port: u16,
    /// The path with its query.
    pub(crate) path: String,
}

impl HttpUrl {
    /// Reads a URL; `None` if it is none of http or https.
    pub(crate) fn read(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let (kind, port) = match uri.scheme_str()? {
            "http" => (ProbeKind::Http, 80),
            "https" => (ProbeKind::Https, 443),
            _ => return None,
        };
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
        let host = host.parse().map_or_else(|_| ProbeTarget::Host(host.to_owned()), ProbeTarget::Address);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Some(Self { kind, host, port: uri.port_u16().unwrap_or(port), path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_host_port_and_path_are_read() {
        let host = |name: &str| ProbeTarget::Host(name.to_owned());
        let address = |text: &str| ProbeTarget::Address(text.parse().unwrap());
        for (url, kind, to, port, path) in [
            ("http://example.org", ProbeKind::Http, host("example.org"), 80, "/"),
            ("https://example.org/a?b=c", ProbeKind::Https, host("example.org"), 443, "/a?b=c"),
            ("https://10.0.0.2:8443/", ProbeKind::Https, address("10.0.0.2"), 8443, "/"),
            ("http://[::1]:80/", ProbeKind::Http, address("::1"), 80, "/"),
        ] {
            let path = path.to_owned();
            assert_eq!(HttpUrl::read(url), Some(HttpUrl { kind, host: to, port, path }), "{url}");
        }
        for url in ["example.org", "ftp://example.org", "https://", "https://a b"] {
            assert_eq!(HttpUrl::read(url), None, "{url}");
        }
    }
}
