//! Base URLs as a user typed them: one that cannot begin a request's URL is refused early.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;

use crate::error::Error;

/// The base URL of a service: `https://host`, with an optional port and no path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(String);

/// The base URL of the metadata service, its version included: `http://host/opc/v2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataUrl(String);

impl Endpoint {
    pub(crate) fn of_host(host: &str) -> Self {
        Self(format!("https://{host}"))
    }

    /// Without a slash at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its host, without the port.
    pub fn host(&self) -> Option<String> {
        Some(self.0.parse::<Uri>().ok()?.host()?.to_owned())
    }
}

impl MetadataUrl {
    /// Without a slash at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (url, path) = split(text)?;
        if path.is_empty() { Ok(Self(url)) } else { Err(not(text, "https://host")) }
    }
}

impl FromStr for MetadataUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (url, path) = split(text)?;
        Ok(Self(url + &path))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for MetadataUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Scheme with host and port, and path without a slash at its end.
fn split(text: &str) -> Result<(String, String), Error> {
    let refused = || not(text, "https://host");
    let uri: Uri = text.parse().map_err(|_| refused())?;
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(refused());
    };
    if authority.host().is_empty() || authority.as_str().contains('@') || uri.query().is_some() {
        return Err(refused());
    }
    Ok((format!("{scheme}://{authority}"), uri.path().trim_end_matches('/').to_owned()))
}

fn not(text: &str, form: &str) -> Error {
    Error::setup(format!("{text:?} is not of the form {form}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_cannot_begin_a_url_is_no_endpoint() {
        for text in ["https://iaas.us-ashburn-1.oraclecloud.com", "http://127.0.0.1:9", "https://[::1]:443"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().as_str(), text);
            assert_eq!(format!("{text}/").parse::<Endpoint>().unwrap().as_str(), text);
        }
        for text in
            ["", "/", "iaas", "ftp://x", "https://", "https://x/20160918", "https://x?y", "https://a@b", "https://a b"]
        {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_metadata_services_version_is_part_of_its_url() {
        let url = |text: &str| text.parse::<MetadataUrl>().map(|url| url.to_string());
        assert_eq!(url(crate::METADATA_URL).unwrap(), crate::METADATA_URL);
        assert_eq!(url("http://169.254.169.254/opc/v2/").unwrap(), crate::METADATA_URL);
        assert!(url("169.254.169.254/opc/v2").is_err() && url("http://x/?y").is_err());
    }
}
