//! Addresses of network targets, such as `nbd://host:10809/export?timeout=5`.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// The default time limit for an answer of the server (s).
const TIMEOUT_S: u64 = 30;

/// The protocol of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Network Block Device.
    Nbd,
    /// Network File System, version 4.1.
    Nfs,
    /// Internet SCSI.
    Iscsi,
    /// Server Message Block, version 2.1.
    Smb,
    /// Simple Storage Service over HTTP.
    S3,
}

impl Scheme {
    /// All protocols.
    pub const ALL: [Scheme; 5] = [Scheme::Nbd, Scheme::Nfs, Scheme::Iscsi, Scheme::Smb, Scheme::S3];

    /// Returns the prefix of addresses of this protocol, without "://".
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Nbd => "nbd",
            Scheme::Nfs => "nfs",
            Scheme::Iscsi => "iscsi",
            Scheme::Smb => "smb",
            Scheme::S3 => "s3",
        }
    }

    /// Returns the default TCP port of servers.
    pub fn port(self) -> u16 {
        match self {
            Scheme::Nbd => 10_809,
            Scheme::Nfs => 2049,
            Scheme::Iscsi => 3260,
            Scheme::Smb => 445,
            Scheme::S3 => 80,
        }
    }

    /// Returns the syntax of an address.
    pub fn form(self) -> &'static str {
        match self {
            Scheme::Nbd => "nbd://HOST[:PORT]/[EXPORT]",
            Scheme::Nfs => "nfs://HOST[:PORT]/PATH/FILE",
            Scheme::Iscsi => "iscsi://[USER@]HOST[:PORT]/TARGET-NAME/LUN",
            Scheme::Smb => "smb://[USER@]HOST[:PORT]/SHARE/PATH/FILE",
            Scheme::S3 => "s3://HOST[:PORT]/BUCKET/KEY",
        }
    }
}

/// The address of a network target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The protocol.
    pub scheme: Scheme,
    /// The user name. None if the address contains none.
    pub user: Option<String>,
    /// The name or IP address of the server.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The path of the target on the server, decoded and without the leading slash.
    pub path: String,
    /// The maximum time to wait for an answer of the server.
    pub timeout: Duration,
    /// The region of an S3 bucket. None if the address contains no region.
    pub region: Option<String>,
    /// The address as it was written.
    text: String,
}

impl Address {
    /// Returns true if `name` is the address of a network target, such as `nbd://host/export`.
    pub fn is_network(name: &Path) -> bool {
        let name = name.to_string_lossy();
        let scheme = name.split_once("://").map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| Scheme::ALL.iter().any(|known| known.name() == scheme))
    }

    /// Returns host and port, for example `host:10809` or `[::1]:10809`.
    pub fn server(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Returns protocol, host, port and path, which identify the target. User and options are
    /// omitted.
    pub(crate) fn place(&self) -> (&'static str, String, u16, &str) {
        (self.scheme.name(), self.host.to_ascii_lowercase(), self.port, &self.path)
    }

    /// Splits the path at the first slash.
    pub fn first_and_rest(&self) -> (&str, &str) {
        self.path.split_once('/').unwrap_or((&self.path, ""))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Address, Error> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let found = Scheme::ALL.into_iter().find(|known| known.name() == scheme);
        let Some(scheme) = found else {
            let names: Vec<&str> = Scheme::ALL.into_iter().map(Scheme::form).collect();
            // The message does not contain the whole text, because the text may contain a password.
            let what = match scheme {
                "" => "this is not an address of a network target".to_owned(),
                scheme => format!("'{scheme}://' is not a known protocol"),
            };
            return Err(Error::new(ErrorKind::Usage, what)
                .with_remedy(format!("one of {}", names.join(", "))));
        };
        if may_have_password(rest) {
            let what = format!(
                "a {}:// address must not contain a password, and a ':' after the server must \
                 be followed by a port",
                scheme.name()
            );
            return Err(Error::new(ErrorKind::Usage, what).with_remedy(format!(
                "use the form {}, with %40 for '@' in a path, and set a password in the \
                 environment variable HALFPOWER_PASSWORD",
                scheme.form()
            )));
        }
        let shown = text.split('?').next().unwrap_or_default();
        let wrong = |what: String| {
            Error::new(ErrorKind::Usage, format!("{shown}: {what}"))
                .with_remedy(format!("use the form {}", scheme.form()))
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, server) = match authority.rsplit_once('@') {
            Some((user, server)) => (Some(user), server),
            None => (None, authority),
        };
        let (host, port) = host_and_port(server, scheme.port()).map_err(wrong)?;
        let options = Options::parse(query, scheme).map_err(wrong)?;
        let decoded = |part: &str| decode(part).map_err(wrong);
        Ok(Address {
            scheme,
            user: user.map(decoded).transpose()?,
            host,
            port,
            path: decoded(path)?,
            timeout: options.timeout,
            region: options.region,
            text: text.to_owned(),
        })
    }
}

