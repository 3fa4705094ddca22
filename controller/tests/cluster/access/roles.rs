//! The roles and bindings of the manifest, whole or without one right.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

/// Roles, bindings and the account.
#[derive(Clone, Debug)]
pub(crate) struct Rights(pub(crate) Vec<Value>);

/// One verb on one resource, in one rule of one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Right {
    role: usize,
    rule: usize,
    pub(crate) namespace: Option<String>,
    pub(crate) group: String,
    pub(crate) resource: String,
    /// The one object that it applies to.
    pub(crate) name: Option<String>,
    pub(crate) verb: String,
}

impl Rights {
    pub(crate) fn of_the_manifest() -> Self {
        Self(documents(&["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]))
    }

    /// The account of the controller's pods.
    pub(crate) fn pod_template() -> Value {
        let [mut deployment] = <[Value; 1]>::try_from(documents(&["Deployment"])).unwrap();
        deployment["spec"]["template"].take()
    }

    /// The same without one right.
    pub(crate) fn without(&self, right: &Right) -> Self {
        let mut rights = self.clone();
        let rules = rights.0[right.role]["rules"].as_array_mut().unwrap();
        let whole = rules.remove(right.rule);
        // The rule's other resources, and this resource with other verbs, stay.
        let mut others = whole.clone();
        remove(&mut others["resources"], &right.resource);
        let mut same = whole;
        same["resources"] = json!([right.resource]);
        remove(&mut same["verbs"], &right.verb);
        let left = [others, same].into_iter();
        rules.extend(left.filter(|rule| rule["resources"] != json!([]) && rule["verbs"] != json!([])));
        rights
    }
}

/// Every right, one by one.
pub(crate) fn each_right(rights: &Rights) -> Vec<Right> {
    let mut all = Vec::new();
    for (role, document) in rights.0.iter().enumerate() {
        for (rule, words) in document["rules"].as_array().into_iter().flatten().enumerate() {
            let list = |field: &str| -> Vec<String> {
                words[field].as_array().into_iter().flatten().map(|word| word.as_str().unwrap().to_owned()).collect()
            };
            let [group] = <[String; 1]>::try_from(list("apiGroups")).expect("one group to a rule");
            for resource in list("resources") {
                for verb in list("verbs") {
                    all.push(Right {
                        role,
                        rule,
                        namespace: document["metadata"]["namespace"].as_str().map(ToOwned::to_owned),
                        group: group.clone(),
                        resource: resource.clone(),
                        name: list("resourceNames").pop(),
                        verb,
                    });
                }
            }
        }
    }
    assert!(all.len() > 10, "{all:?}");
    all
}

impl Right {
    /// As the API server names it in a log line.
    pub(crate) fn refusal(&self) -> String {
        format!(r#"cannot {} resource \"{}\""#, self.verb, self.resource)
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)
    }
}

fn documents(kinds: &[&str]) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/base");
    let mut found = Vec::new();
    for file in ["controller.yaml", "probe-pods.yaml"] {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        let all = serde_yaml_ng::Deserializer::from_str(&text).map(|document| Value::deserialize(document).unwrap());
        found.extend(all.filter(|document| kinds.contains(&document["kind"].as_str().unwrap())));
    }
    found
}

fn remove(list: &mut Value, word: &str) {
    list.as_array_mut().unwrap().retain(|found| found != word);
}
