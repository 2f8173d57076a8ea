//! Answers HTTP requests: checks the request, gets the page, and adds the headers that every
//! response has. The number of bytes that are being sent at the same time is limited.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::body::{Body, Bytes, Frame as BodyFrame, SizeHint};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION, REFERRER_POLICY, RETRY_AFTER, SET_COOKIE,
    TRANSFER_ENCODING, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use report::frame::Frame;
use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access::Access;
use crate::pages::{Made, Pages, Refusal};
use crate::route::{ADDRESS_BYTES_MAX, Address, Route};

/// Maximum total size of the pages that are being sent at the same time (bytes).
const UNDER_WAY_BYTES_MAX: usize = 64 << 20;
/// Number of bytes that one permit of the semaphore `under_way` covers.
const UNIT_BYTES: usize = 1024;

/// A response.
pub type Answer = Response<Whole>;

/// A response body that is completely in memory.
#[derive(Debug)]
pub struct Whole(Option<Bytes>);

impl Body for Whole {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(BodyFrame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// A page that is being sent. All its bytes count toward [`UNDER_WAY_BYTES_MAX`] until the last
/// byte was passed to the kernel.
struct UnderWay {
    made: Arc<Made>,
    _counted: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for UnderWay {
    fn as_ref(&self) -> &[u8] {
        &self.made.body
    }
}

/// Handles HTTP requests.
pub struct Answers {
    access: Access,
    pages: Pages,
    under_way: Arc<Semaphore>,
    policy: HeaderValue,
    time_max: Duration,
}

/// A response, and whether the client knew the token.
pub struct Answered {
    /// The response.
    pub answer: Answer,
    /// Whether the client knew the token.
    pub is_known: bool,
    /// Why the request was refused. None if the request was accepted, even if its page could not be
    /// generated.
    pub refused: Option<&'static str>,
}

impl Answers {
    /// Creates the request handler. `access` decides which requests are answered, and `pages`
    /// generates the pages. If a page takes longer than `time_max`, the client gets an error.
    pub fn new(access: Access, pages: Pages, time_max: Duration) -> Answers {
        let under_way = Arc::new(Semaphore::new(UNDER_WAY_BYTES_MAX / UNIT_BYTES));
        Answers { access, pages, under_way, policy: policy(), time_max }
    }

    /// Returns the response to a request. The body of the request is not read.
    pub async fn answer(&self, request: &Parts) -> Answered {
        let refused = |status: u16, why: &'static str, is_known: bool| {
            let answer = self.message(&Refusal::new(status, why));
            Answered { answer, is_known, refused: Some(why) }
        };
        if let Some((status, why)) = self.fault_of(request) {
            let mut answered = refused(status, why, false);
            let headers = answered.answer.headers_mut();
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
            if status == 405 {
                headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            }
            return answered;
        }
        let uri = &request.uri;
        let address = Address::of(uri.path(), uri.query().unwrap_or_default());
        if let Some(text) = &address.token {
            return match self.access.is_token(text) {
                true => Answered { answer: self.welcome(request), is_known: true, refused: None },
                false => refused(401, WRONG_TOKEN, false),
            };
        }
        if !self.access.is_known(&request.headers) {
            return refused(401, WRONG_TOKEN, false);
        }
        let Some(route) = address.route else {
            return refused(
                404,
                "there is no such page; the list of runs links to all pages",
                true,
            );
        };
        Answered { answer: self.page(request, route).await, is_known: true, refused: None }
    }

    /// Checks everything in a request except the token and the existence of the page. Returns the
    /// HTTP status and the message of the first error. None if there is no error.
    fn fault_of(&self, request: &Parts) -> Option<(u16, &'static str)> {
        let Parts { method, uri, headers, .. } = request;
        let text_bytes = uri.path().len() + uri.query().map_or(0, str::len);
        let has_body = headers.contains_key(TRANSFER_ENCODING)
            || headers.get_all(CONTENT_LENGTH).iter().any(|length| length != "0");
        if uri.scheme().is_some() || uri.authority().is_some() {
            Some((400, "this server is not a proxy; request a path such as /, not a URL"))
        } else if !self.access.is_for_us(headers) {
            Some((
                421,
                "the Host header is not a name of this server; use the address that halfpower \
                 serve printed",
            ))
        } else if method != Method::GET && method != Method::HEAD {
            Some((405, "this server only shows pages; use GET or HEAD"))
        } else if has_body {
            Some((400, "this server accepts no request body; send the request without a body"))
        } else if text_bytes > ADDRESS_BYTES_MAX {
            Some((414, "this address is too long; use at most 4096 bytes"))
        } else {
            None
        }
    }

    /// Returns the response that sets the cookie and redirects to the same address without the
    /// token.
    fn welcome(&self, request: &Parts) -> Answer {
        let query = request.uri.query().unwrap_or_default().as_bytes();
        let others = form_urlencoded::parse(query).filter(|(name, _)| name != "token");
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(others).finish();
        let path = request.uri.path();
        // The browser would interpret a path that starts with two slashes as the name of another
        // host.
        let path = if path.starts_with("//") { "/" } else { path };
        let to = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let mut answer = self.with_headers(StatusCode::SEE_OTHER, Bytes::new(), HTML);
        let headers = answer.headers_mut();
        if let (Some(cookie), Ok(to)) = (self.access.cookie(), HeaderValue::from_str(&to)) {
            headers.insert(SET_COOKIE, cookie);
            headers.insert(LOCATION, to);
        }
        answer
    }

    async fn page(&self, request: &Parts, route: Route) -> Answer {
        let made = match tokio::time::timeout(self.time_max, self.pages.page(route)).await {
            Ok(Ok(made)) => made,
            Ok(Err(refusal)) => return self.message(&refusal),
            Err(_) => {
                let text = "generating this page takes too long; try again later, or use \
                            halfpower runs show or halfpower compare";
                return self.message(&Refusal::new(503, text));
            }
        };
        let version = format!("\"{}\"", made.version);
        let etag = HeaderValue::from_str(&version).ok();
        let kind = if made.is_json { JSON } else { HTML };
        if has_version(request, &made.version) {
            let mut answer = self.with_headers(StatusCode::NOT_MODIFIED, Bytes::new(), kind);
            answer.headers_mut().extend(etag.map(|etag| (ETAG, etag)));
            return answer;
        }
        let units = made.body.len().div_ceil(UNIT_BYTES) as u32;
        let Ok(counted) = Arc::clone(&self.under_way).try_acquire_many_owned(units) else {
            let text = "too many pages are being sent at the same time; try again";
            return self.message(&Refusal::new(503, text));
        };
        let body = Bytes::from_owner(UnderWay { made, _counted: counted });
        let mut answer = self.with_headers(StatusCode::OK, body, kind);
        answer.headers_mut().extend(etag.map(|etag| (ETAG, etag)));
        answer
    }

    /// Returns a response whose page contains only a message.
    fn message(&self, Refusal { status, text }: &Refusal) -> Answer {
        let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let title = status.canonical_reason().unwrap_or("Error");
        let links = match status {
            StatusCode::UNAUTHORIZED | StatusCode::MISDIRECTED_REQUEST => Vec::new(),
            _ => vec![("/".to_owned(), "All runs".to_owned())],
        };
        let page = report::message(&Frame { links, ..Frame::default() }, title, text);
        let mut answer = self.with_headers(status, page.into_bytes().into(), HTML);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("2"));
        }
        answer
    }

