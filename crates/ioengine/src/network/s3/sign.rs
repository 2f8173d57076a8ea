//! Signs requests with AWS Signature Version 4, and returns the header `Authorization`.
//!
//! Source: Amazon S3 API Reference, "Signature Calculations for the Authorization Header:
//! Transferring Payload in a Single Chunk (AWS Signature Version 4)". A signature covers the
//! method, the path, the query, the headers that the caller passes, and the hash of the payload.
//! The signing key is derived once a day.

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

use crate::network::Credentials;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The service in the scope of a signature. The scope is `DAY/REGION/s3/aws4_request`.
const SERVICE: &str = "s3";
/// The last part of the scope of a signature.
const TERMINATOR: &str = "aws4_request";
/// The length of the date "YYYYMMDD", with which a time stamp begins (bytes).
const DAY_BYTES: usize = 8;

/// Signs requests with one access key.
pub(super) struct Signer {
    credentials: Credentials,
    region: String,
    /// The last signing key, and the day for which it is valid ("YYYYMMDD"). None before the first
    /// signature.
    key: Option<(String, [u8; 32])>,
}

impl std::fmt::Debug for Signer {
    /// Omits the secret and the signing key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signer {{ {:?}, region: {:?} }}", self.credentials, self.region)
    }
}

/// The parts of a request that are signed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signed<'a> {
    /// The method, such as "GET".
    pub method: &'a str,
    /// The path, encoded by [`encoded`].
    pub path: &'a str,
    /// The query without the question mark: percent-encoded `name=value` pairs, sorted by name.
    pub query: &'a str,
    /// Name (in lower case) and value of each signed header, sorted by name. `x-amz-date` must be
    /// present.
    pub headers: &'a [(&'a str, &'a str)],
    /// The value of `x-amz-content-sha256`.
    pub payload_hash: &'a str,
    /// The value of `x-amz-date`.
    pub time: &'a str,
}

impl Signer {
    /// Creates a signer for a region, such as "us-east-1".
    pub(super) fn new(credentials: Credentials, region: String) -> Signer {
        Signer { credentials, region, key: None }
    }

    /// Returns the value of the header `Authorization`.
    pub(super) fn authorization(&mut self, signed: &Signed) -> String {
        let day = signed.time.get(..DAY_BYTES).unwrap_or_default();
        let scope = format!("{day}/{}/{SERVICE}/{TERMINATOR}", self.region);
        let canonical = hex(&Sha256::digest(signed.canonical_request()));
        let to_sign = format!("{ALGORITHM}\n{}\n{scope}\n{canonical}", signed.time);
        let signature = hex(&hmac(&self.key(day), to_sign.as_bytes()));
        let (user, names) = (&self.credentials.user, signed.header_names());
        format!("{ALGORITHM} Credential={user}/{scope},SignedHeaders={names},Signature={signature}")
    }

    /// Returns the signing key of a day. The last key is cached.
    fn key(&mut self, day: &str) -> [u8; 32] {
        match &self.key {
            Some((known, key)) if known == day => *key,
            _ => {
                let secret = format!("AWS4{}", self.credentials.password);
                let dated = hmac(secret.as_bytes(), day.as_bytes());
                let regional = hmac(&dated, self.region.as_bytes());
                let key = hmac(&hmac(&regional, SERVICE.as_bytes()), TERMINATOR.as_bytes());
                self.key = Some((day.to_owned(), key));
                key
            }
        }
    }
}

impl Signed<'_> {
    /// Returns the text whose hash is signed.
    fn canonical_request(&self) -> String {
        let Signed { method, path, query, .. } = *self;
        let mut text = format!("{method}\n{path}\n{query}\n");
        for (name, value) in self.headers {
            text.extend([name, ":", value, "\n"]);
        }
        text + "\n" + &self.header_names() + "\n" + self.payload_hash
    }

    fn header_names(&self) -> String {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| *name).collect();
        names.join(";")
    }
}

/// Returns the SHA-256 hash of a payload as hexadecimal digits.
pub(super) fn payload_hash(payload: &[u8]) -> String {
    hex(&Sha256::digest(payload))
}

fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text);
    mac.finalize().into_bytes().into()
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Percent-encodes text for a path or a query ("UriEncode()" in the API Reference). Letters,
/// digits, '-', '.', '_' and '~' are kept. '/' is kept if `keeps_slashes` is set.
pub(in crate::network) fn encoded(text: &str, keeps_slashes: bool) -> String {
    let mut result = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                result.push(char::from(byte));
            }
            b'/' if keeps_slashes => result.push('/'),
            _ => result.push_str(&format!("%{byte:02X}")),
        }
    }
    result
}

