//! Signs and verifies messages. A signature is the first 16 bytes of HMAC-SHA256 with the session
//! key.
//!
//! Source: MS-SMB2, sections 3.1.4.1 and 3.1.5.1, for the dialects 2.0.2 and 2.1. A signature
//! covers the whole message except the transport header. While the signature is computed, its field
//! contains zeros.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::message::{AT_FLAGS, AT_SIGNATURE, FLAG_SIGNED, HEADER_BYTES, TRANSPORT_BYTES};

/// Signs the client's messages, and verifies the server's messages.
pub(super) struct Signer {
    /// The HMAC, initialized with the key. Each message uses a copy.
    keyed: Hmac<Sha256>,
}

/// Verifies one message, which is passed in several parts.
pub(super) struct Verifier {
    mac: Hmac<Sha256>,
    signature: [u8; 16],
}

impl fmt::Debug for Signer {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}

impl fmt::Debug for Verifier {
    /// Omits the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier")
    }
}

impl Signer {
    pub(super) fn new(session_key: &[u8; 16]) -> Signer {
        let keyed = Hmac::new_from_slice(session_key).expect("HMAC takes keys of any length");
        Signer { keyed }
    }

    /// Signs a message that consists of `message` and `payload`. `message` begins with the
    /// transport header.
    pub(super) fn sign(&self, message: &mut [u8], payload: &[u8]) {
        let message = &mut message[TRANSPORT_BYTES..];
        message[AT_FLAGS] |= FLAG_SIGNED as u8;
        let mut mac = self.keyed.clone();
        mac.update(message);
        mac.update(payload);
        let hash = mac.finalize().into_bytes();
        message[AT_SIGNATURE..HEADER_BYTES].copy_from_slice(&hash[..16]);
    }

    /// Begins to verify a message. The caller passes the rest of the message to the verifier.
    pub(super) fn verifier(&self, header: &[u8; HEADER_BYTES]) -> Verifier {
        let mut mac = self.keyed.clone();
        let (covered, signature) = header.split_at(AT_SIGNATURE);
        mac.update(covered);
        mac.update(&[0; 16]);
        Verifier { mac, signature: signature.try_into().expect("16 bytes") }
    }
}

impl Verifier {
    /// Adds the next part of the message to the hash.
    pub(super) fn update(&mut self, part: &[u8]) {
        self.mac.update(part);
    }

    /// Returns whether the signature is right.
    pub(super) fn matches(self) -> bool {
        self.mac.verify_truncated_left(&self.signature).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(byte).collect()
    }

    #[test]
    fn the_hash_is_that_of_the_specification_of_hmac() {
        // This is test case 2 of RFC 4231 (section 4.3). Its key is padded with zeros to 16 bytes,
        // which does not change the HMAC.
        let mut key = [0; 16];
        key[..4].copy_from_slice(b"Jefe");
        let mut mac = Signer::new(&key).keyed;
        mac.update(b"what do ya want for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(mac.finalize().into_bytes().to_vec(), hex(expected));
    }

    #[test]
    fn what_was_signed_in_parts_is_verified_in_other_parts() {
        let signer = Signer::new(b"0123456789abcdef");
        let mut message: Vec<u8> =
            (0..TRANSPORT_BYTES + HEADER_BYTES + 9).map(|n| n as u8).collect();
        message[TRANSPORT_BYTES + AT_SIGNATURE..][..16].fill(0);
        signer.sign(&mut message, b"payload");
        let header: [u8; HEADER_BYTES] =
            message[TRANSPORT_BYTES..][..HEADER_BYTES].try_into().unwrap();
        assert_ne!(header[AT_FLAGS] & 8, 0);
        let verify = |header: &[u8; HEADER_BYTES], payload: &[u8]| {
            let mut verifier = signer.verifier(header);
            verifier.update(&message[TRANSPORT_BYTES + HEADER_BYTES..]);
            payload.chunks(3).for_each(|part| verifier.update(part));
            verifier.matches()
        };
        assert!(verify(&header, b"payload"));
        assert!(!verify(&header, b"Payload"));
        let mut other = header;
        other[30] ^= 1;
        assert!(!verify(&other, b"payload"));
        let mut other = header;
        other[63] ^= 1;
        assert!(!verify(&other, b"payload"));
    }
}
