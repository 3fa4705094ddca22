//! The way to the API server: proxies, a path in the server's URL, lists of kubeconfigs, and plugins for credentials. The proxies
//! resolve a name that no resolver knows.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::thread;

use serde_json::json;

use super::{VIEWER, program, server, text};

/// The server's name, as the proxies know it.
const NAME: &str = "api.example.test";

/// Copies both ways until both ends.
fn copy(one: &TcpStream, other: &TcpStream) {
    let way = |from: &TcpStream, to: &TcpStream| {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        })
    };
    let ways = [way(one, other), way(other, one)];
    ways.into_iter().for_each(|way| way.join().unwrap());
}

/// A proxy that leads NAME to an address; where it listens. `greet` reads what a client requests, and answers it.
fn proxy(to: SocketAddr, greet: fn(&mut TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                greet(&mut stream);
                copy(&stream, &TcpStream::connect(to).unwrap());
            });
        }
    });
    address
}

fn connect(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(text(&head).starts_with(&format!("CONNECT {NAME}:6443 ")), "{}", text(&head));
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
}

/// RFC 1928, without authentication and with a name.
fn socks(stream: &mut TcpStream) {
    let mut greeting = [0; 2];
    stream.read_exact(&mut greeting).unwrap();
    stream.read_exact(&mut vec![0; greeting[1].into()]).unwrap();
    stream.write_all(&[5, 0]).unwrap();
    let mut request = [0; 5];
    stream.read_exact(&mut request).unwrap();
    assert_eq!(request[..4], [5, 1, 0, 3], "a name, which the proxy resolves");
    let mut name = vec![0; usize::from(request[4]) + 2];
    stream.read_exact(&mut name).unwrap();
    assert_eq!(&name[..name.len() - 2], NAME.as_bytes());
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
}

/// A kubeconfig of the viewer, with changes; and the server's address.
async fn kubeconfig(name: &str, change: impl FnOnce(&mut serde_json::Value)) -> (PathBuf, SocketAddr) {
    let server = server().await;
    let path = server.folder().join(format!("{name}.kubeconfig"));
    server.write_kubeconfig(&server.user(VIEWER, None).unwrap(), &path).unwrap();
    let mut config: serde_json::Value = serde_yaml_ng::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let url = config["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned();
    let address = url.trim_start_matches("https://").trim_end_matches('/').parse().unwrap();
    change(&mut config);
    fs::write(&path, config.to_string()).unwrap();
    (path, address)
}

fn status(kubeconfig: &Path, variables: &[(&str, &str)]) -> Output {
    let list = kubeconfig.as_os_str();
    program().args(["vnics", "-o", "json"]).env("KUBECONFIG", list).envs(variables.iter().copied()).output().unwrap()
}

fn shows_vnics(output: &Output) {
    assert!(text(&output.stdout).contains("kubectl-storage"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn api_server_is_reached_through_proxies() {
    let named = |config: &mut serde_json::Value| {
        config["clusters"][0]["cluster"]["server"] = json!(format!("https://{NAME}:6443"));
        config["clusters"][0]["cluster"]["tls-server-name"] = json!("127.0.0.1");
    };
    let (path, address) = kubeconfig("proxied", named).await;
    let http = format!("http://{}", proxy(address, connect));
    let socks = format!("socks5://{}", proxy(address, socks));
    for url in [&http, &socks] {
        shows_vnics(&status(&path, &[("HTTPS_PROXY", url)]));
        let with_url = |config: &mut serde_json::Value| {
            named(config);
            config["clusters"][0]["cluster"]["proxy-url"] = json!(url);
        };
        let (path, _) = kubeconfig("proxy-url", with_url).await;
        // NO_PROXY is for the variables.
        shows_vnics(&status(&path, &[("NO_PROXY", "*"), ("HTTPS_PROXY", "http://127.0.0.1:1")]));
    }
    let output = status(&path, &[("HTTPS_PROXY", &http), ("NO_PROXY", ".example.test,")]);
    assert!(text(&output.stdout).is_empty() && output.status.code() == Some(1), "{output:?}");
}

/// As Rancher serves clusters.
#[tokio::test(flavor = "multi_thread")]
async fn path_of_the_server_precedes_each_request() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/k8s/clusters/c-1", listener.local_addr().unwrap());
    let served = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let length = stream.read(&mut request).unwrap();
        let list =
            r#"{"kind":"VnicAttachmentList","apiVersion":"oke.oraclecloud.com/v1alpha1","metadata":{},"items":[]}"#;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json";
        write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{list}", list.len()).unwrap();
        text(&request[..length]).lines().next().unwrap_or_default().to_owned()
    });
    let (path, _) = kubeconfig("prefixed", |config| config["clusters"][0]["cluster"]["server"] = json!(url)).await;
    let output = status(&path, &[("HTTP_PROXY", "http://127.0.0.1:1")]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let path = "GET /k8s/clusters/c-1/apis/oke.oraclecloud.com/v1alpha1/vnicattachments?";
    assert!(served.join().unwrap().starts_with(path));
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_kubeconfigs_are_skipped() {
    let (path, _) = kubeconfig("listed", |_| {}).await;
    let list = std::env::join_paths([Path::new("/nonexistent/a"), &path, Path::new("/nonexistent/b")]).unwrap();
    shows_vnics(&status(Path::new(&list), &[]));
    let output = status(Path::new("/nonexistent/a:/nonexistent/b"), &[]);
    let error = text(&output.stderr);
    assert!(error.contains("none of the files in KUBECONFIG exists: /nonexistent/a, /nonexistent/b"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_credential_plugin_is_named_with_its_hint() {
    let plugin = |command: &str, arguments: &[&str], hint: &str| {
        json!([{ "name": "x", "user": { "exec": { "apiVersion": "client.authentication.k8s.io/v1beta1", "command": command,
            "args": arguments, "installHint": hint, "interactiveMode": "Never" } } }])
    };
    let with = async |name: &str, users: serde_json::Value| {
        let user = |config: &mut serde_json::Value| {
            config["users"] = users;
            config["contexts"][0]["context"]["user"] = json!("x");
        };
        text(&status(&kubeconfig(name, user).await.0, &[("PATH", "/bin:/usr/bin")]).stderr)
    };
    let error = with("missing", plugin("oci-not-there", &[], "Install the OCI CLI.")).await;
    assert!(error.contains("the program oci-not-there") && error.contains("Install the OCI CLI."), "{error}");
    let error = with("failing", plugin("sh", &["-c", "echo session expired >&2; exit 3"], "")).await;
    assert!(error.contains("session expired") && !error.contains("Output {"), "{error}");
}