/// Returns true if `rest`, the text after "://", may contain a password. That is the case if the
/// text after a ':' is not a port, or if an '@' follows a ':'. The whole text is searched for '@',
/// because a password may itself contain '/', '?' and '@'.
fn may_have_password(rest: &str) -> bool {
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let server = authority.rsplit('@').next().unwrap_or_default();
    // An IPv6 address is in brackets, so its colons are skipped.
    let behind = server.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let colon_and_port = match behind {
        Some((_, behind)) => behind,
        None => server.find(':').map_or("", |at| &server[at..]),
    };
    let user = &authority[..authority.len() - server.len()];
    let Some(port) = colon_and_port.strip_prefix(':') else { return user.contains(':') };
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    let path = &rest[authority.len()..];
    user.contains(':') || !is_port || path.contains('@')
}

fn host_and_port(server: &str, default: u16) -> Result<(String, u16), String> {
    let (host, port) = match server.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("the '[' in the address has no ']'")?;
            (host, after.strip_prefix(':'))
        }
        None => match server.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (server, None),
        },
    };
    if host.is_empty() {
        return Err("the server name is missing".to_owned());
    }
    let port = port.map_or(Ok(default), |port| {
        port.parse().ok().filter(|port| *port > 0).ok_or(format!("'{port}' is not a port number"))
    })?;
    Ok((host.to_owned(), port))
}

/// The options after the question mark of an address.
struct Options {
    timeout: Duration,
    region: Option<String>,
}

impl Options {
    fn parse(query: &str, scheme: Scheme) -> Result<Options, String> {
        let mut options = Options { timeout: Duration::from_secs(TIMEOUT_S), region: None };
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("timeout", seconds)) => options.timeout = timeout(seconds)?,
                Some(("region", name)) if scheme == Scheme::S3 => {
                    options.region = Some(region(name)?);
                }
                // The message does not contain the value, because the value may be a password.
                Some((name, _)) => {
                    return Err(format!("unknown option '{name}'; {}", known(scheme)));
                }
                None => return Err(format!("an option has no value; {}", known(scheme))),
            }
        }
        Ok(options)
    }
}

/// Returns the part of an error message that lists the valid options of a protocol.
fn known(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::S3 => "timeout=SECONDS and region=NAME are the valid options",
        _ => "timeout=SECONDS is the only valid option",
    }
}

fn timeout(seconds: &str) -> Result<Duration, String> {
    let value = seconds.parse().ok().filter(|value| (1..=3600).contains(value));
    let wrong = format!("'{seconds}' is not a time limit; timeout=SECONDS accepts 1 to 3600");
    value.map(Duration::from_secs).ok_or(wrong)
}

fn region(name: &str) -> Result<String, String> {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(usual) {
        return Err(format!("'{name}' is not a region; an example is region=us-east-1"));
    }
    Ok(name.to_owned())
}

