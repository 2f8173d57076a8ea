//! Decides which requests are answered. A request must contain the token, and its `Host` header
//! must be a name of this server.
//!
//! The token is 32 random bytes. It is part of the address that the program prints. The response to
//! that address sets a cookie and redirects to the address without the token, so that the token
//! does not get into the browser's history or bookmarks. Other programs may send the token as
//! `Authorization: Bearer`. Tokens are compared by their BLAKE3 hashes, in constant time. The host
//! name in a request is checked to prevent DNS rebinding. In this attack, another site makes its
//! own host name resolve to the address of this machine. The browser then sends the host name of
//! the other site.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use hyper::header::{AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderValue};
use lab::failure::{Failure, Outcome};
use lab::peer::key;

/// Maximum length of a text that is compared with the token (bytes). Longer texts are rejected.
const TEXT_BYTES_MAX: usize = 256;
/// Maximum number of cookies that are examined per request.
const COOKIES_MAX: usize = 64;

/// The token that clients must know.
#[derive(Clone)]
pub struct Token {
    text: String,
    hash: blake3::Hash,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

impl Token {
    /// Creates a random token.
    ///
    /// # Errors
    /// If the kernel provides no random bytes.
    pub fn random() -> Outcome<Token> {
        let bytes = key::random_bytes().map_err(|error| {
            let cause = ioengine::error::cause(&error);
            Failure::failed(format!("reading /dev/urandom for the token: {cause}; mount /dev"))
        })?;
        Ok(Token::of(&blake3::Hash::from_bytes(bytes).to_hex()))
    }

    /// Creates a token from its text.
    pub fn of(text: &str) -> Token {
        Token { text: text.to_owned(), hash: blake3::hash(text.as_bytes()) }
    }

    /// Returns the text that clients must send.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Checks whether `text` is the token.
    pub fn is(&self, text: &[u8]) -> bool {
        // `blake3::Hash` compares in constant time.
        text.len() <= TEXT_BYTES_MAX && blake3::hash(text) == self.hash
    }
}

/// Rules that decide which requests are answered.
#[derive(Clone, Debug)]
pub struct Access {
    token: Token,
    cookie: String,
    hosts: Hosts,
}

/// The accepted values of the `Host` header.
#[derive(Clone, Debug)]
enum Hosts {
    /// One of these names. They include the port, except on a Unix socket.
    Names(Vec<String>),
    /// One of these names, or any IP address with this port. An IP address is safe, because in a
    /// DNS rebinding attack the browser always sends a name.
    NamesAndNumbers(Vec<String>, u16),
}

impl Access {
    /// Creates the rules for a server on a Unix socket. Clients must use the host name `localhost`,
    /// with any port or none.
    pub fn of_socket(token: Token) -> Access {
        let hosts = Hosts::Names(vec!["localhost".to_owned()]);
        Access { token, cookie: "halfpower-socket".to_owned(), hosts }
    }

    /// Creates the rules for a server at a network address. `host_name` is the name of this
    /// machine.
    pub fn of_address(token: Token, address: SocketAddr, host_name: &str) -> Access {
        let port = address.port();
        let cookie = format!("halfpower-{port}");
        let local = format!("localhost:{port}");
        let hosts = if address.ip().is_loopback() {
            Hosts::Names(vec![address.to_string(), local])
        } else if address.ip().is_unspecified() {
            Hosts::NamesAndNumbers(vec![local, format!("{host_name}:{port}")], port)
        } else {
            Hosts::Names(vec![address.to_string(), local, format!("{host_name}:{port}")])
        };
        Access { token, cookie, hosts }
    }

    /// Returns the value of `Set-Cookie` for a client that has sent the token. The browser sends
    /// the cookie only to this host, and only with requests from this host's own pages. Scripts
    /// cannot read the cookie. None if the token contains characters that are not allowed in a
    /// header.
    pub fn cookie(&self) -> Option<HeaderValue> {
        let (name, text) = (&self.cookie, self.token.text());
        let value = format!("{name}={text}; Path=/; HttpOnly; SameSite=Strict");
        HeaderValue::from_str(&value).ok()
    }

    /// Checks whether `text` is the token.
    pub fn is_token(&self, text: &str) -> bool {
        self.token.is(text.as_bytes())
    }

    /// Checks whether a request has exactly one `Host` header and whether that header contains a
    /// name of this server.
    pub fn is_for_us(&self, headers: &HeaderMap) -> bool {
        let mut all = headers.get_all(HOST).iter();
        let (Some(host), None) = (all.next(), all.next()) else { return false };
        host.to_str().is_ok_and(|host| self.hosts.has(&host.to_ascii_lowercase()))
    }

