//! Routes of the model server.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router, middleware};

use crate::api_error::ApiError;
use crate::app::App;
use crate::guard::{Guard, guard};
use crate::score::score;
use crate::text;
use crate::wire::chat::ChatRequest;
use crate::wire::completions::CompletionRequest;
use crate::wire::models::{HealthBody, ModelBody, ModelList};

/// All routes, with access control.
pub(crate) fn router(app: Arc<App>) -> Router {
    let guarded = Arc::new(Guard {
        is_loopback: app.options.host.is_loopback(),
        token: app.options.token.clone(),
        // The health check is public.
        open_path: "/health",
        own_pages_only: false,
    });
    Router::new()
        .route("/v1/completions", post(text::answer::<CompletionRequest>))
        .route("/v1/chat/completions", post(text::answer::<ChatRequest>))
        .route("/v1/score", post(score))
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .route("/health", get(health))
        .route("/openapi.json", get(openapi))
        .fallback(nowhere)
        .method_not_allowed_fallback(other_method)
        .layer(middleware::from_fn_with_state(guarded, guard))
        // The size is limited when the body is read.
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state(app)
}

async fn health() -> Json<HealthBody> {
    Json(HealthBody { status: "ok" })
}

async fn openapi(State(app): State<Arc<App>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], app.openapi.clone())
}

async fn models(State(app): State<Arc<App>>) -> Json<ModelList> {
    Json(ModelList { object: "list", data: vec![described(&app)] })
}

async fn model(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Json<ModelBody>, ApiError> {
    app.check_model(Some(&id))?;
    Ok(Json(described(&app)))
}

fn described(app: &App) -> ModelBody {
    let description = app.model.description();
    ModelBody {
        id: app.options.name.clone(),
        object: "model",
        created: app.created,
        owned_by: "probity",
        architecture: description.architecture.clone(),
        fingerprint: description.fingerprint.clone(),
        precision: description.precision.as_str(),
        device: description.device.clone(),
        max_model_len: app.model.token_limit(),
        has_chat_template: description.has_chat_template,
    }
}

/// The path, shortened for messages.
fn path(uri: &Uri) -> String {
    uri.path().chars().take(80).collect()
}

async fn nowhere(uri: Uri) -> ApiError {
    let message = format!("nothing at {}; see /openapi.json", path(&uri));
    ApiError::new(StatusCode::NOT_FOUND, message)
}

async fn other_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not support {method}; see /openapi.json", path(&uri));
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message)
}
