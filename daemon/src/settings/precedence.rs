//! What is said, what wins, and what is said of what is wrong.

use std::fs;
use std::path::PathBuf;

use resident::config::Layers;
use tracing::Level;
use vcn::LinkKindName;

use crate::args::keys;
use crate::settings::{Permission, Ports, Settings};

struct Scene {
    directory: tempfile::TempDir,
    layers: Layers,
}

impl Scene {
    fn new(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.conf");
        fs::write(&path, file).unwrap();
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let layers = Layers {
            flags: flags.iter().map(pair).collect(),
            environment: environment.iter().map(pair).collect(),
            file: path,
            file_is_named: true,
        };
        Self { directory, layers }
    }

    fn settings(&self) -> Result<Settings, Vec<String>> {
        let keys = keys();
        let place = format!("{}/", self.directory.path().display());
        self.layers
            .read(&keys)
            .settings::<Settings>(&keys)
            .map_err(|problems| problems.iter().map(|problem| problem.to_string().replace(&place, "")).collect())
    }

    fn problems(&self) -> Vec<String> {
        self.settings().map(drop).unwrap_err()
    }
}

#[test]
fn precedence_is_flag_then_environment_then_file_then_default() {
    let file = "RESYNC_SECONDS=5\nDETACH_GRACE_SECONDS=6\nLOG_LEVEL=warn\n";
    let environment = [("RESYNC_SECONDS", "7"), ("DETACH_GRACE_SECONDS", "8"), ("PATH", "/bin")];
    let settings = Scene::new(file, &environment, &[("RESYNC_SECONDS", "9")]).settings().unwrap();
    assert_eq!(settings.resync.as_secs(), 9);
    assert_eq!(settings.detach_grace.as_secs(), 8);
    assert_eq!(settings.resident.log_level, Level::WARN);
    assert_eq!(settings.pods_may_use_metadata, Permission::Allow);
}

#[test]
fn all_problems_are_reported_together_with_nearest_valid_key() {
    let file = "\
# a comment
RESYNC_SECOND=5
LOG_LEVEL=wran
resync-seconds=3
what is this
STATE_DIR=run
STATE_DIR=/run/x
NPN_FILE=\"/x\"
COMPLETELY_FOREIGN_KEY=1
";
    // Other programs have variables, too.
    let environment =
        [("DETACH_GRACE_SECOND", "8"), ("OCI_METADATA_BASE_URL", "nonsense"), ("PODS_MAY_USE_METADATA", "Deny")];
    let flags = [
        ("RESYNC_SECONDS", "often"),
        ("DETACH_GRACE_SECONDS", "NaN"),
        ("CNI_TAKEOVER", "maybe"),
        ("BM_PORT_0", "a name"),
    ];
    assert_eq!(
        Scene::new(file, &environment, &flags).problems(),
        [
            r#"agent.conf, line 5: "what is this" is not KEY=value"#,
            "agent.conf, line 7: STATE_DIR is set twice",
            r#"agent.conf, line 8: NPN_FILE is "/x": values are taken as they are, so leave the quotes out"#,
            "agent.conf, line 2: RESYNC_SECOND is not a key; did you mean RESYNC_SECONDS?",
            r#"agent.conf, line 3: LOG_LEVEL is "wran", which is none of error, warn, info, debug, trace; did you mean warn?"#,
            "agent.conf, line 4: resync-seconds is not a key; did you mean RESYNC_SECONDS?",
            r#"agent.conf, line 6: STATE_DIR is "run": not an absolute path"#,
            "agent.conf, line 9: COMPLETELY_FOREIGN_KEY is not a key",
            "environment: DETACH_GRACE_SECOND is not a key; did you mean DETACH_GRACE_SECONDS?",
            r#"environment: OCI_METADATA_BASE_URL is "nonsense": using "nonsense" as the metadata service's base URL: not an http:// URL"#,
            r#"environment: PODS_MAY_USE_METADATA is "Deny", which is none of allow, deny; did you mean deny?"#,
            r#"command line: BM_PORT_0 is "a name": "a name" is not a link name: it contains '/', ':', '%', NUL or white space"#,
            r#"command line: CNI_TAKEOVER is "maybe", which is none of true, false"#,
            r#"command line: DETACH_GRACE_SECONDS is "NaN": not between 0.1 and 3600 seconds"#,
            r#"command line: RESYNC_SECONDS is "often": invalid float literal"#,
        ]
    );
}

