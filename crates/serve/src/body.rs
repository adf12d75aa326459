//! Reading of request bodies: JSON only, with limits on size and time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::api_error::ApiError;

/// Time limit for reading a body.
const READING: Duration = Duration::from_secs(30);

/// Number of bodies of maximum size that may be in memory.
const LARGEST_BODIES: u64 = 16;

/// Bodies up to this size in bytes are read without a permit, so that slow large bodies only block other large ones.
const SHORT: u64 = 64 * 1024;

/// After a rejection, the rest of the body is read and dropped within this time and this multiple of the size limit.
/// Otherwise, a client that is still sending would see a broken connection instead of the error.
const FORGETTING: (Duration, u64) = (Duration::from_secs(5), 8);

/// Limits on bodies.
pub(crate) struct BodyLimit {
    /// Maximum size of a body in bytes.
    most: u64,
    /// Kibibytes that may still be read concurrently.
    room: Semaphore,
}

impl BodyLimit {
    /// Limits bodies to `most` bytes.
    pub(crate) fn new(most: u64) -> Self {
        let kibibytes = usize::try_from(LARGEST_BODIES * (most / 1024 + 1)).unwrap_or(usize::MAX);
        Self { most, room: Semaphore::new(kibibytes.min(Semaphore::MAX_PERMITS)) }
    }

    /// Reads the body of a request. JSON from another site's page needs a CORS preflight request, which is never
    /// granted.
    pub(crate) async fn read(&self, request: Request) -> Result<Bytes, ApiError> {
        let (parts, body) = request.into_parts();
        check_kind(&parts.headers)?;
        let most = self.most;
        let told = body.size_hint().upper();
        if told.is_some_and(|bytes| bytes > most) {
            // A client with `Expect` waits for the response and sends no body.
            if !parts.headers.contains_key(header::EXPECT) {
                tokio::spawn(forget(body, most));
            }
            return Err(too_large(most));
        }
        let kibibytes = match told.unwrap_or(most) {
            0..=SHORT => 0,
            bytes => u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX),
        };
        let slow = || {
            ApiError::new(
                StatusCode::REQUEST_TIMEOUT,
                "the body took too long to \
                                                                  arrive",
            )
            .with_code("timeout")
        };
        let busy = || {
            let message = "too many large requests are being read; try again";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).with_code("busy")
        };
        // Held until the body is read, to bound the memory of all bodies together.
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
        let message = "compressed bodies are not supported; send it without `Content-Encoding`";
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

/// The next bytes of a body; `None` at its end.
async fn next_data(body: &mut Body) -> Result<Option<Bytes>, ApiError> {
    while let Some(frame) = std::future::poll_fn(|context| std::pin::Pin::new(&mut *body).poll_frame(context)).await {
        let frame = frame.map_err(|_| ApiError::new(StatusCode::BAD_REQUEST, "the body is incomplete"))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Reads and drops the rest of a rejected body, within limits.
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
    // After the time limit, the connection is closed.
    let _ = timeout(longest, all).await;
}

fn too_large(most: u64) -> ApiError {
    let message = format!("the body is larger than the limit of {most} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

/// Runs blocking work on another thread: parsing JSON, tokenising and disk access.
pub(crate) async fn aside<S: Send + Sync + 'static, T: Send + 'static>(
    shared: &Arc<S>,
    work: impl FnOnce(&S) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let shared = shared.clone();
    let done = tokio::task::spawn_blocking(move || work(&shared)).await;
    done.unwrap_or_else(|_| Err(ApiError::model("the request could not be read")))
}
