//! Converts responses with an error status into messages for the user.
//!
//! Source: Amazon S3 API Reference, "Error responses". An error response is an XML document whose
//! element `Code` contains an error code. Messages to the user repeat only this code, and only if
//! it is short and has no unusual characters, because the server is not trusted.

use crate::error::{Error, ErrorKind};
use crate::network::Access;
use crate::network::s3::connection::{Reply, TLS_REMEDY};
use crate::network::s3::message::REGION;
use crate::network::s3::xml;
use crate::network::wire::printable;

/// The maximum length of an error code (bytes).
const CODE_BYTES_MAX: usize = 64;
/// How much of a plain text response is searched for words about TLS (bytes).
const TEXT_BYTES: usize = 1 << 10;

/// Returns the error code in an error document. None if there is no code, or if the code is too
/// long or has unusual characters.
pub(in crate::network) fn code(document: &[u8]) -> Option<String> {
    let leaves = xml::leaves(document).ok()?;
    let code = leaves.iter().find(|leaf| leaf.parent == "Error" && leaf.name == "Code")?;
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let text = &code.text;
    let plausible = (1..=CODE_BYTES_MAX).contains(&text.len()) && text.bytes().all(usual);
    plausible.then(|| text.clone().into_owned())
}

/// Returns the error for a refused request. `action` describes the request, such as "PUT of 'key'".
pub(in crate::network) fn refusal(access: &Access, action: &str, reply: &Reply) -> Error {
    let status = reply.head.status;
    let code = code(&reply.text);
    let (what, remedy, kind) = explained(access, reply, code.as_deref());
    let code = code.map_or(String::new(), |code| format!("{}, ", printable(code.as_bytes())));
    let address = &access.address;
    Error::new(kind, format!("{address}: {what} ({action}: {code}HTTP status {status})"))
        .with_remedy(remedy)
}

/// Returns the description, the remedy and the kind of the error.
fn explained(access: &Access, reply: &Reply, code: Option<&str>) -> (String, String, ErrorKind) {
    let address = &access.address;
    let (bucket, _) = address.first_and_rest();
    let user = access.credentials.as_ref().map_or("", |credentials| &credentials.user);
    let said = |what: &str, remedy: &str, kind| (what.to_owned(), remedy.to_owned(), kind);
    if wants_tls(reply) {
        let what = "the server requires https, but halfpower does not support TLS";
        return said(what, TLS_REMEDY, ErrorKind::Unsupported);
    }
    let ours = address.region.as_deref().unwrap_or(REGION);
    if let Some(region) = reply.head.region.as_deref().filter(|region| is_other(region, ours)) {
        let what = format!("the bucket '{bucket}' is in the region {region}, not in {ours}");
        let remedy = format!("add ?region={region} to the address, and check the server's name");
        return (what, remedy, ErrorKind::Usage);
    }
    match (code.unwrap_or_default(), reply.head.status) {
        ("NoSuchKey", _) => said("there is no such object", "check its key", ErrorKind::Usage),
        ("NoSuchBucket", _) => {
            let what = format!("there is no bucket '{bucket}'");
            (what, "check the name of the bucket".to_owned(), ErrorKind::Usage)
        }
        ("NoSuchUpload", _) => said(
            "there is no such multipart upload",
            "check whether another program has completed or aborted the upload",
            ErrorKind::Usage,
        ),
        // versitygw (an S3 server) sends XAdminUserNotFound.
        ("InvalidAccessKeyId" | "XAdminUserNotFound", _) => {
            let what = format!("the server does not know the access key '{user}'");
            (what, "check the access key".to_owned(), ErrorKind::Usage)
        }
        ("SignatureDoesNotMatch", _) => {
            let what = format!("the secret of the access key '{user}' is wrong");
            (what, "check the password".to_owned(), ErrorKind::Usage)
        }
        ("RequestTimeTooSkewed", _) => said(
            "the clocks of the server and of this host differ",
            "synchronize the clocks",
            ErrorKind::Usage,
        ),
        (_, 401 | 403) if user.is_empty() => said(
            "the server refuses anonymous access",
            "pass an access key as the user and its secret as the password",
            ErrorKind::NotWritable,
        ),
        (_, 401 | 403) => {
            let what = format!("the server denies access for the access key '{user}'");
            let remedy = format!("allow this key to use the bucket '{bucket}'");
            (what, remedy, ErrorKind::NotWritable)
        }
        (_, 404) => said("object not found", "check the bucket and the key", ErrorKind::Usage),
        (_, 301 | 302 | 307 | 308) => said(
            "the bucket is served at another address",
            "use the server, port and region of the bucket",
            ErrorKind::Usage,
        ),
        (_, 429 | 503) => said(
            "the server is overloaded",
            "try again later, with fewer concurrent requests",
            ErrorKind::Io,
        ),
        (_, 507) => said("the server has no space left", "free space on it", ErrorKind::NoSpace),
        _ => said("the server refuses the request", "check the log of the server", ErrorKind::Io),
    }
}

