//! Whether OKE repairs a node: by the taint with which it marks one, or because a NodeRepairConfig selects the node. Oracle documents
//! that a NodeRepairConfig selects nodes by labels, but not in a form that names the API group and the fields. So the kind is found
//! by its name in any group, and the selector by its shape. An object without a selector that can be read is an error and selects
//! nothing.

use std::sync::{PoisonError, RwLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{DynamicObject, ListParams};
use kube::core::{Selector, SelectorExt as _};
use kube::discovery::Discovery;
use kube::{Api, Client, ResourceExt as _};
use resident::logging::chain;
use serde_json::Value;

use crate::cluster::request::{RequestError, send};
use crate::cluster::store::NodeView;

const KIND: &str = "NodeRepairConfig";
/// Where the selector may be in the spec.
const SELECTOR_FIELDS: [&str; 4] = ["nodeSelector", "selector", "labelSelector", "nodeLabelSelector"];
/// The most objects that are read, and the most at once: the API server stores up to 1.5 MB of each.
const CONFIGS_MAX: usize = 500;
const PAGE: u32 = 10;
/// The longest selector, as JSON.
const SELECTOR_MAX: usize = 16 << 10;

/// How OKE's repair of a node is recognized.
#[derive(Debug, Default)]
pub(crate) struct OkeRepair {
    /// The key of the taint with which OKE marks a node that it repairs.
    taint: Option<String>,
    /// Whether NodeRepairConfigs are read.
    reads_configs: bool,
    known: RwLock<KnownConfigs>,
}

#[derive(Debug, Default)]
struct KnownConfigs {
    configs: Vec<RepairConfig>,
    /// Whether they were read.
    is_read: bool,
    /// Why the last read failed.
    error: Option<String>,
}

/// A NodeRepairConfig that acts on nodes.
#[derive(Clone, Debug)]
struct RepairConfig {
    name: String,
    selector: Selector,
}

/// Why the NodeRepairConfigs are not known. Those that were read before still count.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigsError {
    #[error("reading NodeRepairConfigs")]
    Api(#[from] RequestError),
    #[error("there are more than {CONFIGS_MAX} NodeRepairConfigs")]
    TooMany,
    #[error("NodeRepairConfig {0} has no label selector that can be read")]
    NoSelector(String),
}

impl OkeRepair {
    pub(crate) fn new(taint: Option<String>, reads_configs: bool) -> Self {
        Self { taint, reads_configs, known: RwLock::default() }
    }

    /// Whether no setting names a way to recognize the repair.
    pub(crate) const fn is_off(&self) -> bool {
        self.taint.is_none() && !self.reads_configs
    }

    /// The evidence that OKE repairs the node, in a phrase; `None` if OKE does not repair it.
    pub(crate) fn of(&self, node: &NodeView) -> Option<String> {
        if self.taint.as_ref().is_some_and(|taint| node.taints.iter().any(|key| **key == **taint)) {
            return Some("it has OKE's taint".to_owned());
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if known.configs.is_empty() {
            return None;
        }
        let labels = node.labels.map();
        let selecting = known.configs.iter().find(|config| config.selector.matches(&labels))?;
        Some(format!("NodeRepairConfig {} selects it", selecting.name))
    }

    /// Why it is not known whether OKE repairs a node. While it is unknown, no other program may repair one.
    pub(crate) fn unknown(&self) -> Option<String> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        match (&known.error, self.reads_configs && !known.is_read) {
            (Some(error), _) => Some(error.clone()),
            (None, true) => Some("NodeRepairConfigs have not been read yet".to_owned()),
            (None, false) => None,
        }
    }

    /// Reads the NodeRepairConfigs, where that is switched on. A cluster that does not serve the kind has none.
    ///
    /// # Errors
    /// When the API server refuses, or an object has no selector that can be read; the others count nevertheless.
    pub(crate) async fn read(&self, client: &Client) -> Result<(), ConfigsError> {
        if !self.reads_configs {
            return Ok(());
        }
        let read = Self::read_all(client).await;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.error = read.as_ref().err().map(|error| chain(error));
        if let Ok((configs, unreadable)) = read {
            (known.configs, known.is_read) = (configs, true);
            known.error = unreadable.as_ref().map(|error| chain(error));
            return unreadable.map_or(Ok(()), Err);
        }
        read.map(drop)
    }

    /// What was read, and the error of one that cannot be read.
    async fn read_all(client: &Client) -> Result<(Vec<RepairConfig>, Option<ConfigsError>), ConfigsError> {
        let found = send(Discovery::new(client.clone()).run_aggregated()).await?;
        let kinds = found.groups().flat_map(|group| group.recommended_resources());
        let (mut configs, mut error) = (Vec::new(), None);
        for (kind, _) in kinds.filter(|(kind, _)| kind.kind == KIND) {
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
            let (mut page, mut count) = (ListParams::default().limit(PAGE), 0);
            loop {
                let listed = send(api.list(&page)).await?;
                let next = listed.metadata.continue_.clone().filter(|token| !token.is_empty());
                count += listed.items.len();
                for object in listed {
                    match config(&object) {
                        Ok(config) => configs.extend(config),
                        Err(unreadable) => error = Some(unreadable),
                    }
                }
                let Some(next) = next else { break };
                if count >= CONFIGS_MAX {
                    error = Some(ConfigsError::TooMany);
                    break;
                }
                page = page.continue_token(&next);
            }
        }
        Ok((configs, error))
    }
}

/// A NodeRepairConfig, unless it is a dry run.
fn config(object: &DynamicObject) -> Result<Option<RepairConfig>, ConfigsError> {
    let name = vcn::printable(&object.name_any()).into_owned();
    match object.data.get("spec").and_then(selector) {
        Some(selector) => Ok(selector.map(|selector| RepairConfig { name, selector })),
        None => Err(ConfigsError::NoSelector(name)),
    }
}

/// The nodes on which a NodeRepairConfig acts: `Some(None)` are none, because it is a dry run; `None` if that cannot be read.
fn selector(spec: &Value) -> Option<Option<Selector>> {
    let is_dry = |mode: &str| mode.replace(['-', '_', ' '], "").eq_ignore_ascii_case("dryrun");
    let mode = spec.get("mode").and_then(Value::as_str);
    if spec.get("dryRun") == Some(&Value::Bool(true)) || mode.is_some_and(is_dry) {
        return Some(None);
    }
    let found = SELECTOR_FIELDS.iter().find_map(|field| spec.get(*field))?.as_object()?;
    if serde_json::to_vec(found).ok()?.len() > SELECTOR_MAX {
        return None;
    }
    let is_selector = found.contains_key("matchLabels") || found.contains_key("matchExpressions");
    let selector: LabelSelector = match is_selector {
        true => serde_json::from_value(Value::Object(found.clone())).ok()?,
        false => {
            let labels = serde_json::from_value(Value::Object(found.clone())).ok()?;
            LabelSelector { match_labels: Some(labels), match_expressions: None }
        }
    };
    Selector::try_from(selector).ok().map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(label: &str, taint: &str) -> NodeView {
        let labels = std::iter::once((label.to_owned(), "a".to_owned())).collect();
        NodeView { labels, taints: Box::new([taint.into()]), ..NodeView::default() }
    }

    fn repair(specs: &[Value]) -> OkeRepair {
        let all = specs.iter().filter_map(|spec| selector(spec).unwrap());
        let configs = all.map(|selector| RepairConfig { name: "gpus".to_owned(), selector }).collect();
        let known = RwLock::new(KnownConfigs { configs, is_read: true, error: None });
        OkeRepair { known, ..OkeRepair::new(Some("oke/repair".to_owned()), true) }
    }

    #[test]
    fn taint_or_selector_shows_the_repair() {
        let all = repair(&[json!({ "nodeSelector": { "matchLabels": { "pool": "a" } } })]);
        assert_eq!(all.of(&node("pool", "other")).unwrap(), "NodeRepairConfig gpus selects it");
        assert_eq!(all.of(&node("other", "oke/repair")).unwrap(), "it has OKE's taint");
        assert_eq!(all.of(&node("other", "other")), None);
    }

    #[test]
    fn nothing_is_known_before_the_first_read() {
        assert!(OkeRepair::new(None, true).unknown().unwrap().contains("not been read"));
        assert_eq!((repair(&[]).unknown(), OkeRepair::new(None, false).unknown()), (None, None));
    }

    #[test]
    fn selector_is_found_by_its_shape() {
        let selects = |spec: Value| repair(&[spec]).of(&node("pool", "")).is_some();
        assert!(selects(json!({ "nodeSelector": { "pool": "a" } })));
        assert!(selects(json!({ "selector": { "matchExpressions": [{ "key": "pool", "operator": "Exists" }] } })));
        assert!(!selects(json!({ "selector": { "matchLabels": { "pool": "b" } } })));
        assert!(!selects(json!({ "nodeSelector": { "pool": "a" }, "dryRun": true })), "a dry run repairs nothing");
        assert!(!selects(json!({ "nodeSelector": { "pool": "a" }, "mode": "DryRun" })));
    }

    #[test]
    fn object_without_a_readable_selector_selects_nothing() {
        let no_selectors = [
            json!(null),
            json!({}),
            json!({ "nodeSelector": "pool=a" }),
            json!({ "nodeSelector": { "pool": 1 } }),
            json!({ "selector": { "matchExpressions": [{ "key": "pool", "operator": "Near" }] } }),
            json!({ "nodeSelector": { "pool": "a".repeat(SELECTOR_MAX) } }),
        ];
        for spec in no_selectors {
            assert!(selector(&spec).is_none(), "{spec}");
        }
    }
}
