//! Which instance a Node is: `spec.providerID`, which is an instance's OCID, with or without `oci://` before it.

use thiserror::Error;
use vcn::Ocid;

/// Why a providerID names no instance.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("providerID {0:?} names no OCI instance: expected ocid1.instance.…, with or without oci:// before it")]
pub struct ProviderIdError(String);

/// The instance that a providerID names.
///
/// # Errors
/// When it is not an instance's OCID: another cloud's node, or one that its cloud manager has not got to yet.
pub fn instance_of(provider_id: &str) -> Result<Ocid, ProviderIdError> {
    let text = provider_id.strip_prefix("oci://").unwrap_or(provider_id);
    let error = || ProviderIdError(provider_id.chars().take(300).collect());
    if text.split('.').nth(1) != Some("instance") {
        return Err(error());
    }
    text.parse().map_err(|_| error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_may_be_absent() {
        let ocid = "ocid1.instance.oc1.iad.anyhqljtexample";
        assert_eq!(instance_of(ocid).unwrap().as_str(), ocid);
        assert_eq!(instance_of(&format!("oci://{ocid}")).unwrap().as_str(), ocid);
    }

    #[test]
    fn non_instance_provider_id_is_refused_and_quoted() {
        for bad in
            ["", "aws:///us-east-1a/i-0", "oci://", "oci://ocid1.vnic.oc1.iad.a", "OCI://ocid1.instance.oc1.iad.a"]
        {
            let error = instance_of(bad).unwrap_err();
            assert!(error.to_string().contains(&format!("{bad:?}")), "{error}");
        }
    }
}