    fn with_headers(&self, status: StatusCode, body: Bytes, kind: &'static str) -> Answer {
        let mut answer = Response::new(Whole(Some(body)));
        *answer.status_mut() = status;
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CONTENT_SECURITY_POLICY, self.policy.clone());
        for (name, value) in HEADERS {
            headers.insert(name, HeaderValue::from_static(value));
        }
        answer
    }
}

/// Message for a client that did not send the right token.
const WRONG_TOKEN: &str =
    "the token is missing or wrong; use the address that halfpower serve printed";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

/// Headers of every response. The headers forbid the browser to guess the content type, to show the
/// page in a frame, to send the page's address to other sites, and to store the page.
const HEADERS: [(HeaderName, &str); 6] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Returns the content security policy. It allows the browser to run only halfpower's own scripts,
/// which are identified by their hashes. The scripts can connect only to this server.
fn policy() -> HeaderValue {
    let hashes = report::scripts().map(|script| {
        let hash = STANDARD.encode(Sha256::digest(script.as_bytes()));
        format!("'sha256-{hash}'")
    });
    let text = format!(
        "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data:; \
         connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
        hashes.join(" ")
    );
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("default-src 'none'"))
}

/// Checks whether the client already has this version of the page.
fn has_version(request: &Parts, version: &str) -> bool {
    let wanted = request.headers.get_all(IF_NONE_MATCH).iter();
    let texts = wanted.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
    texts.take(16).any(|text| text.trim().trim_start_matches("W/").trim_matches('"') == version)
}
