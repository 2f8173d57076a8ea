//! Timed operations on whole objects of an S3 bucket.
//!
//! An [`ObjectClient`] makes one request at a time on its keep-alive connection. For concurrent
//! requests, use several clients. Nothing is cached. A request is repeated only if the server has
//! closed the idle connection before the request arrived.
//!
//! Source: Amazon S3 API Reference: PutObject, GetObject, HeadObject, DeleteObject, ListObjectsV2,
//! CreateMultipartUpload, UploadPart, CompleteMultipartUpload and AbortMultipartUpload. TLS,
//! session tokens and checksums of S3 are not supported.

use crate::error::{Error, ErrorKind};
use crate::network::s3::{
    Call, Connection, Endpoint, Method, Reply, Sink, code, encoded, escaped, leaves, refusal,
};
use crate::network::wire::violated;
use crate::network::{Access, Scheme, Wire};

/// The maximum size of an XML document (bytes). This is enough for a list of 1000 keys of 1024
/// bytes, even if every byte of the keys is encoded.
const DOCUMENT_BYTES_MAX: usize = 8 << 20;
/// The maximum length of an upload ID, a continuation token or an ETag (bytes).
const TOKEN_BYTES_MAX: usize = 4 << 10;

/// What the signature of a request with a payload covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PayloadSignature {
    /// The headers only (`x-amz-content-sha256: UNSIGNED-PAYLOAD`).
    #[default]
    Unsigned,
    /// The headers and the SHA-256 hash of the payload. This host computes the hash before it sends
    /// the request.
    Signed,
}

/// The result of an operation, and two times: until the first byte and until the last byte of the
/// response. Each time begins with the call of the operation, and is measured by
/// [`crate::Monotonic`]. The times include signing and, if necessary, reconnecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed<T> {
    /// What the operation returned.
    pub value: T,
    /// The time until the first byte of the response arrived (ns).
    pub first_byte_ns: u64,
    /// The time until the last byte of the response arrived (ns).
    pub total_ns: u64,
}

/// One page of a list of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The keys of the objects, in the order in which the server sent them.
    pub keys: Vec<String>,
    /// The continuation token of the next page. None if this is the last page.
    pub next: Option<String>,
}

/// A part of a multipart upload that the server has stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The number of the part, counted from 1.
    pub number: u16,
    /// The ETag that the server assigned to the part.
    pub etag: String,
}

/// A client of one bucket, with one connection.
#[derive(Debug)]
pub struct ObjectClient {
    access: Access,
    endpoint: Endpoint,
    connection: Connection,
}

impl ObjectClient {
    /// Connects to the server that an address `s3://HOST[:PORT]/BUCKET` specifies. An object key in
    /// the address is ignored. `access.credentials` contains the access key and its secret. Without
    /// credentials, the requests are anonymous.
    ///
    /// # Errors
    /// The address is not an S3 address or contains no bucket, or the server cannot be reached. A
    /// missing bucket or a wrong access key is reported by the first operation, not by this
    /// function.
    pub fn connect(access: &Access, payload: PayloadSignature) -> Result<ObjectClient, Error> {
        let address = &access.address;
        if address.scheme != Scheme::S3 {
            let what = format!("{address} is not the address of a bucket");
            return Err(Error::new(ErrorKind::Usage, what).with_remedy(Scheme::S3.form()));
        }
        let endpoint = Endpoint::new(access, payload == PayloadSignature::Signed)?;
        let connection = Connection::over(Wire::connect(address)?.after_set_up(), address);
        Ok(ObjectClient { access: access.clone(), endpoint, connection })
    }

    /// Returns how often the client has reconnected after an error or after the server closed the
    /// connection.
    pub fn reconnects(&self) -> u64 {
        self.connection.reconnects()
    }

    /// Stores an object. An object with the same key is replaced.
    ///
    /// # Errors
    /// The bucket was opened for reading only, the server refuses the request, or the connection
    /// fails. If the server sent an error code, the error contains it.
    pub fn put(&mut self, key: &str, bytes: &[u8]) -> Result<Timed<()>, Error> {
        self.check_writable()?;
        let path = self.endpoint.path(key);
        let call = Call { body: Some(bytes), ..Call::new(Method::Put, &path) };
        Ok(self.call(&call, key, &mut Sink::Text(DOCUMENT_BYTES_MAX))?.map(|_| ()))
    }

