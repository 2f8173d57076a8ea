//! The messages between a peer and its client: JSON with the version of the protocol.
//!
//! An unknown field or a number out of range is an error. The version is checked first. If the
//! versions differ, the error contains both of them.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::machine::Host;
use crate::peer::counters::Counters;

/// Version of the protocol.
pub const VERSION: u32 = 1;
/// Maximum length of a request (bytes).
pub const REQUEST_BYTES_MAX: usize = 4096;
/// Maximum length of a text from the other side that is shown to the user (characters).
const TEXT_CHARS_MAX: usize = 1000;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Asks for the version and the machine of the server.
    Hello {},
    /// Asks for the current counters of the server's machine.
    Counters {},
    /// Asks how fast the server itself reads a file.
    ReadTrial(ReadTrial),
}

/// The parameters of a short measurement in which the server reads a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadTrial {
    /// Path of the file below the server's folder.
    pub path: String,
    /// Request size (bytes).
    pub request_bytes: u32,
    /// Number of outstanding requests (queue depth).
    pub depth: u32,
    /// Whether the order of requests is random instead of sequential.
    pub random: bool,
    /// Whether to use direct I/O if the file system supports it.
    pub direct: bool,
    /// Duration of the measurement (ms).
    pub milliseconds: u32,
}

/// An answer of a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    /// The version and the machine of the server.
    Hello(Box<Greeting>),
    /// The counters of the server's machine.
    Counters(Counters),
    /// The result of a read trial.
    ReadTrial(ReadTrialResult),
    /// The server refuses the request. The text contains the reason and the remedy.
    Refused(String),
}

/// The version and the machine of a server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Greeting {
    /// Version of halfpower on the server.
    pub halfpower: String,
    /// The server's machine.
    pub host: Host,
}

/// The result of a server's read trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadTrialResult {
    /// Number of bytes read.
    pub bytes: u64,
    /// Number of completed requests.
    pub requests: u64,
    /// Duration of the measurement (ns).
    pub elapsed_ns: u64,
    /// Whether the server used direct I/O.
    pub direct: bool,
    /// Name of the I/O engine.
    pub ioengine: String,
    /// Whether the reads reached the server's rate limit (`--max-rate`).
    pub limited: bool,
}

/// A message with the version of the protocol.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<T> {
    version: u32,
    message: T,
}

/// The version of a message. All other fields are ignored, because another version may have other
/// fields.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Encodes a message as JSON.
pub fn encode<T: Serialize>(message: T) -> Vec<u8> {
    // Messages are plain data with text keys, so the conversion to JSON cannot fail.
    serde_json::to_vec(&Envelope { version: VERSION, message }).unwrap_or_default()
}

/// Decodes a message.
///
/// # Errors
/// The message is invalid or has another version of the protocol. The error contains the remedy.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match serde_json::from_slice::<Versioned>(bytes) {
        Ok(Versioned { version }) if version != VERSION => {
            return Err(format!(
                "the other side uses version {version} of the protocol, but this program uses \
                 version {VERSION}; use the same version of halfpower on client and server"
            ));
        }
        _ => {}
    }
    let read = serde_json::from_slice::<Envelope<T>>(bytes).map_err(|error| {
        let error = shortened(&error.to_string());
        format!("the message is invalid ({error}); use the same version of halfpower on both sides")
    });
    Ok(read?.message)
}

/// Prepares a text from the other side for display: replaces control characters with spaces, and
/// shortens the text.
pub fn shortened(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(TEXT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_was_written_is_read_back() {
        let trial = ReadTrial {
            path: "a/b".to_owned(),
            request_bytes: 4096,
            depth: 8,
            random: true,
            direct: true,
            milliseconds: 500,
        };
        for request in [Request::Hello {}, Request::Counters {}, Request::ReadTrial(trial)] {
            let bytes = encode(&request);
            assert!(bytes.len() < REQUEST_BYTES_MAX);
            assert_eq!(decode::<Request>(&bytes), Ok(request));
        }
    }

    #[test]
    fn another_version_is_named_even_if_the_rest_is_unknown() {
        let error = decode::<Request>(br#"{"version": 7, "message": {"dance": {}}}"#).unwrap_err();
        assert!(error.contains("version 7") && error.contains("same version of"), "{error}");
    }

    #[test]
    fn unknown_requests_fields_and_numbers_are_errors() {
        let trial = |fields: &str| format!(r#"{{"version": 1, "message": {fields}}}"#);
        for text in [
            "",
            "\u{1b}[2J",
            "[]",
            "{}",
            &"[".repeat(4096),
            &trial("\"hello\""),
            &trial(r#"{"dance": {}}"#),
            &trial(r#"{"hello": {"more": 1}}"#),
            &trial(r#"{"read_trial": {"path": "x"}}"#),
            &trial(
                r#"{"read_trial": {"path": "x", "request_bytes": -1, "depth": 1, "random": false,
                    "direct": false, "milliseconds": 1}}"#,
            ),
        ] {
            let error = decode::<Request>(text.as_bytes()).unwrap_err();
            assert!(error.contains(';') && !error.contains(char::is_control), "{error}");
        }
    }
}
