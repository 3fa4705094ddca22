//! Other programs' configurations that our plugin is chained into (a Flannel node's), and taken out of again.

use serde_json::{Map, Value};

use super::{ConfChange, Facts, Note, Plan, Purpose, Step};
use crate::observed::{ChainHost, ConfText, kind};
use crate::record::{ConfigurationRecord, Urgency};
use crate::settings::VNIC_ATTACH;
use crate::versions::{Answer, Version};

impl Plan {
    pub(super) fn hosts(&mut self, facts: Facts<'_>, install: bool) {
        let wanted = facts.settings.chain_into.as_deref().filter(|_| !install);
        for host in &facts.observed.hosts {
            if wanted == Some(host.name.as_str()) {
                if let Err(reason) = self.chain(host, facts) {
                    self.notes.push(Note::not_chained(&host.name, &reason));
                }
                continue;
            }
            match unchain(host) {
                Ok(step) => self.steps.push(step),
                Err(reason) => self.notes.push(Note::still_chained(&host.name, &reason)),
            }
        }
    }

    fn chain(&mut self, host: &ChainHost, facts: Facts<'_>) -> Result<(), String> {
        let found = host.at.file();
        let found = found.ok_or_else(|| host.at.unread().unwrap_or("there is no such file".to_owned()))?;
        let disk = found.list().ok_or("it is no list of plugins")?;
        check_version(facts.observed.guest.as_ref(), &disk)?;
        let wanted = facts.settings.guest_entry();
        let mut document = disk.clone();
        let Some(Value::Array(plugins)) = document.get_mut("plugins") else { return Ok(()) };
        let position = plugins.iter().position(is_guest);
        match position.and_then(|at| plugins.get_mut(at)) {
            Some(entry) => *entry = wanted.clone(),
            None => plugins.push(wanted.clone()),
        }
        if document == disk {
            return Ok(());
        }
        let none = ConfigurationRecord::default();
        let known = facts.record.configurations.get(&host.name).unwrap_or(&none);
        let change = if position.is_some() { "changed" } else { "removed" };
        let reverted = (known.wanted.as_ref() == Some(&wanted)).then(|| format!("plugin {VNIC_ATTACH} was {change}"));
        let backup = position.is_none();
        let change = ConfChange { wanted, backup, reverted, ..change_of(host, found, text(&document), Purpose::Chain) };
        self.write(change, (known, Urgency::PodsStart), facts);
        Ok(())
    }
}

/// Takes our plugin out: a file that no other program changed since gets its old bytes back, of another only our entry goes.
/// The error says why the file cannot be read.
pub(crate) fn unchain(host: &ChainHost) -> Result<Step, String> {
    if let Some(reason) = host.at.unread() {
        return Err(reason);
    }
    let list = host.at.file().and_then(|found| Some((found, found.list()?)));
    let Some((found, mut document)) = list else {
        let names_ours =
            host.at.file().is_some_and(|found| String::from_utf8_lossy(&found.contents).contains(VNIC_ATTACH));
        return match names_ours {
            true => Err("it is no list of plugins".to_owned()),
            false => Ok(Step::Forget { path: host.path.clone() }),
        };
    };
    if let Some(Value::Array(plugins)) = document.get_mut("plugins") {
        let before = plugins.len();
        plugins.retain(|plugin| !is_guest(plugin));
        if plugins.len() == before {
            return Ok(Step::Forget { path: host.path.clone() });
        }
    }
    let unchanged =
        |bytes: &&Vec<u8>| serde_json::from_slice::<Map<String, Value>>(bytes).is_ok_and(|it| it == document);
    let contents = host.backup.as_ref().filter(unchanged).cloned().unwrap_or_else(|| text(&document));
    Ok(Step::ChangeConf(Box::new(change_of(host, found, contents, Purpose::Unchain))))
}

fn change_of(host: &ChainHost, found: &ConfText, contents: Vec<u8>, purpose: Purpose) -> ConfChange {
    ConfChange {
        name: host.name.clone(),
        target: found.target.clone(),
        contents,
        mode: found.mode,
        found: Some(found.contents.clone()),
        link: None,
        wanted: Value::Null,
        backup: false,
        purpose,
        reverted: None,
    }
}

fn is_guest(plugin: &Value) -> bool {
    kind(plugin) == Some(VNIC_ATTACH)
}

fn text(document: &Map<String, Value>) -> Vec<u8> {
    format!("{:#}\n", Value::Object(document.clone())).into_bytes()
}

/// Our plugin must speak the version that the configuration is written in: the runtime may use that one.
fn check_version(answer: Option<&Answer>, document: &Map<String, Value>) -> Result<(), String> {
    let versions = match answer {
        Some(Answer::Speaks(versions)) => versions,
        Some(Answer::Failed(reason)) => return Err(reason.clone()),
        Some(Answer::Missing) | None => return Err("its binary is missing".to_owned()),
    };
    let version = document.get("cniVersion").and_then(Value::as_str).unwrap_or("0.2.0");
    match version.parse::<Version>() {
        Ok(known) if versions.contains(&known) => Ok(()),
        _ => Err(format!("it is written for CNI {version}, which our plugin does not speak")),
    }
}
