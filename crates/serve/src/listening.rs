//! Accepting connections, serving a router on them, and graceful shutdown.

use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::connections::{BusyConnection, Connection, Connections};
use crate::error::ServeError;

/// Time limit for the head of a request.
const HEAD: Duration = Duration::from_secs(10);
/// Interval for checking whether the server must end.
const TICK: Duration = Duration::from_millis(50);
/// Time limit for closing a connection.
pub(crate) const LETTING_GO: Duration = Duration::from_secs(1);
/// Number of threads for requests and responses.
const THREADS: usize = 2;
/// Number of threads for blocking work.
const BLOCKING: usize = 4;
/// Response to a connection beyond the limit.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Type: \
application/json\r\nContent-Length: 115\r\n\r\n{\"error\":{\"message\":\"too many connections; try again\",\
\"type\":\"overloaded_error\",\"param\":null,\"code\":\"connections\"}}";

/// Limits on connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    /// Maximum number of connections.
    pub(crate) most: usize,
    /// Time limit of a request.
    pub(crate) timeout: Duration,
}

/// Binds an address.
pub(crate) fn listen(host: IpAddr, port: u16) -> Result<TcpListener, ServeError> {
    let listener = TcpListener::bind((host, port)).map_err(|source| ServeError::Bind { host, port, source })?;
    listener.set_nonblocking(true).map_err(ServeError::Start)?;
    Ok(listener)
}

/// Runtime for connections.
pub(crate) fn runtime() -> Result<Runtime, ServeError> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let threads = builder.worker_threads(THREADS).max_blocking_threads(BLOCKING);
    threads.enable_all().build().map_err(ServeError::Start)
}

/// Serves until `is_ending` returns true, then finishes open requests.
pub(crate) async fn answer_all(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    is_ending: &dyn Fn() -> bool,
) -> Result<(), ServeError> {
    let listener = tokio::net::TcpListener::from_std(listener).map_err(ServeError::Start)?;
    let (end, ending) = watch::channel(false);
    let grace = Duration::from_secs(30);
    let taker = Taker {
        router,
        places: Arc::new(Semaphore::new(limits.most)),
        connections: Arc::new(Connections::new(limits.timeout.saturating_add(grace))),
        ending,
    };
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            taken = listener.accept() => match taken {
                Ok((stream, _)) => taker.take(stream).await,
                // Out of file descriptors, or the client has disconnected: neither ends the server.
                Err(_) => tokio::time::sleep(TICK).await,
            },
            _ = tick.tick() => {
                if is_ending() {
                    break;
                }
            }
        }
    }
    drop(listener);
    // Open requests are finished; no new ones are accepted.
    let _ = end.send(true);
    let all = u32::try_from(limits.most).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(limits.timeout, taker.places.acquire_many(all)).await;
    Ok(())
}

/// Accepts connections.
struct Taker {
    router: Router,
    places: Arc<Semaphore>,
    connections: Arc<Connections>,
    ending: watch::Receiver<bool>,
}

impl Taker {
    async fn take(&self, stream: TcpStream) {
        let Some(place) = self.place().await else {
            // It fits into any send buffer; if not, the client still sees that the connection is closed.
            let _ = stream.try_write(FULL);
            return;
        };
        // Send small responses at once.
        let _ = stream.set_nodelay(true);
        let (router, connections, ending) = (self.router.clone(), self.connections.clone(), self.ending.clone());
        // Registered before the task is spawned, so that the next connection can find it when looking for an idle one.
        let connection = connections.open();
        tokio::spawn(async move {
            answer(stream, router, &connection, ending).await;
            connections.close(&connection);
            drop(place);
        });
    }

    /// Acquires a slot for a connection, closing an idle one if necessary.
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        let places = &self.places;
        if let Ok(place) = places.clone().try_acquire_owned() {
            return Some(place);
        }
        if !self.connections.make_room() {
            return None;
        }
        tokio::time::timeout(LETTING_GO, places.clone().acquire_owned()).await.ok()?.ok()
    }
}

/// Serves a connection until it ends or must close.
async fn answer(stream: TcpStream, router: Router, connection: &Arc<Connection>, mut ending: watch::Receiver<bool>) {
    let busy = connection.clone();
    let service = tower_service(router, busy);
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(http);
    loop {
        tokio::select! {
            // Errors of a connection only concern its client.
            _ = &mut http => return,
            () = connection.let_go.notified() => return,
            ended = ending.changed() => {
                if ended.is_err() {
                    return;
                }
                http.as_mut().graceful_shutdown();
            }
        }
    }
}

fn tower_service(
    router: Router,
    connection: Arc<Connection>,
) -> impl hyper::service::Service<
    hyper::Request<Incoming>,
    Response = axum::response::Response,
    Error = std::convert::Infallible,
    Future: Send,
> {
    let router = TowerToHyperService::new(router);
    hyper::service::service_fn(move |request: Request<Incoming>| {
        let busy = BusyConnection::new(connection.clone());
        let answer = hyper::service::Service::call(&router, request.map(axum::body::Body::new));
        async move {
            let (parts, body) = answer.await?.into_parts();
            Ok(axum::response::Response::from_parts(parts, busy.until_sent(body)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_finds_no_place_is_told_so_in_whole() {
        let text = std::str::from_utf8(FULL).expect("ASCII");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{} bytes", body.len());
        assert!(serde_json::from_str::<crate::api_error::ErrorBody>(body).is_ok(), "{body}");
    }
}