/// Returns whether the server requires TLS. Some servers redirect to https. Others (nginx, Apache,
/// and servers written in Go) send a plain text message if their TLS port receives HTTP.
fn wants_tls(reply: &Reply) -> bool {
    let location = reply.head.location.as_deref().unwrap_or_default();
    let redirected = (300..400).contains(&reply.head.status)
        && location.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("https:"));
    let text = String::from_utf8_lossy(&reply.text[..reply.text.len().min(TEXT_BYTES)]);
    let told = ["HTTPS server", "HTTPS port", "SSL-enabled server"];
    redirected || (reply.head.status == 400 && told.iter().any(|words| text.contains(words)))
}

/// Returns whether `region` is a valid region name that differs from `ours`.
fn is_other(region: &str, ours: &str) -> bool {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    region != ours && (1..=32).contains(&region.len()) && region.bytes().all(usual)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Credentials;
    use crate::network::s3::http::{STATUS_BYTES, head, status};

    fn said(user: &str, response: &str, text: &str) -> String {
        let credentials = Credentials { user: user.to_owned(), password: "the secret".to_owned() };
        let credentials = (!user.is_empty()).then_some(credentials);
        let address = "s3://h/b/k".parse().unwrap();
        let access = Access { address, credentials, writable: false, durable: false };
        let response = format!("{response}\r\n\r\n");
        let (start, rest) = response.as_bytes().split_at(STATUS_BYTES);
        let head = head(status(start).unwrap(), rest, false).unwrap();
        let (text, bytes) = (text.as_bytes().to_vec(), text.len() as u64);
        let reply = Reply { head, text, bytes, first_byte_ns: 0, end_ns: 0 };
        let said = refusal(&access, "GET of 'k'", &reply).to_string();
        assert!(!said.contains("secret'") && !said.contains('\n'), "{said}");
        said
    }

    fn document(code: &str) -> String {
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message></Error>")
    }

    #[test]
    fn an_error_names_its_code_status_and_remedy() {
        assert_eq!(
            said("anna", "HTTP/1.1 404 Not Found", &document("NoSuchBucket")),
            "s3://h/b/k: there is no bucket 'b' (GET of 'k': NoSuchBucket, HTTP status 404); check \
             the name of the bucket"
        );
        let wrong = said("anna", "HTTP/1.1 403 x", &document("SignatureDoesNotMatch"));
        assert!(wrong.contains("the secret of the access key 'anna' is wrong"), "{wrong}");
        let denied = said("", "HTTP/1.1 403 x", &document("AccessDenied"));
        assert!(denied.contains("refuses anonymous access (GET of 'k': AccessDenied"), "{denied}");
    }

    #[test]
    fn a_code_that_looks_like_none_is_not_repeated() {
        for code in ["a b", "a\u{1b}[31m", "", &"x".repeat(65), "<b/>"] {
            let text = said("anna", "HTTP/1.1 500 x", &document(code));
            assert!(text.contains("(GET of 'k': HTTP status 500)"), "{text}");
        }
        assert_eq!(code(b"<html><Code>X</Code></html>"), None);
    }

    #[test]
    fn a_server_that_wants_tls_is_recognised() {
        let go = "Client sent an HTTP request to an HTTPS server.\n";
        let redirect = "HTTP/1.1 307 x\r\nLocation: HTTPS://h/b/k";
        for (response, text) in [("HTTP/1.0 400 Bad Request", go), (redirect, "")] {
            let text = said("anna", response, text);
            assert!(text.contains("requires https") && text.contains("stunnel"), "{text}");
        }
    }

    #[test]
    fn the_region_of_a_bucket_is_told() {
        let response = "HTTP/1.1 301 x\r\nx-amz-bucket-region: eu-west-1";
        let text = said("anna", response, &document("PermanentRedirect"));
        assert!(text.contains("is in the region eu-west-1, not in us-east-1"), "{text}");
        let same = said("", "HTTP/1.1 403 x\r\nx-amz-bucket-region: us-east-1", "");
        assert!(same.contains("anonymous"), "{same}");
    }
}
