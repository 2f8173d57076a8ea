//! An S3 server in this process, for tests. It checks the signature of each request, and sends the
//! answers that the test specifies.
//!
//! The server computes signatures with code that the client does not share, so it detects errors of
//! the client. A test compares the server's signatures with the examples of the S3 API Reference.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

use crate::network::{Access, Credentials};

/// The access key that the server accepts.
pub(crate) const USER: &str = "AKIAIOSFODNN7EXAMPLE";
/// The secret of [`USER`].
pub(crate) const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

/// A request that the server received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Received {
    pub method: String,
    pub path: String,
    pub query: String,
    /// Name (in lower case) and value of each header.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The index of the connection on which the request arrived.
    pub connection: usize,
}

/// What the server does with a request.
pub(crate) enum Answer {
    Send(Vec<u8>),
    SendAndClose(Vec<u8>),
    Close,
}

/// A server that runs until this process ends.
pub(crate) struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<Received>>>,
}

impl Server {
    /// Starts a server. `answer` returns what the server does with a request. Requests with a wrong
    /// signature are refused with status 403.
    pub(crate) fn new(answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (answer, seen) = (Arc::new(answer), Arc::clone(&requests));
        std::thread::spawn(move || {
            for (connection, stream) in listener.incoming().flatten().enumerate() {
                let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
                // The result is ignored, because an error means that the client has closed the
                // connection.
                std::thread::spawn(move || drop(converse(stream, connection, &*answer, &seen)));
            }
        });
        Server { port, requests }
    }

    /// Returns the address of `target` on this server, with the access key that the server accepts.
    pub(crate) fn access(&self, target: &str) -> Access {
        let address = format!("s3://127.0.0.1:{}/{target}", self.port);
        let (user, password) = (USER.to_owned(), SECRET.to_owned());
        let credentials = Some(Credentials { user, password });
        Access { address: address.parse().unwrap(), credentials, writable: false, durable: false }
    }

    /// Returns the requests that have arrived.
    pub(crate) fn requests(&self) -> Vec<Received> {
        self.requests.lock().unwrap().clone()
    }
}

fn converse(
    mut stream: TcpStream,
    connection: usize,
    answer: &dyn Fn(&Received) -> Answer,
    seen: &Mutex<Vec<Received>>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let request = Received { connection, ..receive(&mut stream)? };
        seen.lock().unwrap().push(request.clone());
        let answer = match request.check() {
            Ok(()) => answer(&request),
            Err(_) => Answer::Send(failure(403, "SignatureDoesNotMatch", &request.method)),
        };
        match answer {
            Answer::Send(bytes) => stream.write_all(&bytes)?,
            Answer::SendAndClose(bytes) => return stream.write_all(&bytes),
            Answer::Close => return Ok(()),
        }
    }
}

fn receive(stream: &mut TcpStream) -> std::io::Result<Received> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let mut request = Received::parse(std::str::from_utf8(&head).unwrap());
    let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    request.body = vec![0; length];
    stream.read_exact(&mut request.body)?;
    Ok(request)
}

pub(crate) fn response(status: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{fields}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Returns a response whose body consists of chunks of `chunk_bytes` bytes.
pub(crate) fn chunked(status: &str, fields: &str, body: &[u8], chunk_bytes: usize) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{fields}Transfer-Encoding: chunked\r\n\r\n");
    let mut message = head.into_bytes();
    for chunk in body.chunks(chunk_bytes) {
        message.extend(format!("{:x}\r\n", chunk.len()).as_bytes());
        message.extend([chunk, b"\r\n"].concat());
    }
    message.extend(b"0\r\nx-trailer: a\r\n\r\n");
    message
}

/// Returns a response with an error document. A response to HEAD omits the document.
pub(crate) fn failure(status: u16, code: &str, method: &str) -> Vec<u8> {
    let document = format!("<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code></Error>");
    let head = format!("HTTP/1.1 {status} Failed\r\nContent-Length: {}\r\n\r\n", document.len());
    head.into_bytes()
        .into_iter()
        .chain(match method {
            "HEAD" => Vec::new(),
            _ => document.into_bytes(),
        })
        .collect()
}

