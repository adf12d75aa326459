//! Access control.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::api_error::ApiError;
use crate::token::AccessToken;

/// Access rules of a server.
pub(crate) struct Guard {
    /// Whether the server listens only on the loopback interface.
    pub(crate) is_loopback: bool,
    /// Required token, if any.
    pub(crate) token: Option<AccessToken>,
    /// Path that needs no token.
    pub(crate) open_path: &'static str,
    /// Whether browsers may only send requests from the server's own pages.
    pub(crate) own_pages_only: bool,
}

/// Passes authorised requests on.
pub(crate) async fn guard(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    match guard.check(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

impl Guard {
    fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        if self.is_loopback {
            check_host(uri, headers)?;
        }
        if self.own_pages_only {
            check_origin(headers)?;
        }
        match &self.token {
            Some(token) if uri.path() != self.open_path => check_token(token, headers),
            _ => Ok(()),
        }
    }
}

/// All values of a header. Duplicates are rejected, since programs may read either.
fn values_of(headers: &HeaderMap, name: header::HeaderName) -> Vec<&str> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap_or_default()).collect()
}

/// Checks the host, against DNS rebinding: a site can let its own name resolve to this machine.
fn check_host(uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    let named = values_of(headers, header::HOST);
    let hosts = named.iter().copied().chain(uri.authority().map(axum::http::uri::Authority::as_str));
    if !named.is_empty() && hosts.into_iter().all(is_loopback) {
        return Ok(());
    }
    let message = "this server accepts only requests from this machine: the Host must be 127.0.0.1 or localhost";
    Err(ApiError::new(StatusCode::FORBIDDEN, message).with_code("host_not_allowed"))
}

/// Checks the origin, which browsers send with every request that is not a plain page load, and other programs omit.
fn check_origin(headers: &HeaderMap) -> Result<(), ApiError> {
    let hosts = values_of(headers, header::HOST);
    let is_own =
        |origin: &str| origin.strip_prefix("http://").is_some_and(|site| hosts.iter().all(|host| *host == site));
    if values_of(headers, header::ORIGIN).into_iter().all(is_own) {
        return Ok(());
    }
    let message = "only the page of this server may send requests";
    Err(ApiError::new(StatusCode::FORBIDDEN, message).with_code("origin_not_allowed"))
}

/// Whether a host, with or without a port, is this machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn check_token(token: &AccessToken, headers: &HeaderMap) -> Result<(), ApiError> {
    let shown = headers.get(header::AUTHORIZATION).map(axum::http::HeaderValue::as_bytes).unwrap_or_default();
    let bearer = shown.split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
    if bearer.is_some_and(|(_, shown)| token.is(shown.trim_ascii())) {
        return Ok(());
    }
    let message = "a token is required: send `Authorization: Bearer TOKEN`";
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

    #[test]
    fn a_page_of_another_site_or_of_another_port_is_told_by_its_origin() {
        let may_ask = |origins: &[&'static str]| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, axum::http::HeaderValue::from_static("127.0.0.1:8080"));
            for origin in origins {
                headers.append(header::ORIGIN, axum::http::HeaderValue::from_static(origin));
            }
            check_origin(&headers).is_ok()
        };
        assert!(may_ask(&[]) && may_ask(&["http://127.0.0.1:8080"]));
        for other in ["http://127.0.0.1:8081", "http://localhost:8080", "https://127.0.0.1:8080", "http://evil.example"]
        {
            assert!(!may_ask(&[other]) && !may_ask(&["http://127.0.0.1:8080", other]), "{other}");
        }
        assert!(!may_ask(&["null"]) && !may_ask(&[""]));
    }
}