    /// Reads a whole object into the beginning of `into`, and returns its size (bytes).
    ///
    /// # Errors
    /// There is no such object, the object is larger than `into`, the server refuses the request,
    /// or the connection fails.
    pub fn get(&mut self, key: &str, into: &mut [u8]) -> Result<Timed<u64>, Error> {
        let path = self.endpoint.path(key);
        let call = Call::new(Method::Get, &path);
        Ok(self.call(&call, key, &mut Sink::Memory(into))?.map(|reply| reply.bytes))
    }

    /// Returns the size of an object (bytes).
    ///
    /// # Errors
    /// There is no such object, the server refuses the request, or the connection fails.
    pub fn head(&mut self, key: &str) -> Result<Timed<u64>, Error> {
        let path = self.endpoint.path(key);
        let reply = self.call(&Call::new(Method::Head, &path), key, &mut Sink::Text(0))?;
        let size = reply.value.head.length;
        let size = size.ok_or_else(|| self.violated("did not report the size of the object"))?;
        Ok(reply.map(|_| size))
    }

    /// Removes an object. Servers do not report whether the object existed.
    ///
    /// # Errors
    /// The same errors as for [`ObjectClient::put`].
    pub fn delete(&mut self, key: &str) -> Result<Timed<()>, Error> {
        self.check_writable()?;
        let path = self.endpoint.path(key);
        let call = Call::new(Method::Delete, &path);
        Ok(self.call(&call, key, &mut Sink::Text(DOCUMENT_BYTES_MAX))?.map(|_| ()))
    }

    /// Lists the keys that begin with `prefix`, one page per call. `continuation` is the token of
    /// the page to return. If it is None, returns the first page.
    ///
    /// # Errors
    /// The list is malformed, the server refuses the request, or the connection fails.
    pub fn list(
        &mut self,
        prefix: &str,
        continuation: Option<&str>,
    ) -> Result<Timed<Listing>, Error> {
        let mut query = String::new();
        if let Some(token) = continuation {
            query = format!("continuation-token={}&", encoded(token, false));
        }
        query.push_str("list-type=2");
        if !prefix.is_empty() {
            query.push_str(&format!("&prefix={}", encoded(prefix, false)));
        }
        let path = self.endpoint.path("");
        let call = Call { query: &query, ..Call::new(Method::Get, &path) };
        let reply = self.call(&call, prefix, &mut Sink::Text(DOCUMENT_BYTES_MAX))?;
        let listing = self.listing(&reply.value.text)?;
        if listing.next.is_some() && listing.next.as_deref() == continuation {
            return Err(self.violated("sent a list page whose next page is the same page"));
        }
        Ok(reply.map(|_| listing))
    }

    /// Begins a multipart upload, and returns its upload ID.
    ///
    /// # Errors
    /// The same errors as for [`ObjectClient::put`].
    pub fn create_upload(&mut self, key: &str) -> Result<Timed<String>, Error> {
        self.check_writable()?;
        let path = self.endpoint.path(key);
        let body = Some(&[][..]);
        let call = Call { query: "uploads=", body, ..Call::new(Method::Post, &path) };
        let reply = self.call(&call, key, &mut Sink::Text(DOCUMENT_BYTES_MAX))?;
        let leaves = leaves(&reply.value.text).map_err(|flaw| self.violated(flaw))?;
        let upload = leaves.iter().find(|leaf| leaf.name == "UploadId");
        let upload = upload.map(|leaf| leaf.text.clone().into_owned());
        let upload = upload.filter(|id| (1..=TOKEN_BYTES_MAX).contains(&id.len()));
        let upload = upload.ok_or_else(|| self.violated("sent no valid upload ID"))?;
        Ok(reply.map(|_| upload))
    }

    /// Stores a part of a multipart upload. `number` is from 1 to 10000. Servers require at least
    /// 5 MiB in each part except the last one.
    ///
    /// # Errors
    /// The same errors as for [`ObjectClient::put`].
    pub fn upload_part(
        &mut self,
        key: &str,
        upload: &str,
        number: u16,
        bytes: &[u8],
    ) -> Result<Timed<Part>, Error> {
        self.check_writable()?;
        let path = self.endpoint.path(key);
        let query = format!("partNumber={number}&uploadId={}", encoded(upload, false));
        let call = Call { query: &query, body: Some(bytes), ..Call::new(Method::Put, &path) };
        let reply = self.call(&call, key, &mut Sink::Text(DOCUMENT_BYTES_MAX))?;
        let etag = reply.value.head.etag.clone().filter(|etag| etag.len() <= TOKEN_BYTES_MAX);
        let etag = etag.ok_or_else(|| self.violated("sent no valid ETag for the part"))?;
        Ok(reply.map(|_| Part { number, etag }))
    }

