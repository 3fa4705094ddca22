//! Who gets the metrics: every client without TLS; with it, those with a certificate of the CA.

use std::fs;
use std::io;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::*;

struct TestHandler;

impl Handler for TestHandler {
    async fn answer(&self, path: &str, _: Caller) -> Answer {
        Answer::text(200, path)
    }
}

type Ca = CertifiedIssuer<'static, KeyPair>;

fn ca() -> Ca {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Certificate and key of a name, as PEM.
fn identity(ca: &Ca) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["oke-node-manager".to_owned()]).unwrap();
    (params.signed_by(&key, ca).unwrap().pem(), key.serialize_pem())
}

fn write(folder: &Path, ca: &Ca) {
    let (certificate, key) = identity(ca);
    for (name, text) in [("tls.crt", certificate), ("tls.key", key), ("ca.crt", ca.pem())] {
        fs::write(folder.join(name), text).unwrap();
    }
}

async fn start(tls: Option<&Path>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, tls.map(Path::to_owned), Arc::new(TestHandler)));
    address
}

/// The answer, as far as it comes.
async fn get(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str) -> io::Result<String> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: node\r\n\r\n").as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// Sends a request over TLS, as a client that trusts `ca`, with a certificate of `own`.
async fn get_by_tls(address: SocketAddr, ca: &Ca, own: Option<&Ca>) -> io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(ca.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let (certificate, key) = identity(own);
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
        }
    };
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("oke-node-manager").unwrap();
    get(TlsConnector::from(Arc::new(config)).connect(name, stream).await?, "/metrics").await
}

#[tokio::test]
async fn open_port_serves_metrics_only() {
    let address = start(None).await;
    let answer = async |path| get(TcpStream::connect(address).await.unwrap(), path).await.unwrap();
    assert!(answer("/metrics").await.starts_with("HTTP/1.1 200"));
    assert!(answer("/readyz").await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn tls_port_serves_clients_of_the_ca_only() {
    let (folder, ca, other) = (tempfile::tempdir().unwrap(), self::ca(), self::ca());
    write(folder.path(), &ca);
    let address = start(Some(folder.path())).await;
    assert!(get_by_tls(address, &ca, Some(&ca)).await.unwrap().starts_with("HTTP/1.1 200"));
    assert!(get_by_tls(address, &ca, None).await.is_err(), "without a certificate");
    assert!(get_by_tls(address, &ca, Some(&other)).await.is_err(), "with one of another CA");
    let plain = get(TcpStream::connect(address).await.unwrap(), "/metrics").await;
    assert!(!plain.unwrap_or_default().contains("HTTP/1.1 200"), "without TLS");
}

#[tokio::test]
async fn tls_port_without_valid_files_serves_no_client() {
    let (folder, ca) = (tempfile::tempdir().unwrap(), self::ca());
    let address = start(Some(folder.path())).await;
    assert!(get_by_tls(address, &ca, Some(&ca)).await.is_err());
    write(folder.path(), &ca);
    assert!(get_by_tls(address, &ca, Some(&ca)).await.is_ok(), "files that appear later are used");
    let error = acceptor(Path::new("/nonexistent")).err().unwrap();
    assert_eq!(error.to_string(), "reading /nonexistent/ca.crt");
}
