//! A real Kubernetes API server for tests, on loopback: etcd and kube-apiserver as their projects publish them
//! (`servers/`), with RBAC, NodeRestriction and ValidatingAdmissionPolicy on. Nothing of Kubernetes is emulated.
//!
//! ```text
//!   ApiServer::start() ──▶ etcd, kube-apiserver and a folder of their own, gone with the ApiServer
//!        │
//!        ├─▶ admin(), node("n1"), user(…), token(account, bound) ──▶ Identity
//!        ├─▶ client(&identity) ──▶ kube::Client       kubeconfig(&identity), in_cluster(&identity, folder)
//!        ├─▶ apply(path): manifests, as `kubectl apply --server-side` does
//!        ├─▶ stored(key): what etcd holds of an object
//!        └─▶ stop(), start_again(), restart(), freeze(), thaw(); expire() for 410, throttle(user) for 429
//! ```
//!
//! ```no_run
//! # async fn test() -> anyhow::Result<()> {
//! use kube_harness::{ApiServer, Bound, ServiceAccount};
//!
//! let server = ApiServer::start()?; // 3 to 4 s; `ApiServer::shared()` where a file's tests can do with one
//! server.apply("manifests".as_ref()).await?;
//! let account = ServiceAccount::new("oke-node-manager", "oke-node-agent");
//! server.create_account(&account).await?;
//! let agent = server.client(&server.token(&account, &Bound::Node("10.0.0.2".into())).await?)?;
//! # drop(agent); Ok(()) }
//! ```
//!
//! There is no controller manager, no scheduler and no kubelet: nothing creates the service account `default` of a namespace,
//! collects garbage, ends a namespace or runs a pod. A test makes what it needs, as those would. A client belongs to the
//! tokio runtime that it was made in: tests that share a server make their own.
//!
//! A killed test's servers end with the PID namespace of `tests/runner`, and so do those of `ApiServer::shared()`. With
//! OKE_TEST_NO_ISOLATION they are left.
//!
//! The servers are built once by `servers/build` (`make test` does), or those of `KUBEBUILDER_ASSETS` are taken. Where
//! neither is there, `start` fails and says how to get them.

mod account;
mod api_faults;
mod apply;
mod arguments;
mod assets;
mod authority;
mod etcd;
mod identity;
mod programs;
mod server;
mod waiting;

pub use account::{Bound, ServiceAccount};
pub use assets::{Assets, Building};
pub use identity::Identity;
pub use server::ApiServer;
pub use waiting::{wait_for, wait_until, wait_within};