    /// Creates an object from the parts of a multipart upload. `parts` must have ascending numbers.
    ///
    /// # Errors
    /// The same errors as for [`ObjectClient::put`].
    pub fn complete_upload(
        &mut self,
        key: &str,
        upload: &str,
        parts: &[Part],
    ) -> Result<Timed<()>, Error> {
        self.check_writable()?;
        let mut document = "<CompleteMultipartUpload>".to_owned();
        for Part { number, etag } in parts {
            let etag = escaped(etag);
            document.push_str(&format!(
                "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"
            ));
        }
        document.push_str("</CompleteMultipartUpload>");
        let path = self.endpoint.path(key);
        let query = format!("uploadId={}", encoded(upload, false));
        let body = Some(document.as_bytes());
        let call = Call { query: &query, body, ..Call::new(Method::Post, &path) };
        let reply = self.call(&call, key, &mut Sink::Text(DOCUMENT_BYTES_MAX))?;
        // The server sends the status before it has assembled the object, so the body may still
        // report an error.
        if code(&reply.value.text).is_some() {
            return Err(self.refused(&call, key, &reply.value));
        }
        Ok(reply.map(|_| ()))
    }

    /// Aborts a multipart upload, and removes its parts. Also succeeds if the server does not know
    /// the upload, because such an upload has already ended.
    ///
    /// # Errors
    /// The same errors as for [`ObjectClient::put`].
    pub fn abort_upload(&mut self, key: &str, upload: &str) -> Result<Timed<()>, Error> {
        self.check_writable()?;
        let path = self.endpoint.path(key);
        let query = format!("uploadId={}", encoded(upload, false));
        let call = Call { query: &query, ..Call::new(Method::Delete, &path) };
        let reply = self.exchange(&call, &mut Sink::Text(DOCUMENT_BYTES_MAX))?;
        let text = &reply.value.text;
        if reply.value.is_success() || code(text).as_deref() == Some("NoSuchUpload") {
            return Ok(reply.map(|_| ()));
        }
        Err(self.refused(&call, key, &reply.value))
    }

    /// Makes a request and times it. A response with an error status is an error.
    fn call(&mut self, call: &Call, key: &str, sink: &mut Sink) -> Result<Timed<Reply>, Error> {
        let reply = self.exchange(call, sink)?;
        if !reply.value.is_success() {
            return Err(self.refused(call, key, &reply.value));
        }
        Ok(reply)
    }

    /// Makes a request and times it. A response with an error status is returned like any other.
    fn exchange(&mut self, call: &Call, sink: &mut Sink) -> Result<Timed<Reply>, Error> {
        let start_ns = self.connection.now_ns();
        let message = self.endpoint.message(call);
        let body = call.body.unwrap_or_default();
        let reply = self.connection.exchange(call.method, &message, body, sink)?;
        let first_byte_ns = reply.first_byte_ns.saturating_sub(start_ns);
        let total_ns = reply.end_ns.saturating_sub(start_ns);
        Ok(Timed { value: reply, first_byte_ns, total_ns })
    }

    fn listing(&self, document: &[u8]) -> Result<Listing, Error> {
        let leaves = leaves(document).map_err(|flaw| self.violated(flaw))?;
        let mut listing = Listing { keys: Vec::new(), next: None };
        let mut truncated = false;
        for leaf in leaves {
            match (leaf.parent, leaf.name) {
                ("Contents", "Key") => listing.keys.push(leaf.text.into_owned()),
                ("ListBucketResult", "IsTruncated") => truncated = leaf.text == "true",
                ("ListBucketResult", "NextContinuationToken") => {
                    listing.next = Some(leaf.text.into_owned());
                }
                _ => {}
            }
        }
        match &listing.next {
            Some(token) if truncated && token.len() <= TOKEN_BYTES_MAX => {}
            _ if truncated => {
                let what = "sent a page of a list without a valid token for the next page";
                return Err(self.violated(what));
            }
            _ => listing.next = None,
        }
        Ok(listing)
    }

