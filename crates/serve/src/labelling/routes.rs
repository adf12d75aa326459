//! Routes of the labelling page and its security headers.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};

use super::page::LabelPage;
use super::session::LabelSession;
use super::wire::{AnswerBody, StatusBody, UndoBody};
use crate::api_error::ApiError;
use crate::body::{BodyLimit, aside};
use crate::guard::{Guard, guard};
use crate::json;
use crate::token::AccessToken;

/// Maximum size of an answer in bytes.
const MAX_BODY: u64 = 4096;

/// State shared by all requests.
struct LabelApp {
    session: Arc<LabelSession>,
    bodies: BodyLimit,
    page: LabelPage,
}

/// All routes. The page itself contains no data and needs no token.
pub(super) fn router(session: Arc<LabelSession>, token: AccessToken) -> Router {
    let guarded = Arc::new(Guard { is_loopback: true, token: Some(token), open_path: "/", own_pages_only: true });
    let app = Arc::new(LabelApp { session, bodies: BodyLimit::new(MAX_BODY), page: LabelPage::new() });
    let rules = rules(&app.page);
    Router::new()
        .route("/", get(page))
        .route("/task", get(task))
        .route("/label", post(label))
        .route("/undo", post(undo))
        .fallback(nowhere)
        .method_not_allowed_fallback(nowhere)
        .layer(middleware::from_fn_with_state(guarded, guard))
        .layer(middleware::map_response(move |response: Response| {
            let rules = rules.clone();
            async move { with_rules(response, rules) }
        }))
        // The size is limited when the body is read.
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state(app)
}

/// Security headers: load only what the policy allows, no framing, no caching.
fn rules(page: &LabelPage) -> [(HeaderName, HeaderValue); 6] {
    let policy = HeaderValue::from_str(&page.policy).expect("hashes in base64");
    [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
        (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    ]
}

fn with_rules(mut response: Response, rules: [(HeaderName, HeaderValue); 6]) -> Response {
    response.headers_mut().extend(rules);
    response
}

async fn page(State(app): State<Arc<LabelApp>>) -> Html<Bytes> {
    Html(app.page.html.clone())
}

async fn task(State(app): State<Arc<LabelApp>>) -> Result<Json<StatusBody>, ApiError> {
    aside(&app, |app| Ok(Json(app.session.status()))).await
}

async fn label(State(app): State<Arc<LabelApp>>, request: Request) -> Result<Json<StatusBody>, ApiError> {
    let body = app.bodies.read(request).await?;
    aside(&app, move |app| {
        let AnswerBody { task, answer, seconds } = json::read(&body)?;
        if seconds.is_some_and(|seconds| seconds < 0.0) {
            return Err(ApiError::field("seconds", "below 0"));
        }
        app.session.answer(task, answer, seconds)?;
        Ok(Json(app.session.status()))
    })
    .await
}

async fn undo(State(app): State<Arc<LabelApp>>, request: Request) -> Result<Json<StatusBody>, ApiError> {
    let body = app.bodies.read(request).await?;
    aside(&app, move |app| {
        let UndoBody { task } = json::read(&body)?;
        app.session.undo(task)?;
        Ok(Json(app.session.status()))
    })
    .await
}

async fn nowhere() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "nothing here; open the printed address")
}
