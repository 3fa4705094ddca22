//! Pages of docs/: an index by reader that lists all of them, commands that name existing manifests, and a runbook that covers
//! the known complaints.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use tests::built::bin_dir;

use crate::{read, root};

fn pages() -> BTreeSet<String> {
    let files = fs::read_dir(root().join("docs")).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap());
    files.filter(|name| name.ends_with(".md")).collect()
}

#[test]
fn the_index_lists_every_page() {
    let index = read("docs/README.md");
    for page in pages().iter().filter(|page| *page != "README.md") {
        assert!(index.contains(&format!("]({page}")), "docs/README.md does not list {page}");
    }
}

/// A new custom resource or policy changes what an operator agrees to when applying the base.
#[test]
fn readme_names_custom_resources_and_counts_policies_of_the_base() {
    let readme = read("README.md");
    let row = |name: &str| readme.lines().find(|line| line.starts_with(&format!("| {name} |"))).unwrap().to_owned();
    let crds = read("manifests/base/crds.yaml");
    for kind in crds.lines().filter_map(|line| line.strip_prefix("    kind: ")) {
        assert!(row("custom resources").contains(kind), "README.md does not name {kind}");
    }
    let policies = |file: &str| read(file).lines().filter(|line| *line == "kind: ValidatingAdmissionPolicy").count();
    let of_base = policies("manifests/base/admission.yaml") + policies("manifests/base/probe-pods.yaml");
    let of_tasks = policies("manifests/operations/operation-pods.yaml");
    let numbers =
        ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];
    let text = row("admission policies");
    assert!(text.contains(&format!("{} ValidatingAdmissionPolicies", numbers[of_base])), "{of_base}: {text}");
    assert!(text.contains(&format!("Tasks add {} ", numbers[of_tasks])), "{of_tasks}: {text}");
}

/// One value for its owner to set; the runbooks of alerts have it, too.
#[test]
fn home_of_the_repository_is_the_same_everywhere() {
    let home = env!("CARGO_PKG_REPOSITORY");
    assert!(read("manifests/chart/Chart.yaml").contains(&format!("home: {home}\n")));
    let security = read("docs/security.md");
    for place in ["/issues", "/security"] {
        assert!(security.contains(&format!("<{home}{place}>")), "{home}{place}");
    }
    let host = home.split('/').nth(2).unwrap();
    for page in pages() {
        for url in read(&format!("docs/{page}")).split("https://").skip(1) {
            assert!(
                !url.starts_with(host) || format!("https://{url}").starts_with(home),
                "docs/{page}: {}",
                &url[..40]
            );
        }
    }
}

/// Words of a page that look like paths of the repository.
fn paths(page: &str) -> BTreeSet<String> {
    let words = page.split(|c: char| c.is_whitespace() || "`()[],;".contains(c));
    let starts = ["manifests/", "tests/", "image/", "docs/"];
    let paths = words.filter(|word| starts.iter().any(|start| word.starts_with(start)));
    let literal = paths.filter(|word| !word.contains(['*', '{', '<', '$']) && !word.contains("KIND"));
    literal.map(|word| word.split(['#', ':']).next().unwrap().trim_end_matches('.').to_owned()).collect()
}

#[test]
fn each_path_in_a_page_exists() {
    for page in pages() {
        for path in paths(&read(&format!("docs/{page}"))) {
            assert!(root().join(&path).exists(), "docs/{page} names {path}");
        }
    }
}

/// A drain cordons the node. The rest of the section shows how pods return, or that they do not.
#[test]
fn each_drain_has_its_uncordon() {
    for page in pages() {
        let text = read(&format!("docs/{page}"));
        for section in text.split("\n## ") {
            let drains = section.contains("kubectl drain ");
            assert!(!drains || section.contains("uncordon"), "docs/{page}: {}", section.lines().next().unwrap());
        }
    }
}

