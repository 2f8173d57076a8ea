//! Builds S3 requests with their request line, headers and signature.
//!
//! Source: RFC 9112, sections 3 (request line, Host) and 6 (Content-Length); the common request
//! headers of the Amazon S3 API Reference. The path of a request begins with the bucket
//! ("path-style requests").

use crate::clock;
use crate::error::{Error, ErrorKind};
use crate::network::s3::sign::{Signed, Signer, encoded, payload_hash, time_stamp};
use crate::network::{Access, Address};

/// The region of a bucket if the address specifies none.
pub(super) const REGION: &str = "us-east-1";
/// The SHA-256 hash of an empty payload.
const EMPTY_HASH: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// The value of `x-amz-content-sha256` if the payload is not signed.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// The memory that is reserved for a request, in addition to its path and query (bytes).
const MESSAGE_BYTES: usize = 512;

/// The method of a request (RFC 9110, section 9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::network) enum Method {
    Get,
    Head,
    Put,
    Post,
    Delete,
}

impl Method {
    pub(in crate::network) fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Put => "PUT",
            Method::Post => "POST",
            Method::Delete => "DELETE",
        }
    }

    /// Returns whether the server may execute a request with this method twice without harm (RFC
    /// 9110, section 9.2.2).
    pub(super) fn is_idempotent(self) -> bool {
        self != Method::Post
    }
}

/// A request before it is signed.
#[derive(Clone, Copy, Debug)]
pub(in crate::network) struct Call<'a> {
    pub method: Method,
    /// The path, as [`Endpoint::path`] returns it.
    pub path: &'a str,
    /// The query without the question mark: percent-encoded `name=value` pairs, sorted by name.
    pub query: &'a str,
    /// The positions of the first and the last byte to read. None for the whole object.
    pub range: Option<(u64, u64)>,
    pub body: Option<&'a [u8]>,
}

impl<'a> Call<'a> {
    /// Returns a request without query, range and payload.
    pub(in crate::network) fn new(method: Method, path: &'a str) -> Call<'a> {
        Call { method, path, query: "", range: None, body: None }
    }
}

/// The bucket that requests are sent to, and the access key that signs them.
#[derive(Debug)]
pub(in crate::network) struct Endpoint {
    /// The value of the header `Host`.
    host: String,
    /// The name of the bucket, without percent-encoding.
    bucket: String,
    /// Signs the requests. None if the requests are anonymous.
    signer: Option<Signer>,
    signs_payload: bool,
}

impl Endpoint {
    /// Creates the endpoint for the bucket in an address.
    ///
    /// # Errors
    /// The address contains no bucket, or the access key is empty or has characters that HTTP does
    /// not allow.
    pub(in crate::network) fn new(access: &Access, signs_payload: bool) -> Result<Endpoint, Error> {
        let Access { address, credentials, .. } = access;
        let refused = |what: &str, remedy: &str| {
            Error::new(ErrorKind::Usage, format!("{address}: {what}")).with_remedy(remedy)
        };
        let (bucket, _) = address.first_and_rest();
        if bucket.is_empty() {
            return Err(refused(
                "the address contains no bucket",
                "use s3://HOST[:PORT]/BUCKET/KEY",
            ));
        }
        let plain = |user: &str| !user.is_empty() && user.bytes().all(|b| b.is_ascii_graphic());
        if credentials.as_ref().is_some_and(|credentials| !plain(&credentials.user)) {
            let what = "the access key is empty or has characters that HTTP does not allow";
            return Err(refused(what, "check the access key"));
        }
        let region = address.region.clone().unwrap_or_else(|| REGION.to_owned());
        let signer = credentials.clone().map(|credentials| Signer::new(credentials, region));
        Ok(Endpoint { host: host(address), bucket: bucket.to_owned(), signer, signs_payload })
    }

    /// Returns the path of an object. If the key is empty, returns the path of the bucket.
    pub(in crate::network) fn path(&self, key: &str) -> String {
        let separator = if key.is_empty() { "" } else { "/" };
        format!("/{}{separator}{}", encoded(&self.bucket, false), encoded(key, true))
    }

    pub(super) fn is_signed(&self) -> bool {
        self.signer.is_some()
    }

    /// Returns the request line and the headers of a request, signed with the current time.
    pub(in crate::network) fn message(&mut self, call: &Call) -> Vec<u8> {
        self.message_at(call, clock::unix_ns() / 1_000_000_000)
    }

