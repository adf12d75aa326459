//! Who may ask.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::api_error::ApiError;
use crate::app::App;

/// Passes a request on that may ask. That the server is there, anybody may know.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let allowed = check_host(&app, request.uri(), request.headers())
        .and_then(|()| if request.uri().path() == "/health" { Ok(()) } else { check_token(&app, request.headers()) });
    match allowed {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// A page of another site can have its own name lead to this machine, and its requests then say so.
fn check_host(app: &App, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    if !app.is_loopback {
        return Ok(());
    }
    // All of them: of two nobody knows which another reads.
    let named: Vec<&str> = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default()).collect();
    let hosts = named.iter().copied().chain(uri.authority().map(axum::http::uri::Authority::as_str));
    if !named.is_empty() && hosts.into_iter().all(is_loopback) {
        return Ok(());
    }
    let message = "this server answers this machine alone: the request's Host must be 127.0.0.1 or localhost";
    Err(ApiError::new(StatusCode::FORBIDDEN, message).with_code("host_not_allowed"))
}

/// Whether a host, with a port or without, is this machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn check_token(app: &App, headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(token) = &app.options.token else { return Ok(()) };
    let shown = headers.get(header::AUTHORIZATION).map(axum::http::HeaderValue::as_bytes).unwrap_or_default();
    let bearer = shown.split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
    if bearer.is_some_and(|(_, shown)| token.is(shown.trim_ascii())) {
        return Ok(());
    }
    let message = "a token is needed here, sent as `Authorization: Bearer TOKEN`";
    Err(ApiError::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        let own = ["127.0.0.1", "127.0.0.1:8080", "localhost", "LocalHost:1", "[::1]:8080", "[::1]", "127.9.9.9:1"];
        assert!(own.into_iter().all(is_loopback));
        let others = [
            "evil.example", "evil.example:8080", "localhost.evil.example", "192.168.0.1:8080", "", "0.0.0.0",
            "127.0.0.1.evil",
        ];
        assert!(!others.into_iter().any(is_loopback));
    }
}
