//! Where Oracle's SDK finds its services, region by region, our client finds them.

use std::collections::BTreeMap;
use std::process::Command;

use oci::{Endpoints, Region, RegionName};

use crate::sdk_client::python;

/// By name and key.
const LIST: &str = "
import json, oci
known = oci.regions.REGIONS + list(oci.regions.REGIONS_SHORT_NAMES)
print(json.dumps({name: [oci.regions.endpoint_for(of, name) for of in ('compute', 'auth')] for name in known}))
";

#[test]
fn every_region_of_the_sdk_has_correct_endpoints() {
    let output = Command::new(python()).args(["-c", LIST]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed: BTreeMap<String, [String; 2]> = serde_json::from_slice(&output.stdout).unwrap();
    let ours = listed.keys().map(|text| {
        let name = RegionName::new(text).unwrap();
        let realm = name.realm().unwrap_or_else(|| panic!("{text} is of no realm"));
        let Endpoints { core, auth } = Region::new(name, realm).endpoints();
        (text.clone(), [core, auth].map(|endpoint| endpoint.to_string()))
    });
    assert!(listed.len() > 100, "{}", listed.len());
    assert_eq!(ours.collect::<BTreeMap<_, _>>(), listed);
}