    /// Checks whether a request contains the token, in a cookie or as a bearer token.
    pub fn is_known(&self, headers: &HeaderMap) -> bool {
        let bearer = headers.get_all(AUTHORIZATION).iter().filter_map(|value| {
            let (scheme, text) = value.to_str().ok()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(text.trim())
        });
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let cookies = cookies.flat_map(|line| line.split(';')).take(COOKIES_MAX);
        let cookies = cookies.filter_map(|cookie| {
            let (name, value) = cookie.trim().split_once('=')?;
            (name == self.cookie).then_some(value)
        });
        bearer.take(1).chain(cookies).any(|text| self.token.is(text.as_bytes()))
    }
}

impl Hosts {
    fn has(&self, host: &str) -> bool {
        match self {
            // A Unix socket has no port. curl therefore sends the host name without a port, but
            // other clients may add a port.
            Hosts::Names(names) if matches!(names.as_slice(), [only] if only == "localhost") => {
                host.split(':').next() == Some("localhost")
            }
            Hosts::Names(names) => names.iter().any(|name| name.eq_ignore_ascii_case(host)),
            Hosts::NamesAndNumbers(names, port) => {
                let is_number =
                    host.parse::<SocketAddr>().is_ok_and(|address| address.port() == *port);
                let is_default = *port == 80 && host.parse::<IpAddr>().is_ok();
                is_number || is_default || names.iter().any(|name| name.eq_ignore_ascii_case(host))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in all {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn access(address: &str) -> Access {
        Access::of_address(Token::of("secret"), address.parse().unwrap(), "db1.example")
    }

    #[test]
    fn a_token_is_random_and_only_itself() {
        let (one, two) = (Token::random().unwrap(), Token::random().unwrap());
        assert!(one.is(one.text().as_bytes()) && !one.is(two.text().as_bytes()));
        assert_eq!(one.text().len(), 64);
        assert!(!one.is(b"") && !one.is(&one.text().as_bytes()[1..]));
        assert!(!Token::of(&"x".repeat(TEXT_BYTES_MAX + 1)).is(&[b'x'; TEXT_BYTES_MAX + 1]));
        assert!(!format!("{one:?}").contains(one.text()));
    }

    #[test]
    fn a_cookie_or_a_bearer_with_the_token_is_known_and_nothing_else() {
        let access = access("127.0.0.1:80");
        let known = |all: &[(&'static str, &str)]| access.is_known(&headers(all));
        assert!(known(&[("cookie", "a=b; halfpower-80=secret")]));
        assert!(known(&[("cookie", "a=b"), ("cookie", "halfpower-80=secret")]));
        assert!(known(&[("authorization", "bearer secret")]));
        for wrong in [
            ("cookie", "halfpower-81=secret"),
            ("cookie", "halfpower-80=secret2"),
            ("cookie", "halfpower-80=secre"),
            ("cookie", "halfpower-80"),
            ("cookie", "secret"),
            ("authorization", "secret"),
            ("authorization", "Basic secret"),
        ] {
            assert!(!known(&[wrong]), "{wrong:?}");
        }
        assert!(!known(&[]));
        let many = "a=b; ".repeat(COOKIES_MAX) + "halfpower-80=secret";
        assert!(!known(&[("cookie", &many)]), "the number of examined cookies is limited");
        let cookie = access.cookie().unwrap();
        let cookie = cookie.to_str().unwrap();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"));
    }

    #[test]
    fn only_names_of_this_server_are_taken_as_its_host() {
        let is_for = |access: &Access, host: &str| access.is_for_us(&headers(&[("host", host)]));
        let local = access("127.0.0.1:7752");
        for host in ["127.0.0.1:7752", "localhost:7752", "LOCALHOST:7752"] {
            assert!(is_for(&local, host), "{host}");
        }
        for host in [
            "evil.example:7752",
            "127.0.0.1",
            "localhost",
            "127.0.0.1:7753",
            "localhost.evil.example:7752",
            "127.0.0.1:7752.evil.example",
            "evil.example#localhost:7752",
            "db1.example:7752",
            "10.0.0.1:7752",
            "",
        ] {
            assert!(!is_for(&local, host), "{host}");
        }
        assert!(!local.is_for_us(&HeaderMap::new()));
        let twice = headers(&[("host", "localhost:7752"), ("host", "localhost:7752")]);
        assert!(!local.is_for_us(&twice));
        let everywhere = access("0.0.0.0:7752");
        assert!(is_for(&everywhere, "10.0.0.1:7752") && is_for(&everywhere, "db1.example:7752"));
        assert!(!is_for(&everywhere, "evil.example:7752") && !is_for(&everywhere, "10.0.0.1:1"));
        let socket = Access::of_socket(Token::of("secret"));
        assert!(is_for(&socket, "localhost") && is_for(&socket, "localhost:80"));
        assert!(!is_for(&socket, "localhost.evil.example") && !is_for(&socket, "evil.example"));
    }
}