    fn check_writable(&self) -> Result<(), Error> {
        if self.access.writable {
            return Ok(());
        }
        let what = format!("{} was opened for reading only", self.access.address);
        Err(Error::new(ErrorKind::Refused, what).with_remedy("open the bucket for writing"))
    }

    fn refused(&self, call: &Call, key: &str, reply: &Reply) -> Error {
        let action = format!("{} of '{}'", call.method.name(), key.escape_debug());
        refusal(&self.access, &action, reply)
    }

    fn violated(&self, what: &str) -> Error {
        violated(&self.access.address.to_string(), what)
    }
}

impl<T> Timed<T> {
    /// Replaces the value and keeps the times.
    fn map<U>(self, change: impl FnOnce(T) -> U) -> Timed<U> {
        let Timed { value, first_byte_ns, total_ns } = self;
        Timed { value: change(value), first_byte_ns, total_ns }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::PayloadSignature::{Signed, Unsigned};
    use super::*;
    use crate::network::s3::test_server::{Answer, Received, Server, chunked, failure, response};

    /// Returns a client with write access, and the server to which the client is connected.
    fn client(
        payload: PayloadSignature,
        answer: impl Fn(&Received) -> Answer + Send + Sync + 'static,
    ) -> (ObjectClient, Server) {
        let server = Server::new(answer);
        let access = Access { writable: true, ..server.access("bucket") };
        (ObjectClient::connect(&access, payload).unwrap(), server)
    }

    /// Returns a client whose server answers each request with `bytes` and closes the connection.
    fn answered(bytes: impl Into<Vec<u8>>) -> ObjectClient {
        let bytes = bytes.into();
        client(Unsigned, move |_| Answer::SendAndClose(bytes.clone())).0
    }

    #[track_caller]
    fn failed<T: std::fmt::Debug>(result: Result<T, Error>, expected: &str) {
        let text = result.expect_err(expected).to_string();
        assert!(text.starts_with("s3://127.0.0.1:") && text.contains(expected), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }

    /// Returns the answers of a server that stores one object and ignores the key.
    fn bucket() -> impl Fn(&Received) -> Answer + Send + Sync + 'static {
        let object = Mutex::new(Vec::new());
        move |request| {
            let mut object = object.lock().unwrap();
            Answer::Send(match &*request.method {
                "PUT" => {
                    object.clone_from(&request.body);
                    response("200 OK", "ETag: \"e\"\r\n", b"")
                }
                "HEAD" => {
                    let length = object.len();
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes()
                }
                "DELETE" => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
                _ => response("200 OK", "", &object),
            })
        }
    }

    #[test]
    fn objects_go_out_and_come_back_on_one_connection() {
        let bytes: Vec<u8> = (0..300_000_u32).map(|number| (number / 7) as u8).collect();
        for payload in [Unsigned, Signed] {
            let mut into = vec![0; 300_001];
            let (mut client, server) = client(payload, bucket());
            let put = client.put("a/b ä", &bytes).unwrap();
            assert!(put.first_byte_ns > 0 && put.first_byte_ns <= put.total_ns, "{put:?}");
            let got = client.get("a/b ä", &mut into).unwrap();
            assert_eq!(got.value, 300_000);
            assert!(into[..300_000] == bytes, "the same bytes");
            assert!(got.first_byte_ns > 0 && got.first_byte_ns <= got.total_ns, "{got:?}");
            assert_eq!(client.head("a/b ä").unwrap().value, 300_000);
            client.delete("a/b ä").unwrap();
            let requests = server.requests();
            let right = |r: &Received| r.path == "/bucket/a/b%20%C3%A4" && r.connection == 0;
            assert!(requests.len() == 4 && requests.iter().all(right));
            let hash = requests[0].header("x-amz-content-sha256").unwrap();
            assert_eq!(hash == "UNSIGNED-PAYLOAD", payload == Unsigned);
            assert_eq!(client.reconnects(), 0);
        }
    }

    #[test]
    fn bodies_end_by_chunks_or_with_the_connection_too() {
        let mut into = [0; 10];
        let mut client = answered(chunked("200 OK", "", b"0123456789", 3));
        assert_eq!(client.get("k", &mut into).unwrap().value, 10);
        assert_eq!(&into, b"0123456789");
        let mut client = answered(&b"HTTP/1.1 200 OK\r\n\r\nabc"[..]);
        assert_eq!(client.get("k", &mut into).unwrap().value, 3);
        assert_eq!(&into, b"abc3456789");
    }

    #[test]
    fn an_object_larger_than_the_memory_is_an_error() {
        let mut into = [0; 9];
        for bytes in [
            response("200 OK", "", b"0123456789"),
            chunked("200 OK", "", b"0123456789", 3),
            b"HTTP/1.1 200 OK\r\n\r\n0123456789".to_vec(),
            b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n".to_vec(),
        ] {
            failed(answered(bytes).get("k", &mut into), "the server sent more than 9 bytes");
        }
    }

    #[test]
    fn errors_name_the_operation_the_code_and_the_status() {
        let slow = failure(503, "SlowDown", "PUT");
        let result = answered(slow).put("a\nb", b"x");
        let expected = "the server is overloaded (PUT of 'a\\nb': SlowDown, HTTP status 503)";
        failed(result, expected);
        let denied = failure(403, "AccessDenied", "GET");
        failed(answered(denied).get("k", &mut []), "(GET of 'k': AccessDenied, HTTP status 403)");
        let mut half = response("200 OK", "", &[1; 4096]);
        half.truncate(2000);
        failed(answered(half).get("k", &mut [0; 4096]), "closed the connection");
        let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(1 << 20));
        failed(answered(long).delete("k"), "a header of more than 16384 bytes");
        let negative = &b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"[..];
        failed(answered(negative).put("k", b"x"), "not a number of bytes");
        let huge = &b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"[..];
        failed(answered(huge).put("k", b"x"), "sent more than 8388608 bytes");
        failed(answered(huge).list("", None), "sent more than 8388608 bytes");
    }