/// Decodes percent-encoded text (RFC 3986, section 2.1). For example, `%20` is a space.
fn decode(text: &str) -> Result<String, String> {
    let wrong = || format!("'{text}' is not valid percent-encoded text");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
            return Err(wrong());
        };
        bytes.push((high * 16 + low) as u8);
    }
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Address {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refused(text: &str) -> String {
        text.parse::<Address>().expect_err("the address is refused").to_string()
    }

    #[test]
    fn an_address_has_server_port_and_path() {
        let address = parsed("nbd://server/disk%201/a");
        assert_eq!((&*address.host, address.port), ("server", 10_809));
        assert_eq!((&*address.path, address.first_and_rest()), ("disk 1/a", ("disk 1", "a")));
        assert_eq!(address.to_string(), "nbd://server/disk%201/a");
        let address = parsed("nbd://anna@[::1]:99/x?timeout=5");
        assert_eq!((&*address.server(), address.user.as_deref()), ("[::1]:99", Some("anna")));
        assert_eq!(address.timeout, Duration::from_secs(5));
        assert!(Address::is_network(Path::new("nbd://h/")));
        assert!(!Address::is_network(Path::new("nbd:/h")) && !Address::is_network(Path::new("x")));
    }

    #[test]
    fn addresses_of_one_target_have_the_same_place() {
        let place = |text: &str| {
            let address = parsed(text);
            let (scheme, host, port, path) = address.place();
            (scheme, host, port, path.to_owned())
        };
        for same in ["nbd://H:10809/x", "nbd://h/x?timeout=7", "nbd://anna@h/%78"] {
            assert_eq!(place(same), place("nbd://h/x"), "{same}");
        }
        for other in ["nbd://h/y", "nbd://g/x", "nbd://h:1/x", "nfs://h:10809/x"] {
            assert_ne!(place(other), place("nbd://h/x"), "{other}");
        }
    }

    #[test]
    fn wrong_addresses_are_refused_with_the_form() {
        assert!(refused("nbd:///x").contains("name is missing; use the form nbd://HOST"));
        assert!(refused("nbd://h:0/x").contains("must be followed by a port"));
        assert!(refused("nbd://h/%zz").contains("percent"));
        assert!(refused("nbd://h/x?retries=1").contains("unknown option 'retries'"));
        assert!(refused("nbd://h/x?region=a").contains("unknown option 'region'; timeout="));
        assert!(refused("s3://h/b/k?timeout=0").contains("'0' is not a time limit"));
        assert!(refused("s3://h/b/k?region=a%0d%0a").contains("is not a region"));
        assert!(refused("gopher://h/x").contains("nbd://HOST"));
    }

    #[test]
    fn an_address_of_s3_may_name_a_region() {
        let address = parsed("s3://h/bucket/a/b?region=eu-west-1&timeout=5");
        assert_eq!(address.region.as_deref(), Some("eu-west-1"));
        assert_eq!((address.port, address.first_and_rest()), (80, ("bucket", "a/b")));
        assert_eq!(parsed("s3://h/b/k").region, None);
    }

    #[test]
    fn a_password_in_an_address_is_refused_and_not_repeated() {
        let with_colon = [
            "nbd://anna:secret@h/x",
            "smb://anna:se/secret@h/s/f",
            "smb://anna:se?secret@h/s/f",
            "smb://anna:123/secret@h/s/f",
            "smb://anna:12@secret:445/s/f",
            "nbd://anna:@secret/x",
            "smb://anna:secret/h",
            "nbd://[::1]:secret/x",
        ];
        for text in with_colon {
            let message = refused(text);
            assert!(message.contains("HALFPOWER_PASSWORD"), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
        let others =
            ["nbd://h/x?password=secret", "nbd://h/%zz?password=secret", "http://a:secret@h/x"];
        for text in others.into_iter().chain(["nbd://h/x?secret", "a:secret@h"]) {
            assert!(!refused(text).contains("secret"), "{}", refused(text));
        }
        assert_eq!(parsed("s3://h/b/user@example").path, "b/user@example");
        assert_eq!(parsed("s3://h:9000/b/user%40example").path, "b/user@example");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "((nbd|s3)://)?[ -~]{0,40}") {
            let _ = text.parse::<Address>();
        }
    }
}