/// Both in one wording, so that a script's author finds the same in either.
#[test]
fn exit_statuses_of_the_kubectl_page_are_those_of_help() {
    let output = Command::new(bin_dir().join("kubectl-oke_node")).arg("--help").output().unwrap();
    let plain = |text: &str| text.replace('`', "").split_whitespace().collect::<Vec<_>>().join(" ");
    let help = plain(&String::from_utf8(output.stdout).unwrap()).replace(['(', ')'], "");
    let page = read("docs/kubectl.md");
    let table = page.split("| exit status | meaning |\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let rows: Vec<(&str, &str)> = table.lines().skip(1).map(|row| row[2..].split_once(" | ").unwrap()).collect();
    assert_eq!(rows.len(), 4, "{rows:?}");
    for (status, meaning) in rows {
        let meaning = plain(meaning.trim_end_matches(" |")).replace(['(', ')'], "");
        assert!(
            help.contains(&format!("{status} {}", meaning.replace("healthy; explain", "healthy explain"))),
            "{status} {meaning}\n{help}"
        );
    }
}

/// Words in backticks that look like a reason (`RouterUnknown`), a metric or a signal (`root_disk_unused`).
fn names(page: &str) -> BTreeSet<String> {
    let quoted = page.split('`').skip(1).step_by(2);
    let is_reason = |word: &str| {
        word.starts_with(char::is_uppercase)
            && word.chars().skip(1).any(char::is_uppercase)
            && word.chars().any(char::is_lowercase)
            && word.chars().all(char::is_alphanumeric)
    };
    let is_signal = |word: &str| word.contains('_') && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    quoted.filter(|word| is_reason(word) || is_signal(word)).map(str::to_owned).collect()
}

/// Names of other programs.
const OF_OTHERS: [&str; 3] = ["OOMKilled", "InPod", "runbook_url"];

#[test]
fn reasons_and_signals_of_the_runbook_exist() {
    let reference: String =
        ["operator.md", "resources.md", "vnics.md", "signals.md", "metrics.md", "controller.md", "uninstall.md"]
            .map(|page| read(&format!("docs/{page}")))
            .concat();
    let names = names(&read("docs/troubleshoot.md"));
    assert!(names.len() > 25, "{names:?}");
    for name in names.iter().filter(|name| !OF_OTHERS.contains(&name.as_str())) {
        assert!(reference.contains(name.as_str()), "docs/troubleshoot.md names {name}, which no reference page has");
    }
}

/// What an operator can run.
const PROGRAMS: [&str; 9] =
    ["/usr/libexec/oci-growfs", "conntrack", "curl", "fuser", "helm", "ip", "journalctl", "kubectl", "oke-node-agent"];

/// Whether our programs know the subcommand and its flags, and `explain` the word.
fn is_known(command: &[&str]) -> bool {
    let (program, arguments) = match command {
        ["kubectl", "oke-node", "explain", word] => ("kubectl-oke_node", ["explain", word]),
        ["kubectl", "oke-node", verb, ..] => ("kubectl-oke_node", [*verb, "--help"]),
        ["oke-node-agent", verb, ..] => ("oke-node-agent", [*verb, "--help"]),
        _ => return true,
    };
    let output = Command::new(bin_dir().join(program)).args(arguments).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let flags: BTreeSet<&str> = help.split([' ', ',', '\n', '=']).filter(|word| word.starts_with('-')).collect();
    let mut used =
        command.iter().skip(1).filter(|word| word.starts_with('-')).map(|word| word.split('=').next().unwrap());
    output.status.success() && used.all(|flag| flags.contains(flag))
}

#[test]
fn each_row_of_the_runbook_has_a_known_command() {
    let page = read("docs/troubleshoot.md");
    let (headings, rows): (Vec<_>, Vec<_>) =
        page.lines().filter(|line| line.starts_with("| ")).partition(|line| line.starts_with("| symptom "));
    assert!(headings.iter().all(|heading| *heading == "| symptom | cause | command, next step |"), "{headings:?}");
    assert!(rows.len() > 70, "{rows:?}");
    for row in rows {
        let last = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let quoted = last.split('`').skip(1).step_by(2).map(|text| text.split(' ').collect::<Vec<_>>());
        let commands: Vec<_> = quoted.filter(|words| PROGRAMS.contains(&words[0])).collect();
        assert!(!commands.is_empty(), "no command: {row}");
        for command in commands {
            assert!(is_known(&command), "{command:?}: {row}");
        }
    }
    for wrong in ["kubectl oke-node status --problem", "oke-node-agent heal", "kubectl oke-node explain nonsense"] {
        assert!(!is_known(&wrong.split(' ').collect::<Vec<_>>()), "{wrong}");
    }
}

/// `UPDATE_DOCS=1 make faults` writes the table; a changed list without a new run is found here.
#[test]
fn table_of_faults_has_each_fault_of_the_list() {
    let list = read("tests/cluster/fault-list");
    let faults: Vec<(&str, &str)> = list
        .lines()
        .filter_map(|line| line.strip_prefix("fault ")?.split_once(' '))
        .map(|(number, rest)| (number, rest.split_once(' ').unwrap().1.trim_matches(['\'', '"'])))
        .collect();
    assert_eq!(faults.iter().map(|(number, _)| number).collect::<BTreeSet<_>>().len(), 26);
    let page = read("docs/testing.md");
    let table = page.split("<!-- begin: faults -->").nth(1).unwrap().split("<!-- end: faults -->").next().unwrap();
    let rows: Vec<Vec<&str>> =
        table.lines().skip(3).map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect();
    assert_eq!(rows.iter().map(|row| (row[0], row[1])).collect::<Vec<_>>(), faults);
    let states = ["yes", "no (0)", "no (1)", "no (2)", "not measured"];
    assert!(rows.iter().all(|row| row.len() == 6 && states.contains(&row[5])), "{rows:?}");
}
