//! Rules are data: which value of which signal is a problem, how often it must be seen, how bad it is. The shipped ones are
//! `rules.json`; files override them by name: the controller's, then the agent's own. A rule that is not valid is reported and
//! left out, the others work.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::collectors;
use crate::repair::limit::is_repairable;
use crate::signal::{Signal, Unit, version_number};

pub use crate::verdict::{Action, Severity};

const SHIPPED: &str = include_str!("rules.json");

/// The longest window of samples: an hour of the usual minute.
const MAX_SAMPLES: usize = 60;

/// A rule: when a signal is a problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    /// Its name, by which it is overridden.
    pub name: String,
    /// The signal that it judges.
    pub signal: String,
    /// Whether too much or too little is the problem.
    #[serde(rename = "is")]
    pub comparison: Comparison,
    /// In the signal's unit; a version as text.
    #[serde(deserialize_with = "bound")]
    pub bound: f64,
    /// How many samples must be beyond the bound.
    #[serde(default)]
    pub samples: Samples,
    /// How bad it is.
    #[serde(default)]
    pub severity: Severity,
    /// What the agent does about it.
    #[serde(default)]
    pub action: Action,
    /// State and effect, in one sentence.
    pub message: String,
    /// The shapes that it is for, `*` for any part; all when empty.
    #[serde(default)]
    pub shapes: Vec<String>,
    /// Shapes among those that it is not for.
    #[serde(default)]
    pub except_shapes: Vec<String>,
    /// The sizes of memory that it is for.
    #[serde(default, rename = "memoryGiB")]
    pub memory: MemorySizes,
    /// Whether it is switched off.
    #[serde(default)]
    pub off: bool,
}

/// Which side of the bound is a problem. The bound itself is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Comparison {
    /// Values above the bound are problems.
    Above,
    /// Values below the bound are problems.
    Below,
}

/// `bad` of the last `of` samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Samples {
    /// The number of bad samples that raise the condition.
    pub bad: usize,
    /// The number of last samples that count.
    pub of: usize,
}

/// Sizes of a node's memory in GiB, as the kernel reports it (MemTotal): a little less than the shape's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySizes {
    /// From this size on.
    #[serde(default)]
    pub from: f64,
    /// Below this size; all when absent.
    #[serde(default)]
    pub below: Option<f64>,
}

/// The node's hardware, by which rules are chosen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hardware<'a> {
    /// The shape, such as `VM.Standard.E5.Flex`.
    pub shape: Option<&'a str>,
    /// The MemTotal of /proc/meminfo, in GiB.
    pub memory: Option<f64>,
}

/// The rules in force, and what is wrong with the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// In force, by name.
    pub rules: Vec<Rule>,
    /// Why others are not.
    pub problems: Vec<String>,
}

/// The text of a file of rules.
#[derive(Clone, Copy, Debug)]
pub struct RulesText<'a> {
    /// Where it is from, for messages.
    pub source: &'a str,
    /// The text of the file.
    pub text: &'a str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rules: Vec<Map<String, Value>>,
}

/// What distinguishes one text of rules from another: `sha256:` and 64 hexadecimal digits.
pub fn version(text: &str) -> String {
    format!("sha256:{:x}", Sha256::digest(text))
}

impl Default for Samples {
    fn default() -> Self {
        Self { bad: 1, of: 1 }
    }
}

impl Rules {
    /// The rules that the agent is shipped with.
    pub fn shipped() -> Self {
        Self::read(&[])
    }