    /// Returns the request line and the headers of a request, signed with the time `unix_s` (s
    /// since 1970).
    fn message_at(&mut self, call: &Call, unix_s: i64) -> Vec<u8> {
        let mut message = String::with_capacity(MESSAGE_BYTES + call.path.len() + call.query.len());
        message.extend([call.method.name(), " ", call.path]);
        if !call.query.is_empty() {
            message.extend(["?", call.query]);
        }
        message.extend([" HTTP/1.1\r\nHost: ", &self.host, "\r\nUser-Agent: halfpower\r\n"]);
        // Without this field, the server may compress the body (RFC 9110, section 12.5.3).
        message.push_str("Accept-Encoding: identity\r\n");
        let range = call.range.map(|(first, last)| format!("bytes={first}-{last}"));
        if let Some(range) = &range {
            message.extend(["Range: ", range, "\r\n"]);
        }
        if let Some(body) = call.body {
            message.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        if let Some(signer) = &mut self.signer {
            let time = time_stamp(unix_s);
            let hashed;
            let payload_hash = match call.body {
                None | Some([]) => EMPTY_HASH,
                Some(_) if !self.signs_payload => UNSIGNED,
                Some(body) => {
                    hashed = payload_hash(body);
                    &hashed
                }
            };
            let all = [
                ("host", &*self.host),
                ("range", range.as_deref().unwrap_or_default()),
                ("x-amz-content-sha256", payload_hash),
                ("x-amz-date", &time),
            ];
            let unranged = [all[0], all[2], all[3]];
            let headers = if range.is_some() { &all[..] } else { &unranged };
            let Call { path, query, .. } = *call;
            let method = call.method.name();
            let signed = Signed { method, path, query, headers, payload_hash, time: &time };
            let authorization = signer.authorization(&signed);
            message.extend(["x-amz-content-sha256: ", payload_hash, "\r\nx-amz-date: ", &time]);
            message.extend(["\r\nAuthorization: ", &authorization, "\r\n"]);
        }
        message.push_str("\r\n");
        message.into_bytes()
    }
}

/// Returns the value of the header `Host`, which omits the default port 80 (RFC 9110, section 7.2).
fn host(address: &Address) -> String {
    let server = address.server();
    match server.strip_suffix(":80") {
        Some(host) if address.port == 80 => host.to_owned(),
        _ => server,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Credentials;

    fn endpoint(address: &str, signed: bool) -> Endpoint {
        let credentials = signed.then(|| Credentials {
            user: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            password: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
        });
        let address = address.parse().unwrap();
        let access = Access { address, credentials, writable: false, durable: false };
        Endpoint::new(&access, true).unwrap()
    }

    #[test]
    fn an_anonymous_request_is_plain_http() {
        let mut endpoint = endpoint("s3://host/bucket/a b", false);
        let path = endpoint.path("a b");
        let call = Call { range: Some((5, 9)), ..Call::new(Method::Get, &path) };
        let expected = "GET /bucket/a%20b HTTP/1.1\r\nHost: host\r\nUser-Agent: halfpower\r\n\
                        Accept-Encoding: identity\r\nRange: bytes=5-9\r\n\r\n";
        assert_eq!(String::from_utf8(endpoint.message_at(&call, 0)).unwrap(), expected);
    }

    #[test]
    fn a_request_with_payload_has_its_length_and_hash() {
        let mut endpoint = endpoint("s3://[::1]:7070/bucket", true);
        let path = endpoint.path("k");
        let body = Some(&b"Welcome to Amazon S3."[..]);
        let call = Call { body, query: "partNumber=1", ..Call::new(Method::Put, &path) };
        let text = String::from_utf8(endpoint.message_at(&call, 1_369_353_600)).unwrap();
        let start = "PUT /bucket/k?partNumber=1 HTTP/1.1\r\nHost: [::1]:7070\r\n";
        assert!(text.starts_with(start), "{text}");
        for part in [
            "\r\nContent-Length: 21\r\n",
            "\r\nx-amz-content-sha256: \
             44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072\r\n",
            "\r\nx-amz-date: 20130524T000000Z\r\nAuthorization: AWS4-HMAC-SHA256 Credential=\
             AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=host;",
        ] {
            assert!(text.contains(part), "{text}");
        }
        endpoint.signs_payload = false;
        let text = String::from_utf8(endpoint.message_at(&call, 0)).unwrap();
        assert!(text.contains("x-amz-content-sha256: UNSIGNED-PAYLOAD\r\n"), "{text}");
    }

    #[test]
    fn an_access_key_cannot_smuggle_a_header() {
        let credentials = Some(Credentials { user: "a\r\nX: y".into(), password: "p".into() });
        let address = "s3://h/b/k".parse().unwrap();
        let access = Access { address, credentials, writable: false, durable: false };
        let error = Endpoint::new(&access, false).unwrap_err().to_string();
        assert!(error.contains("the access key is empty or has characters"), "{error}");
    }
}
