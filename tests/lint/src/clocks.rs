//! A paused tokio clock advances while the kernel carries bytes, so a deadline passes by chance. A test with such a clock opens
//! no socket, neither itself nor through the functions that it calls.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::functions::{Function, all, calls, imports};
use crate::tree::Tree;
use crate::workspace::Workspace;

/// What opens a socket: types, any function of which does, and constructors of HTTP clients that connect.
const SOCKETS: [&str; 9] = [
    "TcpListener",
    "TcpSocket",
    "TcpStream",
    "UdpSocket",
    "UnixDatagram",
    "UnixListener",
    "UnixStream",
    "HttpConnector",
    "HttpsConnector",
];
const CONNECTING: [(&str, &str); 2] = [("Client", "try_from"), ("Client", "try_default")];

/// Functions that stop the clock and reach a socket. Calls are followed by name: in the file, by paths and by imports.
#[must_use]
pub fn check(workspace: &Workspace, tree: &Tree) -> Vec<Finding> {
    let functions = all(workspace, tree);
    let mut graph = Graph::default();
    for function in &functions {
        graph.by_name.entry(&function.name).or_default().push(function);
    }
    for (file, text) in tree.with_extension("rs") {
        graph.imports.insert(file.display().to_string(), imports(text));
    }
    let paused = functions.iter().filter(|function| stops_clock(function));
    let reaching = paused.filter_map(|function| Some((function, graph.way_to_socket(function)?)));
    let findings = reaching.map(|(function, way)| {
        let way: Vec<String> = way.iter().map(|it| format!("{} ({}:{})", it.name, it.file, it.line)).collect();
        let message = format!(
            "with a paused clock a socket is opened by {}: the clock advances while the kernel carries bytes; use a client \
             without a network, or real time with a short deadline",
            way.join(", ")
        );
        Finding::new("clocks", format!("{}:{}", function.file, function.line), message)
    });
    findings.collect()
}

fn stops_clock(function: &Function) -> bool {
    let pause = |path: &str, name: &str| name == "start_paused" || name == "pause" && matches!(last(path), "" | "time");
    function.attributes.contains("start_paused") || calls(&function.body).any(|(path, name)| pause(&path, name))
}

/// Which functions have a name, and what each file imports: paths and names.
#[derive(Default)]
struct Graph<'a> {
    by_name: BTreeMap<&'a str, Vec<&'a Function>>,
    imports: BTreeMap<String, Vec<(String, String)>>,
}

