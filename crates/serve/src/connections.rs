//! Open connections, limited in number. At the limit, the connection idle for longest is closed.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// All open connections.
pub(crate) struct Connections {
    open: Mutex<BTreeMap<u64, Arc<Connection>>>,
    /// A connection with an older unanswered request may be closed.
    longest: Duration,
}

/// A connection.
pub(crate) struct Connection {
    number: u64,
    state: Mutex<ConnectionState>,
    /// Notified when the connection must close.
    pub(crate) let_go: Notify,
}

struct ConnectionState {
    /// Number of requests whose responses are not completely sent.
    busy: usize,
    since: Instant,
}

impl Connections {
    pub(crate) fn new(longest: Duration) -> Self {
        Self { open: Mutex::default(), longest }
    }

    /// Registers a new connection.
    pub(crate) fn open(&self) -> Arc<Connection> {
        let mut open = self.open.lock();
        let number = open.last_key_value().map_or(0, |(number, _)| number + 1);
        let state = Mutex::new(ConnectionState { busy: 0, since: Instant::now() });
        let connection = Arc::new(Connection { number, state, let_go: Notify::new() });
        open.insert(number, connection.clone());
        connection
    }

    /// Removes a closed connection.
    pub(crate) fn close(&self, connection: &Connection) {
        self.open.lock().remove(&connection.number);
    }

    /// Closes the connection that has been idle for longest. Returns false if there is none.
    pub(crate) fn make_room(&self) -> bool {
        let mut open = self.open.lock();
        let may_go = |connection: &Connection| {
            let state = connection.state.lock();
            (state.busy == 0 || state.since.elapsed() > self.longest).then_some(state.since)
        };
        let idle = open.values().filter_map(|connection| Some((may_go(connection)?, connection.number))).min();
        let Some(connection) = idle.and_then(|(_, number)| open.remove(&number)) else { return false };
        connection.let_go.notify_one();
        true
    }
}

/// A request whose response is not completely sent.
pub(crate) struct BusyConnection(Arc<Connection>);

impl BusyConnection {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        let mut state = connection.state.lock();
        state.busy += 1;
        state.since = Instant::now();
        drop(state);
        Self(connection)
    }

    /// Wraps the body to keep the connection busy until it is sent.
    pub(crate) fn until_sent(self, body: Body) -> Body {
        Body::new(SentBody { body, _busy: self })
    }
}

impl Drop for BusyConnection {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.busy -= 1;
        state.since = Instant::now();
    }
}

struct SentBody {
    body: Body,
    _busy: BusyConnection,
}

impl HttpBody for SentBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_that_was_idle_longest_goes_and_a_busy_one_stays() {
        let connections = Connections::new(Duration::MAX);
        let [first, second, third] = [(); 3].map(|()| connections.open());
        let busy = BusyConnection::new(first.clone());
        assert!(connections.make_room(), "the second is idle");
        assert!(!connections.open.lock().contains_key(&second.number));
        drop(busy);
        assert!(
            connections.make_room() && connections.open.lock().contains_key(&first.number),
            "the third was idle longer"
        );
        connections.close(&first);
        connections.close(&third);
        assert!(!connections.make_room());
    }
}