    #[test]
    fn a_client_goes_on_after_an_error() {
        let calls = AtomicUsize::new(0);
        let (mut client, server) =
            client(Unsigned, move |_| match calls.fetch_add(1, Ordering::Relaxed) {
                0 => Answer::Send(failure(500, "InternalError", "PUT")),
                1 => Answer::Send(b"nonsense\r\n\r\n".to_vec()),
                _ => Answer::Send(response("200 OK", "", b"")),
            });
        failed(client.put("k", b"x"), "InternalError, HTTP status 500");
        failed(client.put("k", b"x"), "does not speak HTTP/1.1");
        client.put("k", b"x").unwrap();
        let connections: Vec<usize> = server.requests().iter().map(|r| r.connection).collect();
        assert_eq!(connections, [0, 0, 1], "only the nonsense reply causes a new connection");
        assert_eq!(client.reconnects(), 1);
    }

    #[test]
    fn a_connection_that_was_closed_while_idle_is_opened_once_more() {
        let ok = response("200 OK", "", b"");
        let (mut once, server) = client(Unsigned, move |_| Answer::SendAndClose(ok.clone()));
        for _ in 0..3 {
            once.put("k", b"x").unwrap();
        }
        assert_eq!((once.reconnects(), server.requests().len()), (2, 3));
        let (mut never, server) = client(Unsigned, |_| Answer::Close);
        failed(never.put("k", b"x"), "closed the connection");
        assert_eq!(
            server.requests().len(),
            1,
            "the connection was new, so the request is not sent again"
        );
    }

    #[test]
    fn a_request_that_crosses_with_the_end_of_the_connection_is_repeated_if_that_is_safe() {
        // The server reads the second request of each connection, and then closes the connection
        // without an answer.
        let answer = || {
            let last = AtomicUsize::new(usize::MAX);
            move |request: &Received| {
                if last.swap(request.connection, Ordering::Relaxed) == request.connection {
                    return Answer::Close;
                }
                Answer::Send(response("200 OK", "", b"<a><UploadId>u</UploadId></a>"))
            }
        };
        let (mut put, server) = client(Unsigned, answer());
        put.put("k", b"x").unwrap();
        put.put("k", b"x").unwrap();
        assert_eq!((put.reconnects(), server.requests().len()), (1, 3));
        let (mut post, server) = client(Unsigned, answer());
        assert_eq!(post.create_upload("k").unwrap().value, "u");
        failed(post.create_upload("k"), "closed the connection");
        assert_eq!(
            server.requests().len(),
            2,
            "the upload may have begun, so the request is not sent again"
        );
    }

