//! Regions, realms, and where their endpoints are. Everything can be overridden: dedicated regions, tests.

use std::fmt;

use serde::Deserialize;

use crate::error::Error;

/// A region and the domain of its realm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    name: String,
    domain: String,
}

/// Where requests go: base URLs without the version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The core services, for example `https://iaas.us-ashburn-1.oraclecloud.com`.
    pub core: String,
    /// The federation service, for example `https://auth.us-ashburn-1.oraclecloud.com`.
    pub auth: String,
}

/// The keys that the metadata service still uses for the oldest regions.
const SHORT: [(&str, &str); 4] =
    [("iad", "us-ashburn-1"), ("phx", "us-phoenix-1"), ("fra", "eu-frankfurt-1"), ("lhr", "uk-london-1")];

/// Realms that a region's name gives away; all others need [`Region::in_realm`], or are of the first realm.
const REALMS: [(&str, &str); 5] = [
    ("us-langley-1", "oraclegovcloud.com"),
    ("us-luke-1", "oraclegovcloud.com"),
    ("us-gov-", "oraclegovcloud.com"),
    ("uk-gov-", "oraclegovcloud.uk"),
    ("eu-dcc-", "oraclecloud.eu"),
];

/// The domain of the first realm, OC1.
const OC1: &str = "oraclecloud.com";

impl Region {
    /// A region by its name (`eu-frankfurt-1`) or short key (`fra`), in the realm that its name tells.
    ///
    /// # Errors
    /// When it cannot be part of a host name.
    pub fn new(name: &str) -> Result<Self, Error> {
        let name = name.trim().to_lowercase();
        let name = SHORT.iter().find(|(short, _)| *short == name).map_or(name.as_str(), |(_, long)| long);
        let domain = REALMS.iter().find(|(prefix, _)| name.starts_with(prefix)).map_or(OC1, |(_, domain)| domain);
        Self::in_realm(name, domain)
    }

    /// A region in the realm of this domain (`oraclecloud8.com`); the metadata service calls it `realmDomainComponent`.
    ///
    /// # Errors
    /// When one of them cannot be part of a host name.
    pub fn in_realm(name: &str, domain: &str) -> Result<Self, Error> {
        for part in [name, domain] {
            if !is_host_name(part) {
                return Err(Error::setup(format!("{part:?} is neither a region nor a realm's domain")));
            }
        }
        Ok(Self { name: name.to_owned(), domain: domain.to_owned() })
    }

    /// Reads the metadata service's `regionInfo`, and the environment variable `OCI_REGION_METADATA`, which has its form.
    ///
    /// # Errors
    /// When it is none.
    pub fn from_region_info(json: &[u8]) -> Result<Self, Error> {
        let info: RegionInfo =
            serde_json::from_slice(json).map_err(|error| Error::setup_by("the region information", error))?;
        Self::in_realm(&info.region_identifier, &info.realm_domain_component)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its services are.
    #[must_use]
    pub fn endpoints(&self) -> Endpoints {
        let of = |service: &str| format!("https://{service}.{}.{}", self.name, self.domain);
        Endpoints { core: of("iaas"), auth: of("auth") }
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RegionInfo {
    region_identifier: String,
    realm_domain_component: String,
}

fn is_host_name(text: &str) -> bool {
    let labels = text.split('.');
    text.len() <= 200
        && labels.into_iter().all(|label| {
            let edges = label.bytes().next().into_iter().chain(label.bytes().last());
            label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && edges.filter(u8::is_ascii_alphanumeric).count() == 2
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_follow_from_region_and_realm() {
        let core = |region: Region| region.endpoints().core;
        assert_eq!(core(Region::new("us-ashburn-1").unwrap()), "https://iaas.us-ashburn-1.oraclecloud.com");
        assert_eq!(core(Region::new("IAD\n").unwrap()), "https://iaas.us-ashburn-1.oraclecloud.com");
        assert_eq!(core(Region::new("us-gov-ashburn-1").unwrap()), "https://iaas.us-gov-ashburn-1.oraclegovcloud.com");
        assert_eq!(core(Region::new("uk-gov-london-1").unwrap()), "https://iaas.uk-gov-london-1.oraclegovcloud.uk");
        let dedicated = Region::in_realm("ap-dcc-tokyo-1", "oraclecloud9.com").unwrap();
        assert_eq!(dedicated.endpoints().auth, "https://auth.ap-dcc-tokyo-1.oraclecloud9.com");
    }

    #[test]
    fn region_information_names_region_and_realm() {
        let json = br#"{"realmKey":"oc8","realmDomainComponent":"oraclecloud8.com","regionKey":"NJA","regionIdentifier":"ap-chiyoda-1"}"#;
        assert_eq!(
            Region::from_region_info(json).unwrap(),
            Region::in_realm("ap-chiyoda-1", "oraclecloud8.com").unwrap()
        );
        assert!(Region::from_region_info(b"{}").is_err());
    }

    #[test]
    fn what_leads_elsewhere_is_no_region() {
        for bad in ["", "us-ashburn-1/x", "evil.example#", "a b", "-a", "a-", "a..b", "a@b"] {
            assert!(Region::new(bad).is_err(), "{bad:?}");
        }
    }
}