impl<'a> Graph<'a> {
    /// The calls from `start` to the first function that opens a socket.
    fn way_to_socket(&self, start: &'a Function) -> Option<Vec<&'a Function>> {
        let mut reached = BTreeSet::new();
        let mut next = vec![vec![start]];
        while let Some(way) = next.pop() {
            let function = *way.last()?;
            if !reached.insert((&function.file, function.line, &function.name)) {
                continue;
            }
            let imports = self.imports.get(&function.file).map(Vec::as_slice).unwrap_or_default();
            for (path, name) in calls(&function.body) {
                if SOCKETS.contains(&last(&path)) || CONNECTING.contains(&(last(&path), name)) {
                    return Some(way);
                }
                let named = self.by_name.get(name).into_iter().flatten();
                let callees = named.filter(|other| is_callee(function, &path, other, imports));
                next.extend(callees.map(|other| way.iter().copied().chain([*other]).collect()));
            }
        }
        None
    }
}

/// The last part of a path: the type, or the module.
fn last(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// Whether a call of `other`'s name by this path in `caller` can mean `other`.
fn is_callee(caller: &Function, path: &str, other: &Function, imports: &[(String, String)]) -> bool {
    let is_near = caller.file == other.file;
    let imported =
        |name: &str| imports.iter().any(|(path, it)| (it == name || it == "*") && leads_to(caller, path, other));
    match path {
        // Of which type a method is, is not known: only those of the file are followed.
        "." => is_near && !other.owner.is_empty(),
        "Self" => is_near && other.owner == caller.owner,
        "" => other.owner.is_empty() && (is_near || imported(&other.name)),
        _ if other.owner.is_empty() => {
            leads_to(caller, path, other)
                || imported(last(path)) && other.file.ends_with(&format!("/{}.rs", last(path)))
        }
        _ => {
            last(path) == other.owner
                && (is_near || imported(&other.owner) || path.contains("::") && leads_to(caller, path, other))
        }
    }
}

/// Whether the modules of a path can be those of `other`: its package, its folders and its file.
fn leads_to(caller: &Function, path: &str, other: &Function) -> bool {
    let mut parts = path.split("::").filter(|part| !part.is_empty() && *part != other.owner).peekable();
    let first = parts.peek().copied().unwrap_or_default();
    let is_inside = matches!(first, "crate" | "super" | "self") && unit(&caller.file) == unit(&other.file);
    let parts: Vec<&str> = parts.filter(|part| !matches!(*part, "crate" | "self") && *part != other.package).collect();
    if parts.first() == Some(&"super") && parts.iter().all(|part| *part == "super") {
        // The module around: that file, or this one for a module inside it.
        let around = caller.file.rsplit_once('/').map(|(folder, _)| format!("{folder}.rs"));
        return is_inside && (around.as_deref() == Some(&*other.file) || caller.file == other.file);
    }
    let places: Vec<&str> = other.file.trim_end_matches(".rs").split('/').collect();
    (is_inside || first == other.package) && parts.iter().all(|part| *part == "super" || places.contains(part))
}

/// The folder of what is compiled as one: a package's `src`, or one of its test programs.
fn unit(file: &str) -> &str {
    let places = [file.find("/src/").map(|at| at + 5), file.find("/tests/").map(|at| at + 7)];
    let start = places.into_iter().flatten().min().unwrap_or(0);
    let is_test = file.get(..start).is_some_and(|folder| folder.ends_with("/tests/"));
    let program = file.get(start..).and_then(|rest| rest.find('/')).filter(|_| is_test).unwrap_or(0);
    file.get(..start + program).unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::workspace::Package;

    const PAUSED: &str = "#[tokio::test(start_paused = true)]\nasync fn a_test() ";

    /// The number of findings if a test has this body, in a file with this other text.
    fn found(text: &str, others: &[(&str, &str)]) -> usize {
        let package = |name: &str| Package {
            description: None,
            name: name.to_owned(),
            manifest_path: Path::new("/w").join(name).join("Cargo.toml"),
            dependencies: Vec::new(),
            targets: Vec::new(),
        };
        let workspace = Workspace { packages: vec![package("near"), package("far-away")], root: "/w".into() };
        let files: Vec<_> = [("near/src/tests.rs", text)].into_iter().chain(others.iter().copied()).collect();
        check(&workspace, &Tree::of(&files)).len()
    }

    #[test]
    fn sockets_with_a_paused_clock_are_found() {
        let far = [("far-away/src/lib.rs", "pub async fn connect() { TcpStream::connect(a).await }")];
        let module = [(
            "near/src/peer.rs",
            "impl Peer { fn start() -> Self { std::os::unix::net::UnixStream::pair() } }\nfn listen() { UdpSocket::bind(a) }",
        )];
        for (text, others) in [
            (format!("{PAUSED} {{ let port = TcpListener::bind(a).await; }}"), &[][..]),
            (
                format!(
                    "{PAUSED} {{ one(); }}\nfn one() {{ two::<A>(); }}\nfn two<A>() {{ kube::Client::try_from(c) }}"
                ),
                &[],
            ),
            ("async fn a_test() { tokio::time::pause(); net::UnixDatagram::unbound() }".to_owned(), &[]),
            (
                format!(
                    "fn runtime() {{ Builder::new().start_paused(true).build() }}\n{PAUSED} {{ TcpSocket::new_v4() }}"
                ),
                &[],
            ),
            (format!("{PAUSED} {{ self.send() }}\nimpl A {{ fn send(&self) {{ HttpConnector::new() }} }}"), &[]),
            (format!("use far_away::connect;\n{PAUSED} {{ connect().await }}"), &far),
            (format!("{PAUSED} {{ far_away::connect().await }}"), &far),
            (format!("use crate::peer::Peer;\n{PAUSED} {{ Peer::start() }}"), &module),
            (format!("use super::peer::*;\n{PAUSED} {{ listen() }}"), &module),
            (format!("{PAUSED} {{ super::peer::listen() }}"), &module),
        ] {
            assert_eq!(found(&text, others), 1, "{text}");
        }
    }

    #[test]
    fn clocks_or_sockets_alone_pass() {
        let connect = "pub async fn connect() { TcpStream::connect(a).await }";
        let others = [("far-away/src/lib.rs", connect), ("near/tests/program/scene.rs", connect)];
        for text in [
            "#[tokio::test]\nasync fn a_test() { TcpListener::bind(a) }".to_owned(),
            format!("{PAUSED} {{ connection(duplex(1)).await }}\nfn serve() {{ TcpListener::bind(a) }}"),
            format!("{PAUSED} {{ clock.pause(); }} // TcpListener::bind(a)"),
            format!("{PAUSED} {{ connect(); }}\nfn connect() {{}}"),
            format!("use super::scene::connect;\n{PAUSED} {{ connect() }}"),
        ] {
            assert_eq!(found(&text, &others), 0, "{text}");
        }
    }
}