    /// The shipped rules with overrides, in order: an entry with the name of an earlier rule replaces the fields that it has, any
    /// other entry is a new rule.
    pub fn read(overrides: &[RulesText<'_>]) -> Self {
        let mut result = Self::default();
        let mut by_name = BTreeMap::new();
        for text in std::iter::once(&RulesText { source: "rules.json", text: SHIPPED }).chain(overrides) {
            result.take(&mut by_name, text);
        }
        result.rules = by_name.into_values().map(|(_, rule)| rule).filter(|rule| !rule.off).collect();
        result
    }

    /// Whether a text is a file of rules. Single rules may be invalid: they are left out.
    ///
    /// # Errors
    /// Why it is none.
    pub fn check_file(text: &str) -> Result<(), serde_json::Error> {
        serde_json::from_str::<File>(text).map(drop)
    }

    fn take(&mut self, by_name: &mut BTreeMap<String, (Map<String, Value>, Rule)>, text: &RulesText<'_>) {
        let source = text.source;
        let file: File = match serde_json::from_str(text.text) {
            Ok(file) => file,
            Err(error) => return self.problems.push(format!("{source}: the file is not valid: {error}")),
        };
        for entry in file.rules {
            let Some(name) = entry.get("name").and_then(Value::as_str).map(str::to_owned) else {
                self.problems.push(format!("{source}: a rule has no name"));
                continue;
            };
            let mut fields = by_name.get(&name).map(|(fields, _)| fields.clone()).unwrap_or_default();
            fields.extend(entry);
            match Rule::check(&fields) {
                Ok(rule) => {
                    by_name.insert(name, (fields, rule));
                }
                Err(problem) => self.problems.push(format!("{source}: {name}: {problem}")),
            }
        }
    }
}

impl Rule {
    fn check(fields: &Map<String, Value>) -> Result<Self, String> {
        let rule: Self = serde_json::from_value(Value::Object(fields.clone())).map_err(|error| error.to_string())?;
        let Samples { bad, of } = rule.samples;
        if bad == 0 || bad > of || of > MAX_SAMPLES {
            return Err(format!("samples {bad} of {of}: use 1 ≤ bad ≤ of ≤ {MAX_SAMPLES}"));
        }
        if rule.memory.below.is_some_and(|below| below <= rule.memory.from) {
            return Err("memoryGiB: `below` must be more than `from`".to_owned());
        }
        match collectors::signal(&rule.signal) {
            None => Err(format!("there is no signal {}", rule.signal)),
            Some(Signal { unit: Unit::Text, name, .. }) => Err(format!("{name} has no value to compare")),
            Some(Signal { name, .. }) if rule.action == Action::Repair && !is_repairable(name) => {
                Err(format!("there is no repair for {name}; use the action report"))
            }
            Some(_) => Ok(rule),
        }
    }

    /// Whether the rule is for a node with this hardware. While the shape is unknown, only rules for all shapes apply; while the
    /// memory is unknown, only rules for all sizes.
    pub fn applies(&self, hardware: Hardware<'_>) -> bool {
        self.memory.contain(hardware.memory) && self.is_for_shape(hardware.shape)
    }

    fn is_for_shape(&self, shape: Option<&str>) -> bool {
        let Some(shape) = shape else {
            return self.shapes.is_empty() && self.except_shapes.is_empty();
        };
        let is_in = |list: &[String]| list.iter().any(|pattern| matches(pattern, shape));
        (self.shapes.is_empty() || is_in(&self.shapes)) && !is_in(&self.except_shapes)
    }

    /// Whether a value is beyond the bound.
    pub fn is_breached(&self, value: f64) -> bool {
        match self.comparison {
            Comparison::Above => value > self.bound,
            Comparison::Below => value < self.bound,
        }
    }

    /// How far a value is from the bound; negative beyond it.
    pub(crate) fn distance(&self, value: f64) -> f64 {
        match self.comparison {
            Comparison::Above => self.bound - value,
            Comparison::Below => value - self.bound,
        }
    }

    /// The bound in words.
    pub fn bound_text(&self, unit: Unit) -> String {
        if unit == Unit::Yes {
            return if self.comparison == Comparison::Above { "no" } else { "yes" }.to_owned();
        }
        let word = match self.comparison {
            Comparison::Above => "at most",
            Comparison::Below => "at least",
        };
        format!("{word} {}", unit.show(self.bound))
    }
}

impl MemorySizes {
    fn contain(&self, memory: Option<f64>) -> bool {
        match memory {
            Some(memory) => memory >= self.from && self.below.is_none_or(|below| memory < below),
            None => *self == Self::default(),
        }
    }
}

impl fmt::Display for MemorySizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.from, self.below) {
            (from, Some(below)) if from > 0.0 => write!(f, "{from} to {below} GiB of memory"),
            (_, Some(below)) => write!(f, "less than {below} GiB of memory"),
            (0.0, None) => Ok(()),
            (from, None) => write!(f, "{from} GiB of memory or more"),
        }
    }
}

/// Whether a name matches a pattern in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    let inner = name.strip_prefix(head).and_then(|name| name.strip_suffix(tail));
    inner.and_then(|inner| middle.split('*').try_fold(inner, |left, part| Some(left.split_once(part)?.1))).is_some()
}

fn bound<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    use serde::de::Error as _;
    match Value::deserialize(deserializer)? {
        Value::Number(number) => number.as_f64().ok_or_else(|| D::Error::custom("the bound is not a number")),
        Value::String(text) => {
            version_number(&text).ok_or_else(|| D::Error::custom("the bound is neither a number nor a version"))
        }
        _ => Err(D::Error::custom("the bound is neither a number nor a version")),
    }
}
