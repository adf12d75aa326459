//! What a client is told when it gets no answer, in the form that clients of `OpenAI`'s API read.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use probity_lm::{BoxedError, LmError, Outcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a request has no answer.
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
    /// For people, with what can be done about it where something can.
    pub(crate) message: String,
    /// `invalid_request_error`, `authentication_error`, `server_error` or `overloaded_error`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The field that is wrong, where it is one.
    pub(crate) param: Option<String>,
    /// For programs, where there is more to tell than the status.
    pub(crate) code: Option<String>,
}

/// Seconds after which it is worth trying again.
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

    /// A request that is wrong in a field.
    pub(crate) fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        let (param, message) = (param.into(), message.into());
        let mut error = Self::new(StatusCode::BAD_REQUEST, format!("field `{param}`: {message}"));
        error.detail.param = Some(param);
        error
    }

    /// The same with a word for programs.
    pub(crate) fn with_code(mut self, code: &str) -> Self {
        self.detail.code = Some(code.to_owned());
        self
    }

    /// The model could not do it, which is nobody's mistake outside.
    pub(crate) fn model(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// Nobody answers in time, or anybody at all.
    pub(crate) fn gone() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "the server is ending").with_code("ending")
    }

    /// What a model says of a request that cannot be asked.
    pub(crate) fn unasked(param: &str, error: &LmError) -> Self {
        match error {
            LmError::Labels { source, .. } => Self::field(param, told(source)),
            LmError::Request { source, .. } => Self::field(param, told_boxed(source)),
            other => Self::model(other.to_string()),
        }
    }

    /// What an outcome without an answer means for a whole request.
    pub(crate) fn outcome(param: &str, outcome: &Outcome) -> Self {
        match outcome {
            Outcome::TooLong { tokens_needed, limit } => Self::too_long(param, *tokens_needed, *limit),
            Outcome::Empty => Self::field(param, "there is no token to go on from"),
            // A text that the template would change, and one that cannot be kept within what the request asked for.
            Outcome::Altered { why } | Outcome::Unparsed { why } => {
                Self::new(StatusCode::BAD_REQUEST, why.clone()).with_code(outcome.name())
            }
            Outcome::NotFinite { why } => Self::model(why.clone()).with_code(outcome.name()),
            Outcome::Scored | Outcome::LowMass { .. } | Outcome::Tie => Self::model("the model gave no answer"),
        }
    }

    /// A prompt that does not fit with its answer.
    pub(crate) fn too_long(param: &str, needed: usize, limit: usize) -> Self {
        let message = format!("the prompt with its answer needs {needed} tokens, and there is room for {limit}");
        Self::field(param, message).with_code("context_length_exceeded")
    }
}

/// An error with its hint.
pub(crate) fn told(error: &(impl miette::Diagnostic + ?Sized)) -> String {
    match error.help() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}

/// The same of a boxed one.
pub(crate) fn told_boxed(error: &BoxedError) -> String {
    told(&**error)
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
