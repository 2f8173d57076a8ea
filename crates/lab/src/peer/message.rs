//! The messages between a peer and its client: JSON with the version of the protocol.
//!
//! Both sides are strict: an unknown field or a number out of range is an error, and the version is
//! checked before anything else, so that the error names the versions if client and server are of
//! different releases.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::machine::Host;
use crate::peer::counters::Counters;

/// Version of the protocol.
pub const VERSION: u32 = 1;
/// Maximum length of a request (bytes).
pub const REQUEST_BYTES_MAX: usize = 4096;
/// Maximum length of a text in a message that is shown to the user (characters).
const TEXT_CHARS_MAX: usize = 1000;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Who the server is.
    Hello {},
    /// The present counters of the server's machine.
    Counters {},
    /// How fast the server itself reads a file.
    ReadTrial(ReadTrial),
}

/// A short measurement of reads of a file by the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadTrial {
    /// Path of the file below the server's folder.
    pub path: String,
    /// Request size (bytes).
    pub request_bytes: u32,
    /// Outstanding requests.
    pub depth: u32,
    /// Random instead of sequential order.
    pub random: bool,
    /// Direct I/O if the file system offers it.
    pub direct: bool,
    /// Length (ms).
    pub milliseconds: u32,
}

/// What a server answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    /// Who the server is.
    Hello(Box<Greeting>),
    /// The counters of the server's machine.
    Counters(Counters),
    /// The result of a read trial.
    ReadTrial(ReadTrialResult),
    /// Why the server refuses the request, with the remedy.
    Refused(String),
}

/// Who a server is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Greeting {
    /// Version of the server's halfpower.
    pub halfpower: String,
    /// The server's machine.
    pub host: Host,
}

/// The result of a server's read trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadTrialResult {
    /// Bytes read.
    pub bytes: u64,
    /// Requests completed.
    pub requests: u64,
    /// Length of the measurement (ns).
    pub elapsed_ns: u64,
    /// Whether the reads were direct.
    pub direct: bool,
    /// The I/O engine.
    pub ioengine: String,
    /// Whether the server's limit (`--max-rate`) determined the rate.
    pub limited: bool,
}

/// A message with the version of the protocol.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<T> {
    version: u32,
    message: T,
}

/// Only the version of a message, whose other fields may be unknown.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// A message as bytes.
pub fn encode<T: Serialize>(message: T) -> Vec<u8> {
    // Plain data with text keys always has a JSON form.
    serde_json::to_vec(&Envelope { version: VERSION, message }).unwrap_or_default()
}

/// Reads a message.
///
/// # Errors
/// Another version of the protocol, or no valid message; with the remedy.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match serde_json::from_slice::<Versioned>(bytes) {
        Ok(Versioned { version }) if version != VERSION => {
            return Err(format!(
                "the other side speaks version {version} of the protocol, this halfpower version \
                 {VERSION}; use the same halfpower on client and server"
            ));
        }
        _ => {}
    }
    let read = serde_json::from_slice::<Envelope<T>>(bytes).map_err(|error| {
        let error = shortened(&error.to_string());
        format!("not a message of halfpower peer ({error}); use the same halfpower on both sides")
    });
    Ok(read?.message)
}

/// A text from the other side for a message: without control characters, and shortened.
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
        assert!(error.contains("version 7") && error.contains("same halfpower"), "{error}");
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
