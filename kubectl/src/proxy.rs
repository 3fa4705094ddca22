//! The proxy of the API server, as kubectl chooses it: `proxy-url` of the kubeconfig, else HTTPS_PROXY or HTTP_PROXY unless
//! NO_PROXY names the server. The rules of NO_PROXY are those of Go's `golang.org/x/net/http/httpproxy`. Pure.

use std::net::IpAddr;

use anyhow::{Context as _, bail};
use hyper::Uri;
use ipnetwork::IpNetwork;

/// The proxy; `None` for a direct connection. `proxy_url` is that of the kubeconfig, for which NO_PROXY does not count.
///
/// # Errors
/// When the proxy's URL is not one of http, https or socks5.
pub(crate) fn of(
    proxy_url: Option<&str>,
    server: &Uri,
    variable: impl Fn(&str) -> Option<String>,
) -> anyhow::Result<Option<Uri>> {
    let set = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let first = |names: [&str; 2]| names.into_iter().find_map(|name| Some((name.to_owned(), set(name)?)));
    if let Some(url) = proxy_url.map(str::trim).filter(|url| !url.is_empty()) {
        return parsed(url).context("reading proxy-url of the kubeconfig").map(Some);
    }
    let is_plain = server.scheme_str() == Some("http");
    let names = if is_plain { ["HTTP_PROXY", "http_proxy"] } else { ["HTTPS_PROXY", "https_proxy"] };
    let Some((name, url)) = first(names) else { return Ok(None) };
    let exceptions = first(["NO_PROXY", "no_proxy"]).map(|(_, value)| value).unwrap_or_default();
    let port = server.port_u16().unwrap_or(if is_plain { 80 } else { 443 });
    if is_direct(server.host().unwrap_or_default(), port, &exceptions) {
        return Ok(None);
    }
    parsed(&url).with_context(|| format!("reading {name}")).map(Some)
}

/// A proxy without a scheme is one of http.
fn parsed(text: &str) -> anyhow::Result<Uri> {
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url: Uri = text.parse().context("the proxy is not a URL")?;
    let (scheme, port) = match url.scheme_str() {
        Some("http") => ("http", 80),
        Some("https") => ("https", 443),
        // The proxy resolves names with both.
        Some("socks5" | "socks5h") => ("socks5", 1080),
        scheme => bail!("proxies of {} are not supported: use http, https or socks5", scheme.unwrap_or("no scheme")),
    };
    let authority = url.authority().context("the proxy has no host")?;
    let authority =
        if authority.port().is_some() { authority.to_string() } else { format!("{}:{port}", authority.as_str()) };
    Ok(Uri::builder().scheme(scheme).authority(authority).path_and_query("/").build()?)
}

/// Whether the server is reached without a proxy.
fn is_direct(host: &str, port: u16, exceptions: &str) -> bool {
    let host = host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    let is_it = |entry: &str| {
        if entry == "*" {
            return true;
        }
        if let Ok(network) = entry.parse::<IpNetwork>()
            && entry.contains('/')
        {
            return address.is_some_and(|address| network.contains(address));
        }
        let (name, only_port) = split_port(entry);
        if only_port.is_some_and(|only| only != port) {
            return false;
        }
        if let Ok(only) = name.trim_matches(['[', ']']).parse::<IpAddr>() {
            return address == Some(only);
        }
        let name = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
        match name.strip_prefix('.') {
            // Names below it only.
            Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            None => host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')),
        }
    };
    exceptions.split(',').map(|entry| entry.trim().to_ascii_lowercase()).any(|entry| !entry.is_empty() && is_it(&entry))
}

/// An entry, and its port. An IPv6 address without brackets has none.
fn split_port(entry: &str) -> (&str, Option<u16>) {
    match entry.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, port.parse().ok()),
        _ => (entry, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(proxy_url: Option<&str>, server: &str, variables: &[(&str, &str)]) -> String {
        let variable = |name: &str| {
            let set = variables.iter().find(|(known, _)| *known == name);
            set.map(|(_, value)| (*value).to_owned())
        };
        match of(proxy_url, &server.parse().unwrap(), variable) {
            Ok(None) => "direct".to_owned(),
            Ok(Some(url)) => url.to_string(),
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn proxies_are_chosen_as_kubectl_chooses_them() {
        let server = "https://10.0.0.5:6443";
        let proxy = [("HTTPS_PROXY", "http://proxy:3128")];
        for (proxy_url, server, variables, expected) in [
            (None, server, &[][..], "direct"),
            (None, server, &proxy, "http://proxy:3128/"),
            (None, server, &[("https_proxy", "proxy")], "http://proxy:80/"),
            (None, server, &[("HTTP_PROXY", "http://proxy:1")], "direct"),
            (None, "http://10.0.0.5:8080", &[("HTTP_PROXY", "http://proxy:1")], "http://proxy:1/"),
            (None, server, &[("HTTPS_PROXY", "http://user:pa%40ss@proxy:1")], "http://user:pa%40ss@proxy:1/"),
            (Some("socks5://localhost:1080"), server, &proxy, "socks5://localhost:1080/"),
            (Some("socks5h://bastion"), server, &[], "socks5://bastion:1080/"),
            (Some("https://proxy"), server, &[("NO_PROXY", "*")], "https://proxy:443/"),
            (
                Some("ftp://proxy"),
                server,
                &[],
                "reading proxy-url of the kubeconfig: proxies of ftp are not supported: use http, https or socks5",
            ),
            (None, "https://localhost:6443", &proxy, "direct"),
            (None, "https://[::1]:6443", &proxy, "direct"),
        ] {
            assert_eq!(found(proxy_url, server, variables), expected, "{proxy_url:?} {server} {variables:?}");
        }
    }

    #[test]
    fn servers_in_no_proxy_are_reached_directly() {
        for (server, exceptions, direct) in [
            ("https://10.0.0.5:6443", "10.0.0.0/8", true),
            ("https://10.0.0.5:6443", "localhost, 10.0.0.5,", true),
            ("https://10.0.0.5:6443", "10.0.0.5:443", false),
            ("https://10.0.0.5:6443", "10.0.0.5:6443", true),
            ("https://11.0.0.5:6443", "10.0.0.0/8,,not a host", false),
            ("https://[fd00::5]:6443", "fd00::5", true),
            ("https://[fd00::5]:6443", "[fd00::5]:6443", true),
            ("https://[fd00::5]:6443", "fd00::/64", true),
            ("https://api.example.org", "example.org", true),
            ("https://api.example.org", ".example.org", true),
            ("https://api.example.org", "*.Example.org", true),
            ("https://example.org", ".example.org", false),
            ("https://notexample.org", "example.org", false),
            ("https://api.example.org", "*", true),
            ("https://api.example.org", "", false),
        ] {
            let variables = [("HTTPS_PROXY", "http://proxy:3128"), ("NO_PROXY", exceptions)];
            let expected = if direct { "direct" } else { "http://proxy:3128/" };
            assert_eq!(found(None, server, &variables), expected, "{server} {exceptions}");
        }
    }
}