impl Received {
    fn parse(head: &str) -> Received {
        let mut lines = head.lines();
        let mut words = lines.next().unwrap().split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let (path, query) = (path.to_owned(), query.to_owned());
        let fields = lines.filter_map(|line| line.split_once(':'));
        let headers = fields
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Received { method, path, query, headers, ..Received::default() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &**value)
    }

    /// Returns the positions of the first and the last byte in the header `Range`.
    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    }

    /// Checks the signature and the hash of the payload. A request without a signature passes.
    fn check(&self) -> Result<(), String> {
        let Some(authorization) = self.header("authorization") else { return Ok(()) };
        let (_, signature) = authorization.split_once("Signature=").ok_or("no signature")?;
        if signature != self.signature(authorization, SECRET).ok_or("parts are missing")? {
            return Err("wrong signature".to_owned());
        }
        let hash = self.header("x-amz-content-sha256").unwrap_or_default();
        let right = hash == "UNSIGNED-PAYLOAD" || hash == hex(&Sha256::digest(&self.body));
        right.then_some(()).ok_or("wrong hash of the payload".to_owned())
    }

    /// Computes the signature that the request must have.
    fn signature(&self, authorization: &str, secret: &str) -> Option<String> {
        let (_, credential) = authorization.split_once("Credential=")?;
        let (_, scope) = credential.split_once(',')?.0.split_once('/')?;
        let (_, names) = authorization.split_once("SignedHeaders=")?;
        let (names, _) = names.split_once(',')?;
        let mut query: Vec<String> = self.query.split('&').map(str::to_owned).collect();
        query.retain(|part| !part.is_empty());
        query.iter_mut().filter(|part| !part.contains('=')).for_each(|part| part.push('='));
        query.sort();
        let mut canonical = format!("{}\n{}\n{}\n", self.method, self.path, query.join("&"));
        for name in names.split(';') {
            canonical += &format!("{name}:{}\n", self.header(name)?);
        }
        canonical += &format!("\n{names}\n{}", self.header("x-amz-content-sha256")?);
        let hash = hex(&Sha256::digest(canonical));
        let time = self.header("x-amz-date")?;
        let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hash}");
        let secret = format!("AWS4{secret}").into_bytes();
        let key = scope.split('/').fold(secret, |key, part| hmac(&key, part));
        Some(hex(&hmac(&key, &to_sign)))
    }
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Source: "Examples: Signature Calculations" in the Amazon S3 API Reference.
#[test]
fn the_examples_of_the_documentation_have_their_signatures() {
    let scope = "Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/\
                 us-east-1/s3/aws4_request,SignedHeaders=";
    let common = "Host: examplebucket.s3.amazonaws.com\r\nx-amz-date: 20130524T000000Z\r\n";
    let empty = "x-amz-content-sha256: \
                 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\r\n";
    let put = "Date: Fri, 24 May 2013 00:00:00 GMT\r\nx-amz-storage-class: REDUCED_REDUNDANCY\r\n\
               x-amz-content-sha256: \
               44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072\r\n";
    let plain = "host;x-amz-content-sha256;x-amz-date";
    for (line, fields, names, signature) in [
        (
            "GET /test.txt",
            format!("Range: bytes=0-9\r\n{empty}"),
            "host;range;x-amz-content-sha256;x-amz-date",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "PUT /test%24file.text",
            put.to_owned(),
            "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            "GET /?lifecycle",
            empty.to_owned(),
            plain,
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            "GET /?max-keys=2&prefix=J",
            empty.to_owned(),
            plain,
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ] {
        let head = format!(
            "{line} HTTP/1.1\r\n{common}{fields}{scope}{names},Signature={signature}\r\n\r\n"
        );
        let mut request = Received::parse(&head);
        if request.method == "PUT" {
            request.body = b"Welcome to Amazon S3.".to_vec();
        }
        assert_eq!(request.check(), Ok(()), "{line}");
        request.path.push('x');
        assert!(request.check().is_err(), "another request with the same signature");
    }
}
