//! Determines which bytes of a response's body are payload, and which belong to the framing.
//!
//! Source: RFC 9112, sections 6.3 (length of a body) and 7.1 (chunks). This module does no I/O. The
//! blocking connection and the protocol of the I/O engine both use it.

use crate::network::s3::http::{Flaw, Framing, LINE_END, TRAILERS_MAX, chunk_bytes};

/// What the next bytes of a body are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Between 1 byte and this many bytes of payload. Pass the number of bytes that were received
    /// to [`Body::moved`].
    Payload(u64),
    /// A line. Pass the line, including its end, to [`Body::line`].
    Line,
    /// The body is complete.
    End,
}

/// The position in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Body {
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// This many bytes of the body have not arrived yet.
    Length(u64),
    UntilClosed,
    ChunkSize,
    /// This many bytes of the chunk have not arrived yet.
    Chunk(u64),
    ChunkEnd,
    /// This many fields of the trailer were read.
    Trailer(usize),
    End,
}

impl Body {
    /// Returns the position at the beginning of a body.
    pub(super) fn new(framing: Framing) -> Body {
        let state = match framing {
            Framing::Length(0) => State::End,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::ChunkSize,
            Framing::UntilClosed => State::UntilClosed,
        };
        Body { state }
    }

    /// Returns what the next bytes are.
    pub(super) fn next(&self) -> Next {
        match self.state {
            State::Length(left) | State::Chunk(left) => Next::Payload(left),
            State::UntilClosed => Next::Payload(u64::MAX),
            State::ChunkSize | State::ChunkEnd | State::Trailer(_) => Next::Line,
            State::End => Next::End,
        }
    }

    /// Advances by `count` bytes of payload.
    pub(super) fn moved(&mut self, count: u64) {
        self.state = match self.state {
            State::Length(left) if left > count => State::Length(left - count),
            State::Length(_) => State::End,
            State::Chunk(left) if left > count => State::Chunk(left - count),
            State::Chunk(_) => State::ChunkEnd,
            other => other,
        };
    }

    /// Advances past a line, which is a part of the chunked encoding.
    pub(super) fn line(&mut self, line: &[u8]) -> Result<(), Flaw> {
        self.state = match self.state {
            State::ChunkSize => match chunk_bytes(line)? {
                0 => State::Trailer(0),
                bytes => State::Chunk(bytes),
            },
            State::ChunkEnd if line == LINE_END => State::ChunkSize,
            State::ChunkEnd => return Err("sent a chunk that is longer than announced"),
            State::Trailer(_) if line == LINE_END => State::End,
            State::Trailer(TRAILERS_MAX) => return Err("sent a trailer with too many fields"),
            State::Trailer(count) => State::Trailer(count + 1),
            other => other,
        };
        Ok(())
    }

    /// Returns whether the body ends when the server closes the connection.
    pub(super) fn ends_with_connection(&self) -> bool {
        self.state == State::UntilClosed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_with_length_ends_after_it() {
        let mut body = Body::new(Framing::Length(10));
        body.moved(4);
        assert_eq!(body.next(), Next::Payload(6));
        body.moved(6);
        assert_eq!(body.next(), Next::End);
        assert_eq!(Body::new(Framing::Length(0)).next(), Next::End);
    }

    #[test]
    fn a_chunked_body_ends_with_its_trailer() {
        let mut body = Body::new(Framing::Chunked);
        assert_eq!(body.next(), Next::Line);
        body.line(b"A;x=y\r\n").unwrap();
        assert_eq!(body.next(), Next::Payload(10));
        body.moved(10);
        assert_eq!(body.next(), Next::Line);
        body.line(b"\r\n").unwrap();
        body.line(b"0\r\n").unwrap();
        body.line(b"Expires: never\r\n").unwrap();
        assert_eq!(body.next(), Next::Line);
        body.line(b"\r\n").unwrap();
        assert_eq!(body.next(), Next::End);
    }

    #[test]
    fn chunks_that_do_not_end_where_they_say_are_errors() {
        let mut body = Body::new(Framing::Chunked);
        body.line(b"1\r\n").unwrap();
        body.moved(1);
        assert!(body.line(b"x\r\n").is_err());
        let mut body = Body::new(Framing::Chunked);
        body.line(b"0\r\n").unwrap();
        let endless = (0..=TRAILERS_MAX).try_for_each(|_| body.line(b"a: b\r\n"));
        assert!(endless.is_err(), "a trailer without end");
    }
}
