//! A small, strict XML parser for the documents of S3. It returns the elements that have no
//! children, with their text.
//!
//! Source: "Extensible Markup Language (XML) 1.0", sections 2.1 (well-formed documents), 3.1 (tags)
//! and 4.1 (references). The parser accepts elements, attributes, comments, the XML declaration,
//! the five predefined entities and character references. Everything else, such as a CDATA section,
//! is an error, because S3 does not use it.

use std::borrow::Cow;

/// The maximum nesting depth of elements.
const DEPTH_MAX: usize = 32;
/// The maximum length of a character reference without '&' and ';' (bytes), for example of
/// "#x10FFFF".
const REFERENCE_BYTES_MAX: usize = 8;

/// What is wrong with a document. The text completes a sentence that begins with "the server".
const MALFORMED: &str = "sent XML that is not well-formed";

/// An element without children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::network) struct Leaf<'a> {
    /// The name of the enclosing element. Empty if this element is the root.
    pub parent: &'a str,
    pub name: &'a str,
    /// The text of the element. References such as `&amp;` are replaced by their characters.
    pub text: Cow<'a, str>,
}

/// Splits a document into tags and texts.
#[derive(Debug)]
struct Scanner<'a> {
    rest: &'a str,
    /// The names of the open elements, beginning with the root.
    open: Vec<&'a str>,
    /// Whether the root element has ended.
    ended: bool,
}

enum Piece<'a> {
    Start,
    /// A tag such as `<Name/>`.
    Empty(&'a str),
    End(&'a str),
    /// The text between two tags, which still contains references such as `&amp;`.
    Text(&'a str),
}

/// Returns all elements without children, in the order of the document.
///
/// # Errors
/// The document is not well-formed, or contains something that S3 does not use. The error completes
/// a sentence that begins with "the server".
pub(in crate::network) fn leaves(document: &[u8]) -> Result<Vec<Leaf<'_>>, &'static str> {
    let rest = std::str::from_utf8(document).map_err(|_| MALFORMED)?;
    let mut scanner = Scanner { rest, open: Vec::new(), ended: false };
    let mut leaves = Vec::new();
    // The text of the innermost open element so far. None if this element has had a child.
    let mut content = None;
    while let Some(piece) = scanner.next()? {
        match piece {
            Piece::Start => content = Some(""),
            Piece::Text(text) => {
                if let Some(before) = &mut content {
                    // A comment in the middle of a text is not supported.
                    if !before.is_empty() {
                        return Err(MALFORMED);
                    }
                    *before = text;
                }
            }
            Piece::Empty(name) => {
                leaves.push(Leaf { parent: scanner.innermost(), name, text: Cow::Borrowed("") });
                content = None;
            }
            Piece::End(name) => {
                if let Some(text) = content.take() {
                    let text = decoded(text)?;
                    leaves.push(Leaf { parent: scanner.innermost(), name, text });
                }
            }
        }
    }
    Ok(leaves)
}

impl<'a> Scanner<'a> {
    /// Returns the name of the innermost open element.
    fn innermost(&self) -> &'a str {
        self.open.last().copied().unwrap_or("")
    }

    /// Returns the next piece. None at the end of a complete document.
    fn next(&mut self) -> Result<Option<Piece<'a>>, &'static str> {
        loop {
            if self.rest.is_empty() {
                return if self.ended { Ok(None) } else { Err(MALFORMED) };
            }
            if let Some(text) = self.text() {
                if !self.open.is_empty() {
                    return Ok(Some(Piece::Text(text)));
                }
                if !text.trim_matches([' ', '\t', '\r', '\n', '\u{feff}']).is_empty() {
                    return Err(MALFORMED);
                }
            } else if let Some(rest) = self.rest.strip_prefix("<?") {
                self.rest = rest.split_once("?>").ok_or(MALFORMED)?.1;
            } else if let Some(rest) = self.rest.strip_prefix("<!--") {
                self.rest = rest.split_once("-->").ok_or(MALFORMED)?.1;
            } else {
                return self.tag().map(Some);
            }
        }
    }

    /// Returns the text before the next tag. None if there is no text.
    fn text(&mut self) -> Option<&'a str> {
        let (text, rest) = self.rest.split_at(self.rest.find('<').unwrap_or(self.rest.len()));
        self.rest = rest;
        (!text.is_empty()).then_some(text)
    }

    /// Reads the tag at the current position.
    fn tag(&mut self) -> Result<Piece<'a>, &'static str> {
        let inside = self.rest.strip_prefix('<').ok_or(MALFORMED)?;
        if let Some(inside) = inside.strip_prefix('/') {
            let (name, rest) = inside.split_once('>').ok_or(MALFORMED)?;
            self.rest = rest;
            let name = name.trim_end_matches([' ', '\t', '\r', '\n']);
            if self.open.pop() != Some(name) {
                return Err(MALFORMED);
            }
            self.ended = self.open.is_empty();
            return Ok(Piece::End(name));
        }
        let (inside, rest) = inside.split_at(tag_end(inside)?);
        self.rest = &rest[1..];
        let (inside, empty) = match inside.strip_suffix('/') {
            Some(inside) => (inside, true),
            None => (inside, false),
        };
        let name = inside.split([' ', '\t', '\r', '\n']).next().unwrap_or_default();
        let letter = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
        if name.is_empty() || !name.chars().all(letter) || self.ended {
            return Err(MALFORMED);
        }
        if empty {
            self.ended = self.open.is_empty();
            return Ok(Piece::Empty(name));
        }
        if self.open.len() == DEPTH_MAX {
            return Err("sent XML whose elements are nested too deeply");
        }
        self.open.push(name);
        Ok(Piece::Start)
    }
}