#[test]
fn conflicting_values_are_reported() {
    let together = Scene::new("CNI_SOURCE_DIR=/srv/cni\nCNI_BIN_DIR=/srv/cni\n", &[], &[]);
    let problems = together.problems();
    assert!(problems.len() == 1 && problems[0].starts_with("configuration: "), "{problems:?}");
    let [problem] = Scene::new("METRICS_PORT=9808\n", &[], &[]).problems().try_into().unwrap();
    assert!(problem.contains("--metrics-port needs --node-ip (NODE_IP)"), "{problem}");
}

#[test]
fn an_empty_value_says_nothing_and_json_is_a_value() {
    let scene = Scene::new("BM_PORT_1=\nSIGNAL_NODE_LABEL = {\"a\": \"b=c\"}  \r\n", &[("RESYNC_SECONDS", "")], &[]);
    let settings = scene.settings().unwrap();
    assert_eq!(settings.signals.set.node_label.as_deref(), Some(r#"{"a": "b=c"}"#));
    assert_eq!(settings.resync.as_secs(), 30);
}

#[test]
fn empty_flag_unsets_weaker_layers_or_is_an_error() {
    let file = "BM_PORT_0=a\nNPN_FILE=/x\n";
    let settings = Scene::new(file, &[("NPN_FILE", "/y")], &[("BM_PORT_0", ""), ("NPN_FILE", "")]).settings().unwrap();
    assert_eq!((settings.npn_file.clone(), settings.ports.clone()), (None, Ports::default()));
    let flags = [("PODS_MAY_USE_METADATA", ""), ("STATE_DIR", "")];
    assert_eq!(
        Scene::new("PODS_MAY_USE_METADATA=deny\n", &[], &flags).problems(),
        [
            r#"command line: PODS_MAY_USE_METADATA is "", which is none of allow, deny"#,
            r#"command line: STATE_DIR is "": not an absolute path"#,
        ]
    );
}

#[test]
fn boolean_switches_are_set_by_their_value() {
    assert!(Scene::new("CNI_TAKEOVER=yes\n", &[], &[]).settings().unwrap().installer.takeover);
    assert!(
        !Scene::new("CNI_TAKEOVER=true\n", &[("CNI_TAKEOVER", "false")], &[]).settings().unwrap().installer.takeover
    );
}

#[test]
fn named_file_must_exist() {
    let mut scene = Scene::new("", &[], &[]);
    fs::remove_file(&scene.layers.file).unwrap();
    assert_eq!(scene.problems(), ["agent.conf: it cannot be read: No such file or directory (os error 2)"]);
    scene.layers.file_is_named = false;
    assert!(scene.settings().is_ok());
}

#[test]
fn settings_anyway_uses_valid_values_and_defaults() {
    let scene = Scene::new("STATE_DIR=/run/elsewhere\nRESYNC_SECONDS=0\nDATA_DIR=x\nNONSENSE=1\n", &[], &[]);
    let keys = keys();
    let settings = scene.layers.read(&keys).settings_anyway::<Settings>(&keys).unwrap();
    assert_eq!(settings.state_dir, PathBuf::from("/run/elsewhere"));
    assert_eq!(settings.resync.as_secs(), 30);
}

/// With it a link that a pod made would pass for a network card.
#[test]
fn nic_kind_of_tests_is_set_by_command_line_only() {
    let of = |file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]| {
        Scene::new(file, environment, flags).settings().map(|settings| settings.nics())
    };
    let set = [("TEST_NIC_KIND", "veth")];
    assert_eq!(of("", &[], &[]), Ok(LinkKindName::HARDWARE));
    assert_eq!(of("", &[], &set), Ok(LinkKindName::new(Some("veth".to_owned()))));
    assert_eq!(of("", &set, &[]), Err(vec!["environment: TEST_NIC_KIND is not a key".to_owned()]));
    assert_eq!(
        of("TEST_NIC_KIND=veth", &[], &[]),
        Err(vec!["agent.conf, line 1: TEST_NIC_KIND is not a key".to_owned()])
    );
    assert!(keys().iter().all(|key| key.name() != "TEST_NIC_KIND"), "no document, chart or add-on names it");
}