/// Formats a time (s since 1970, UTC) as a time stamp such as "20130524T000000Z". The year must not
/// exceed 9999.
pub(super) fn time_stamp(unix_s: i64) -> String {
    let (days, second) = (unix_s.div_euclid(86_400), unix_s.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Converts days since 1970 into year, month and day of the month in the Gregorian calendar.
fn date(days: i64) -> (i64, i64, i64) {
    // Days are counted from 1 March of the year 0, so that the leap day is the last day of a year.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let leap_days = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The SHA-256 hash of an empty payload.
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const HOST: (&str, &str) = ("host", "examplebucket.s3.amazonaws.com");
    const TIME: &str = "20130524T000000Z";
    const DATE: (&str, &str) = ("x-amz-date", TIME);

    /// Returns a signer with the access key of the examples in the S3 API Reference.
    fn example() -> Signer {
        let (user, password) = ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
        let credentials = Credentials { user: user.to_owned(), password: password.to_owned() };
        Signer::new(credentials, "us-east-1".to_owned())
    }

    #[track_caller]
    fn signs(signed: &Signed, names: &str, signature: &str) {
        let expected = format!(
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders={names},Signature={signature}"
        );
        assert_eq!(example().authorization(signed), expected);
    }

    #[test]
    fn the_example_get_object_of_the_documentation_is_signed() {
        let headers = [HOST, ("range", "bytes=0-9"), ("x-amz-content-sha256", EMPTY), DATE];
        let get = Signed {
            method: "GET",
            path: "/test.txt",
            query: "",
            headers: &headers,
            payload_hash: EMPTY,
            time: TIME,
        };
        assert_eq!(
            payload_hash(get.canonical_request().as_bytes()),
            "7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972"
        );
        let signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        signs(&get, "host;range;x-amz-content-sha256;x-amz-date", signature);
    }

    #[test]
    fn the_example_put_object_of_the_documentation_is_signed() {
        let hash = payload_hash(b"Welcome to Amazon S3.");
        let headers = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            HOST,
            ("x-amz-content-sha256", &hash),
            DATE,
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        let path = encoded("/test$file.text", true);
        assert_eq!(path, "/test%24file.text");
        let put = Signed {
            method: "PUT",
            path: &path,
            query: "",
            headers: &headers,
            payload_hash: &hash,
            time: TIME,
        };
        let signature = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd";
        let names = "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class";
        signs(&put, names, signature);
    }

    #[test]
    fn the_examples_with_queries_of_the_documentation_are_signed() {
        let headers = [HOST, ("x-amz-content-sha256", EMPTY), DATE];
        let names = "host;x-amz-content-sha256;x-amz-date";
        let get = |query| Signed {
            method: "GET",
            path: "/",
            query,
            headers: &headers,
            payload_hash: EMPTY,
            time: TIME,
        };
        let lifecycle = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543";
        signs(&get("lifecycle="), names, lifecycle);
        let list = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        signs(&get("max-keys=2&prefix=J"), names, list);
    }

    #[test]
    fn a_signing_key_lasts_a_day() {
        let mut signer = example();
        let (today, again) = (signer.key("20130524"), signer.key("20130524"));
        assert_eq!(today, again);
        assert_ne!(signer.key("20130525"), today);
        assert_eq!(signer.key("20130524"), today);
        assert!(!format!("{signer:?}").contains("bPxRfiCY"), "no secret in messages");
    }

    #[test]
    fn text_is_encoded_byte_by_byte() {
        assert_eq!(encoded("a b/ü~", true), "a%20b/%C3%BC~");
        assert_eq!(encoded("a+b/=", false), "a%2Bb%2F%3D");
    }

    #[test]
    fn time_stamps_follow_the_calendar() {
        assert_eq!(time_stamp(0), "19700101T000000Z");
        assert_eq!(time_stamp(1_369_353_600), TIME);
        assert_eq!(time_stamp(951_782_400 + 86_399), "20000229T235959Z");
        assert_eq!(time_stamp(1_709_164_800), "20240229T000000Z");
        assert_eq!(time_stamp(4_107_542_400), "21000301T000000Z");
    }
}