    #[test]
    fn a_list_has_pages() {
        let page = |token: &str, truncated: bool, key: &str| {
            let next = format!("<NextContinuationToken>{token}</NextContinuationToken>");
            let list = format!(
                "<ListBucketResult><Prefix>p</Prefix><IsTruncated>{truncated}</IsTruncated>\
                 <Contents><Key>{key}</Key><Size>1</Size></Contents>{next}</ListBucketResult>"
            );
            response("200 OK", "", list.as_bytes())
        };
        let (mut client, server) = client(Unsigned, move |request| {
            let second = request.query.contains("continuation-token=t%2F1%3D&");
            Answer::Send(page("t/1=", !second, if second { "b" } else { "a&amp;&#39;" }))
        });
        let first = client.list("p/ü", None).unwrap().value;
        assert_eq!(first, Listing { keys: vec!["a&'".to_owned()], next: Some("t/1=".to_owned()) });
        let second = client.list("p/ü", first.next.as_deref()).unwrap().value;
        assert_eq!(second, Listing { keys: vec!["b".to_owned()], next: None });
        let queries: Vec<String> = server.requests().into_iter().map(|r| r.query).collect();
        assert_eq!(queries[0], "list-type=2&prefix=p%2F%C3%BC");
        failed(answered(page("t", true, "a")).list("", Some("t")), "next page is the same page");
        failed(answered(response("200 OK", "", b"<a>")).list("", None), "not well-formed");
    }

    #[test]
    fn a_multipart_upload_is_created_filled_and_completed() {
        let (mut client, server) = client(Signed, |request| {
            let part = request.query.strip_prefix("partNumber=").map(|rest| &rest[..1]);
            Answer::Send(match (&*request.method, &*request.query, part) {
                ("POST", "uploads=", _) => {
                    let document = b"<InitiateMultipartUploadResult><UploadId>a/&lt;b\
                                     </UploadId></InitiateMultipartUploadResult>";
                    response("200 OK", "", document)
                }
                ("PUT", _, Some(number)) => {
                    response("200 OK", &format!("ETag: \"<e{number}>\"\r\n"), b"")
                }
                ("DELETE", ..) => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
                _ => response("200 OK", "", b"\n<CompleteMultipartUploadResult/>"),
            })
        });
        let upload = client.create_upload("k").unwrap().value;
        assert_eq!(upload, "a/<b");
        let first = client.upload_part("k", &upload, 1, b"one").unwrap().value;
        let second = client.upload_part("k", &upload, 2, b"two").unwrap().value;
        client.complete_upload("k", &upload, &[first, second]).unwrap();
        client.abort_upload("k", &upload).unwrap();
        let requests = server.requests();
        assert_eq!(requests[1].query, "partNumber=1&uploadId=a%2F%3Cb");
        let document = "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"&lt;e1&gt;\
                        \"</ETag></Part><Part><PartNumber>2</PartNumber><ETag>\"&lt;e2&gt;\"</ETag>\
                        </Part></CompleteMultipartUpload>";
        assert_eq!(std::str::from_utf8(&requests[3].body).unwrap(), document);
    }

    #[test]
    fn an_error_in_a_successful_response_fails_the_completion() {
        let late = response("200 OK", "", b"<Error><Code>InternalError</Code></Error>");
        failed(answered(late).complete_upload("k", "u", &[]), "InternalError, HTTP status 200");
    }

    #[test]
    fn a_bucket_opened_for_reading_is_not_changed() {
        let server = Server::new(bucket());
        let mut client = ObjectClient::connect(&server.access("bucket"), Unsigned).unwrap();
        for result in [
            client.put("k", b"x").map(drop),
            client.delete("k").map(drop),
            client.create_upload("k").map(drop),
            client.upload_part("k", "u", 1, b"x").map(drop),
            client.complete_upload("k", "u", &[]).map(drop),
            client.abort_upload("k", "u").map(drop),
        ] {
            assert_eq!(result.as_ref().unwrap_err().kind(), ErrorKind::Refused);
            failed(result, "was opened for reading only");
        }
        assert!(server.requests().is_empty());
    }

    #[test]
    fn addresses_without_a_bucket_are_refused() {
        let server = Server::new(bucket());
        let refused = |access: &Access| ObjectClient::connect(access, Unsigned).unwrap_err();
        let error = refused(&server.access("")).to_string();
        assert!(error.contains("the address contains no bucket"), "{error}");
        let nbd = Access { address: "nbd://h/x".parse().unwrap(), ..server.access("") };
        assert!(refused(&nbd).to_string().contains("not the address of a bucket"));
    }
}
