//! Errors in the format of `OpenAI`'s API.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use probity_lm::{BoxedError, LmError, Outcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a request fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) detail: ErrorDetail,
}

/// The body of a response without an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErrorBody {
    /// What is wrong.
    pub(crate) error: ErrorDetail,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErrorDetail {
    /// Message for people, with a hint if there is one.
    pub(crate) message: String,
    /// `invalid_request_error`, `authentication_error`, `server_error` or `overloaded_error`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The invalid field, if there is one.
    pub(crate) param: Option<String>,
    /// Code for programs, if the status alone is not enough.
    pub(crate) code: Option<String>,
}

/// Seconds after which a client should retry.
const RETRY_SECONDS: u32 = 1;

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let kind = match status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => "overloaded_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        let detail = ErrorDetail { message: message.into(), kind: kind.to_owned(), param: None, code: None };
        Self { status, detail }
    }

    /// An invalid field of a request.
    pub(crate) fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        let (param, message) = (param.into(), message.into());
        let mut error = Self::new(StatusCode::BAD_REQUEST, format!("field `{param}`: {message}"));
        error.detail.param = Some(param);
        error
    }

    /// Adds a code for programs.
    pub(crate) fn with_code(mut self, code: &str) -> Self {
        self.detail.code = Some(code.to_owned());
        self
    }

    /// A failure of the model, not of the request.
    pub(crate) fn model(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// The model's thread has stopped.
    pub(crate) fn gone() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping").with_code("ending")
    }

    /// The model rejects a request.
    pub(crate) fn unasked(param: &str, error: &LmError) -> Self {
        match error {
            LmError::Labels { source, .. } => Self::field(param, error_text(source)),
            LmError::Request { source, .. } => Self::field(param, boxed_error_text(source)),
            other => Self::model(other.to_string()),
        }
    }

    /// The error for an outcome without an answer.
    pub(crate) fn outcome(param: &str, outcome: &Outcome) -> Self {
        match outcome {
            Outcome::TooLong { tokens_needed, limit } => Self::too_long(param, *tokens_needed, *limit),
            Outcome::Empty => Self::field(param, "the prompt has no tokens"),
            // The template would change a text, or the answer cannot meet the requested constraint.
            Outcome::Altered { why } | Outcome::Unparsed { why } => {
                Self::new(StatusCode::BAD_REQUEST, why.clone()).with_code(outcome.name())
            }
            Outcome::NotFinite { why } => Self::model(why.clone()).with_code(outcome.name()),
            Outcome::Scored | Outcome::LowMass { .. } | Outcome::Tie => Self::model("the model gave no answer"),
        }
    }

    /// A prompt that does not fit with its answer.
    pub(crate) fn too_long(param: &str, needed: usize, limit: usize) -> Self {
        let message = format!("the prompt with its answer needs {needed} tokens, but the limit is {limit}");
        Self::field(param, message).with_code("context_length_exceeded")
    }
}

/// The text of an error with its hint.
pub(crate) fn error_text(error: &(impl miette::Diagnostic + ?Sized)) -> String {
    match error.help() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}

/// Like [`error_text`], for a boxed error.
pub(crate) fn boxed_error_text(error: &BoxedError) -> String {
    error_text(&**error)
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&ErrorBody { error: self.detail }).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            headers.insert(header::RETRY_AFTER, RETRY_SECONDS.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
