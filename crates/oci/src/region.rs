//! Regions, realms and their endpoints. All of it can be overridden: dedicated regions, tests.

pub(crate) mod endpoint;
mod table;

use std::fmt;

use serde::Deserialize;

use crate::error::Error;
use crate::region::endpoint::Endpoint;
use table::regions;

/// A region and its realm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    name: RegionName,
    realm: RealmDomain,
}

/// The name of a region (`eu-frankfurt-1`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionName(String);

/// The domain that the endpoints of a realm are in (`oraclecloud8.com`); the metadata service calls it
/// `realmDomainComponent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealmDomain(String);

/// The base URLs of the services, without the version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The core services, for example `https://iaas.us-ashburn-1.oraclecloud.com`.
    pub core: Endpoint,
    /// The federation service, for example `https://auth.us-ashburn-1.oraclecloud.com`.
    pub auth: Endpoint,
}

impl RegionName {
    /// A region by its name, or by its key (`fra`) where that is known.
    ///
    /// # Errors
    /// When it cannot be part of a host name, or has the form of a key and is unknown.
    pub fn new(text: &str) -> Result<Self, Error> {
        let text = text.trim().to_lowercase();
        if let Some((.., name)) = regions().find(|(_, key, _)| *key == text) {
            return Ok(Self(name.to_owned()));
        }
        if is_host_name(&text) && text.contains('-') && !text.contains('.') {
            return Ok(Self(text));
        }
        Err(Error::setup(format!("{text:?} is neither a region's name (eu-frankfurt-1) nor a known key (fra)")))
    }

    /// Its realm, where the region is known. An unknown region may be new, and in any realm.
    pub fn realm(&self) -> Option<RealmDomain> {
        regions().find(|(.., name)| *name == self.0).map(|(domain, ..)| RealmDomain(domain.to_owned()))
    }
}

impl RealmDomain {
    /// A realm by its domain.
    ///
    /// # Errors
    /// When it cannot be the end of a host name.
    pub fn new(text: &str) -> Result<Self, Error> {
        let text = text.trim().to_lowercase();
        if is_host_name(&text) && text.contains('.') {
            return Ok(Self(text));
        }
        Err(Error::setup(format!("{text:?} is not a realm's domain, such as oraclecloud.com")))
    }
}

impl Region {
    /// The region of this name in this realm.
    pub const fn new(name: RegionName, realm: RealmDomain) -> Self {
        Self { name, realm }
    }

    /// Reads the metadata service's `regionInfo`; the environment variable `OCI_REGION_METADATA` has the same form. A known region is
    /// in its own realm, whatever the answer says: requests with our signature would go to that domain.
    ///
    /// # Errors
    /// When it names no region or no realm.
    pub fn from_region_info(json: &[u8]) -> Result<Self, Error> {
        let info: RegionInfo =
            serde_json::from_slice(json).map_err(|error| Error::setup_by("the region information", error))?;
        let name = RegionName::new(&info.region_identifier)?;
        let realm = name.realm().map_or_else(|| RealmDomain::new(&info.realm_domain_component), Ok)?;
        Ok(Self::new(name, realm))
    }

    /// The name of the region.
    pub const fn name(&self) -> &RegionName {
        &self.name
    }

    /// The domain of the region's realm.
    pub const fn realm(&self) -> &RealmDomain {
        &self.realm
    }

    /// The addresses of the region's services.
    pub fn endpoints(&self) -> Endpoints {
        let of = |service: &str| Endpoint::of_host(&format!("{service}.{}.{}", self.name.0, self.realm.0));
        Endpoints { core: of("iaas"), auth: of("auth") }
    }
}

impl fmt::Display for RegionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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

    fn core(name: &str) -> Option<String> {
        let name = RegionName::new(name).unwrap();
        let realm = name.realm()?;
        Some(Region::new(name, realm).endpoints().core.to_string())
    }

    #[test]
    fn endpoints_follow_from_region_and_realm() {
        for (name, host) in [
            ("us-ashburn-1", "us-ashburn-1.oraclecloud.com"),
            ("IAD\n", "us-ashburn-1.oraclecloud.com"),
            ("nrt", "ap-tokyo-1.oraclecloud.com"),
            ("us-gov-ashburn-1", "us-gov-ashburn-1.oraclegovcloud.com"),
            ("uk-gov-london-1", "uk-gov-london-1.oraclegovcloud.uk"),
            ("eu-frankfurt-2", "eu-frankfurt-2.oraclecloud.eu"),
            ("eu-dcc-milan-1", "eu-dcc-milan-1.oraclecloud14.com"),
            ("eu-dcc-zurich-1", "eu-dcc-zurich-1.oraclecloud24.com"),
        ] {
            assert_eq!(core(name), Some(format!("https://iaas.{host}")), "{name:?}");
        }
    }

    #[test]
    fn an_unknown_region_has_the_given_realm_only() {
        assert_eq!(core("eu-dcc-nowhere-1"), None);
        let dedicated =
            Region::new(RegionName::new("ap-dcc-tokyo-1").unwrap(), RealmDomain::new("oraclecloud9.com").unwrap());
        assert_eq!(dedicated.endpoints().auth.as_str(), "https://auth.ap-dcc-tokyo-1.oraclecloud9.com");
    }

    #[test]
    fn region_information_names_region_and_realm() {
        for (region, realm, host) in [
            ("ap-chiyoda-9", "oraclecloud99.com", "ap-chiyoda-9.oraclecloud99.com"),
            // Known ones: the table alone decides.
            ("ap-chiyoda-1", "oraclecloud99.com", "ap-chiyoda-1.oraclecloud8.com"),
            ("NJA", "evil.example", "ap-chiyoda-1.oraclecloud8.com"),
            ("eu-frankfurt-1", "", "eu-frankfurt-1.oraclecloud.com"),
        ] {
            let json =
                format!(r#"{{"realmKey":"oc99","realmDomainComponent":"{realm}","regionIdentifier":"{region}"}}"#);
            let endpoints = Region::from_region_info(json.as_bytes()).unwrap().endpoints();
            assert_eq!(endpoints.core.as_str(), format!("https://iaas.{host}"));
            assert_eq!(endpoints.auth.as_str(), format!("https://auth.{host}"));
        }
        assert!(Region::from_region_info(b"{}").is_err());
    }

    #[test]
    fn a_name_that_leads_to_another_host_is_refused() {
        for bad in ["", "us-ashburn-1/x", "evil.example#", "a b", "-a", "a-", "a..b", "a@b", "nrx", "us-ashburn-1.x"] {
            assert!(RegionName::new(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "oraclecloud", "oraclecloud.com/x", "oraclecloud.com:80", ".com", "a b.c"] {
            assert!(RealmDomain::new(bad).is_err(), "{bad:?}");
        }
    }
}
