//! A reply whose body is read as it arrives. While it is not read, the peer waits: no more than a buffer is in memory.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper::header::ETAG;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::message::{Reply, collect};
use crate::send_error::SendError;

/// The reply of a peer, which ends when this is dropped.
#[derive(Debug)]
pub struct ReplyStream {
    address: SocketAddr,
    response: Response<Incoming>,
    /// The task that carries the bytes; dropping this ends it.
    _connection: Option<Connection>,
}

#[derive(Debug)]
struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ReplyStream {
    /// A reply that began, with the rest of its connection.
    pub(crate) fn new<E: Send + 'static>(
        address: SocketAddr,
        response: Response<Incoming>,
        connection: Option<impl Future<Output = Result<(), E>> + Send + 'static>,
    ) -> Self {
        let connection = connection.map(|connection| Connection(tokio::spawn(connection).abort_handle()));
        Self { address, response, _connection: connection }
    }

    /// The status as in HTTP, which came before the data.
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// The next bytes of the body; none after its end.
    ///
    /// # Errors
    /// If nothing comes within `limit`, or the peer ended the connection before the body was complete.
    pub async fn next(&mut self, limit: Duration) -> Result<Option<Bytes>, SendError> {
        let address = self.address;
        loop {
            let frame = timeout(limit, self.response.frame()).await.map_err(|_| SendError::Slow { address, limit })?;
            match frame.transpose().map_err(|error| SendError::Exchange { address, source: error.into() })? {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }

    /// The whole reply, if it is short.
    pub(crate) async fn collect(self) -> Result<Reply, Box<dyn Error + Send + Sync>> {
        let (head, body) = self.response.into_parts();
        let etag = head.headers.get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        Ok(Reply { status: head.status.as_u16(), etag, body: collect(body).await? })
    }
}