/// Returns the position of the '>' that ends a tag. A '>' in the value of an attribute is skipped.
fn tag_end(inside: &str) -> Result<usize, &'static str> {
    let mut quote = None;
    for (at, byte) in inside.bytes().enumerate() {
        match (quote, byte) {
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'>') => return Ok(at),
            (None, b'<') => return Err(MALFORMED),
            (Some(end), _) if end == byte => quote = None,
            _ => {}
        }
    }
    Err(MALFORMED)
}

/// Replaces references such as `&amp;` by their characters.
fn decoded(text: &str) -> Result<Cow<'_, str>, &'static str> {
    if !text.contains('&') {
        return Ok(Cow::Borrowed(text));
    }
    let mut result = String::with_capacity(text.len());
    let mut parts = text.split('&');
    result.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (reference, rest) = part.split_once(';').ok_or(MALFORMED)?;
        result.push(character(reference).ok_or(MALFORMED)?);
        result.push_str(rest);
    }
    Ok(Cow::Owned(result))
}

fn character(reference: &str) -> Option<char> {
    let code = match reference {
        "amp" => return Some('&'),
        "lt" => return Some('<'),
        "gt" => return Some('>'),
        "quot" => return Some('"'),
        "apos" => return Some('\''),
        _ if reference.len() > REFERENCE_BYTES_MAX => return None,
        _ => reference.strip_prefix('#')?,
    };
    let (digits, radix) = match code.strip_prefix('x') {
        Some(digits) => (digits, 16),
        None => (code, 10),
    };
    let all_digits = digits.chars().all(|digit| digit.is_digit(radix));
    let number = u32::from_str_radix(digits, radix).ok().filter(|_| all_digits)?;
    char::from_u32(number).filter(|c| *c != '\0')
}

/// Escapes `&`, `<` and `>`.
pub(in crate::network) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(document: &str) -> Vec<(String, String, String)> {
        let leaves =
            leaves(document.as_bytes()).unwrap_or_else(|flaw| panic!("{document}: {flaw}"));
        leaves
            .into_iter()
            .map(|leaf| (leaf.parent.to_owned(), leaf.name.to_owned(), leaf.text.into_owned()))
            .collect()
    }

    fn leaf(parent: &str, name: &str, text: &str) -> (String, String, String) {
        (parent.to_owned(), name.to_owned(), text.to_owned())
    }

    #[test]
    fn an_error_document_is_read() {
        let document = "\u{feff}<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- x > y --><Error>\
                        <Code>NoSuchKey</Code>\n  <Resource a='>'  b=\"/>\">/b/k</Resource>\
                        <HostId/></Error >\n";
        let expected = [
            leaf("Error", "Code", "NoSuchKey"),
            leaf("Error", "Resource", "/b/k"),
            leaf("Error", "HostId", ""),
        ];
        assert_eq!(found(document), expected);
    }

    #[test]
    fn leaves_carry_the_name_of_the_element_around_them() {
        let document = "<List><Contents><Key>a&amp;b&#34;&#x41;</Key><Owner><ID>1</ID></Owner>\
                        </Contents><Prefix><Key>x</Key></Prefix></List>";
        let expected = [
            leaf("Contents", "Key", "a&b\"A"),
            leaf("Owner", "ID", "1"),
            leaf("Prefix", "Key", "x"),
        ];
        assert_eq!(found(document), expected);
        assert_eq!(found("<a>text</a>"), [leaf("", "a", "text")]);
    }

    #[test]
    fn references_are_decoded_and_unknown_ones_are_errors() {
        assert_eq!(decoded("&lt;&gt;&quot;&apos;&amp;amp;").unwrap(), "<>\"'&amp;");
        assert_eq!(decoded("&#10;&#x1F600;").unwrap(), "\n\u{1F600}");
        for wrong in
            ["&", "&amp", "&nbsp;", "&#;", "&#x;", "&#0;", "&#xD800;", "&#x110000;", "&#+5;"]
        {
            assert!(decoded(wrong).is_err(), "{wrong}");
        }
        assert_eq!(decoded(&escaped("<a & \"b\">")).unwrap(), "<a & \"b\">");
    }

    #[test]
    fn what_is_not_well_formed_is_an_error() {
        let deep = "<a>".repeat(DEPTH_MAX + 1);
        for wrong in [
            "",
            "text",
            "<a>",
            "<a></b>",
            "</a>",
            "<a></a><b></b>",
            "<a></a>text",
            "<a/><a/>",
            "<a",
            "<a b='>",
            "<a<b></a>",
            "<>x</>",
            "<a>&</a>",
            "<!DOCTYPE a><a/>",
            "<a><![CDATA[x]]></a>",
            "<a>x<!-- -->y</a>",
            "<!-- ",
            "<?xml",
            &deep,
        ] {
            assert!(leaves(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(leaves(b"<a>\xff</a>").is_err());
    }

    proptest! {
        #[test]
        fn no_document_makes_the_scanner_panic(text in "[<>/&;!?=a\"' #x0-9\u{e9}\\-\\[]{0,60}") {
            let _ = leaves(text.as_bytes());
        }

        #[test]
        fn text_survives_escaping(text in ".{0,30}") {
            let document = format!("<a>{}</a>", escaped(&text));
            prop_assert_eq!(found(&document), [leaf("", "a", &text)]);
        }
    }
}
