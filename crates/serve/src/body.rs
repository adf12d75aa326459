//! Bodies of requests: JSON, no larger than may be, and no slower.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::api_error::ApiError;

/// How long a body may take to come.
const READING: Duration = Duration::from_secs(30);

/// Bodies of the largest size that are held at once.
const LARGEST_BODIES: u64 = 16;

/// Bodies of at most so many bytes are read at once: whoever sends large ones slowly keeps large ones waiting alone.
const SHORT: u64 = 64 * 1024;

/// How long, and how many times the most that is read, what comes behind a refusal is taken in and forgotten: a client
/// that is still sending would find the connection broken, and never read why.
const FORGETTING: (Duration, u64) = (Duration::from_secs(5), 8);

/// What bodies may take.
pub(crate) struct BodyLimit {
    /// Bytes of one, at most.
    most: u64,
    /// Kibibytes that may still be read at once.
    room: Semaphore,
}

impl BodyLimit {
    /// So many bytes of a body, at most.
    pub(crate) fn new(most: u64) -> Self {
        let kibibytes = usize::try_from(LARGEST_BODIES * (most / 1024 + 1)).unwrap_or(usize::MAX);
        Self { most, room: Semaphore::new(kibibytes.min(Semaphore::MAX_PERMITS)) }
    }

    /// The body of a request. A browser cannot send JSON to another site without asking it first, and is never told
    /// that it may.
    pub(crate) async fn read(&self, request: Request) -> Result<Bytes, ApiError> {
        let (parts, body) = request.into_parts();
        check_kind(&parts.headers)?;
        let most = self.most;
        let told = body.size_hint().upper();
        if told.is_some_and(|bytes| bytes > most) {
            // One that asks first whether to send is told no, and sends nothing.
            if !parts.headers.contains_key(header::EXPECT) {
                tokio::spawn(forget(body, most));
            }
            return Err(too_large(most));
        }
        let kibibytes = match told.unwrap_or(most) {
            0..=SHORT => 0,
            bytes => u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX),
        };
        let slow = || ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body took too long to come").with_code("timeout");
        let busy = || {
            let message = "too many large requests are being read; try again";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).with_code("busy")
        };
        // Held until the body is read: the memory of all bodies together is bounded.
        let room = timeout(READING, self.room.acquire_many(kibibytes)).await.map_err(|_| busy())?;
        let read = timeout(READING, collect(body, most)).await.map_err(|_| slow())?;
        drop(room);
        read
    }
}

fn check_kind(headers: &HeaderMap) -> Result<(), ApiError> {
    let value = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = value(header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        let message = "the body must be JSON, sent as `Content-Type: application/json`";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let encoding = value(header::CONTENT_ENCODING);
    if !encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity") {
        let message = "packed bodies are not read; send it without `Content-Encoding`";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    Ok(())
}

async fn collect(mut body: Body, most: u64) -> Result<Bytes, ApiError> {
    let mut read = Vec::new();
    while let Some(data) = next_data(&mut body).await? {
        if (read.len() + data.len()) as u64 > most {
            tokio::spawn(forget(body, most));
            return Err(too_large(most));
        }
        read.extend_from_slice(&data);
    }
    Ok(read.into())
}

/// The next bytes of a body; absent at its end.
async fn next_data(body: &mut Body) -> Result<Option<Bytes>, ApiError> {
    while let Some(frame) = std::future::poll_fn(|context| std::pin::Pin::new(&mut *body).poll_frame(context)).await {
        let frame = frame.map_err(|_| ApiError::new(StatusCode::BAD_REQUEST, "the body broke off"))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Takes in what is left of a body that is too large, within limits, while it is refused.
async fn forget(mut body: Body, most: u64) {
    let (longest, times) = FORGETTING;
    let mut left = most.saturating_mul(times);
    let all = async {
        while left > 0
            && let Ok(Some(data)) = next_data(&mut body).await
        {
            left = left.saturating_sub(data.len() as u64);
        }
    };
    // What takes longer is broken off.
    let _ = timeout(longest, all).await;
}

fn too_large(most: u64) -> ApiError {
    let message = format!("the body is larger than {most} bytes, which is what is read here");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

/// Does what takes longer than a moment where it stops no other request: reading JSON, cutting texts into tokens, and
/// waiting for a disk.
pub(crate) async fn aside<S: Send + Sync + 'static, T: Send + 'static>(
    shared: &Arc<S>,
    work: impl FnOnce(&S) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let shared = shared.clone();
    let done = tokio::task::spawn_blocking(move || work(&shared)).await;
    done.unwrap_or_else(|_| Err(ApiError::model("the request could not be read")))
}
