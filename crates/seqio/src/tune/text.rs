//! Parses and writes the tuning file. To avoid a dependency on a TOML library, this module supports
//! only the part of TOML that the file needs.
//!
//! ```text
//! [storage."Model Serial"]
//! measured = "2026-01-31 12:00"
//! [storage."Model Serial".read]
//! request_bytes = 1048576
//! depth = 4
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Setting, Tuned};

/// The values that have been parsed for one storage.
#[derive(Debug, Default)]
struct Entry {
    measured: Option<String>,
    read: Numbers,
    write: Numbers,
}

#[derive(Debug, Default)]
struct Numbers {
    request_bytes: Option<u32>,
    depth: Option<u32>,
}

impl Numbers {
    fn setting(&self) -> Result<Option<Setting>, &'static str> {
        match (self.request_bytes, self.depth) {
            (Some(request_bytes), Some(depth)) => Ok(Some(Setting { request_bytes, depth })),
            (None, None) => Ok(None),
            _ => Err("the section must contain both request_bytes and depth"),
        }
    }
}

/// Parses the whole file.
pub(super) fn read(text: &str) -> Result<BTreeMap<String, Tuned>, String> {
    let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
    let mut section: Option<Vec<String>> = None;
    for (line, number) in text.lines().zip(1..) {
        let at = |why: &str| format!("line {number}: {why}");
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(path) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let path = keys(path).map_err(|why| at(&why))?;
            let known = match path.as_slice() {
                [first] => first == "storage",
                [first, _] => first == "storage",
                [first, _, last] => first == "storage" && (last == "read" || last == "write"),
                _ => false,
            };
            if !known {
                return Err(at("unknown section; expected [storage.\"NAME\"]"));
            }
            if let Some(name) = path.get(1) {
                entries.entry(name.clone()).or_default();
            }
            section = Some(path);
            continue;
        }
        let (key, value) = line.split_once('=').ok_or_else(|| at("expected KEY = VALUE"))?;
        let path = section.as_deref().unwrap_or_default();
        set(&mut entries, path, key.trim(), value.trim()).map_err(|why| at(&why))?;
    }
    entries.into_iter().map(|(name, entry)| whole(name, &entry)).collect()
}

fn set(
    entries: &mut BTreeMap<String, Entry>,
    section: &[String],
    key: &str,
    value: &str,
) -> Result<(), String> {
    let entry = section.get(1).and_then(|name| entries.get_mut(name));
    let (Some(entry), part) = (entry, section.get(2).map(String::as_str)) else {
        return Err(format!("'{key}' is outside of a section [storage.\"NAME\"]"));
    };
    let number = || value.parse::<u32>().map_err(|_| format!("'{value}' is not a whole number"));
    let numbers = match part {
        Some("read") => &mut entry.read,
        Some(_) => &mut entry.write,
        None if key == "measured" => {
            let (text, rest) = string(value)?;
            if !rest.is_empty() {
                return Err(format!("unexpected '{rest}' after the quoted text"));
            }
            entry.measured = Some(text);
            return Ok(());
        }
        None => return Err(format!("unknown key '{key}'")),
    };
    match key {
        "request_bytes" => numbers.request_bytes = Some(number()?),
        "depth" => numbers.depth = Some(number()?),
        _ => return Err(format!("unknown key '{key}'")),
    }
    Ok(())
}

fn whole(name: String, entry: &Entry) -> Result<(String, Tuned), String> {
    let of = |why: &str| format!("[storage.\"{name}\"]: {why}");
    let read = entry.read.setting().map_err(of)?;
    let tuned = Tuned {
        read: read.ok_or_else(|| of("the section 'read' is missing"))?,
        write: entry.write.setting().map_err(of)?,
        measured: entry.measured.clone().ok_or_else(|| of("the date 'measured' is missing"))?,
    };
    Ok((name, tuned))
}

/// Parses a dotted key. Each name between the dots is bare or quoted.
fn keys(path: &str) -> Result<Vec<String>, String> {
    let (mut found, mut rest) = (Vec::new(), path.trim());
    loop {
        let key;
        if rest.starts_with(['"', '\'']) {
            (key, rest) = string(rest)?;
        } else {
            let end = rest.find(|c: char| c == '.' || c.is_whitespace()).unwrap_or(rest.len());
            let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if end == 0 || !rest[..end].chars().all(is_bare) {
                return Err(format!("'{path}' is not a section name"));
            }
            (key, rest) = (rest[..end].to_owned(), &rest[end..]);
        }
        found.push(key);
        rest = rest.trim_start();
        match rest.strip_prefix('.') {
            Some(more) => rest = more.trim_start(),
            None if rest.is_empty() => return Ok(found),
            None => return Err(format!("'{path}' is not a section name")),
        }
    }
}

/// Parses a quoted string. Returns the string and the text after it.
fn string(text: &str) -> Result<(String, &str), String> {
    if let Some(body) = text.strip_prefix('\'') {
        let (inside, rest) = body.split_once('\'').ok_or("a quote is not closed")?;
        return Ok((inside.to_owned(), rest));
    }
    let body = text.strip_prefix('"').ok_or_else(|| format!("'{text}' must be in quotes"))?;
    let (mut found, mut characters) = (String::new(), body.char_indices());
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok((found, &body[at + 1..])),
            '\\' => found.push(escaped(&mut characters)?),
            character => found.push(character),
        }
    }
    Err("a quote is not closed".to_owned())
}

fn escaped(characters: &mut std::str::CharIndices) -> Result<char, String> {
    match characters.next() {
        Some((_, 'u')) => unicode_escape(characters, 4),
        Some((_, 'U')) => unicode_escape(characters, 8),
        Some((_, 'n')) => Ok('\n'),
        Some((_, 't')) => Ok('\t'),
        Some((_, 'r')) => Ok('\r'),
        Some((_, 'b')) => Ok('\u{8}'),
        Some((_, 'f')) => Ok('\u{c}'),
        Some((_, same @ ('"' | '\\'))) => Ok(same),
        _ => Err("a backslash is followed by a character that cannot be escaped".to_owned()),
    }
}

/// Parses a Unicode escape with `digits` hexadecimal digits.
fn unicode_escape(characters: &mut std::str::CharIndices, digits: usize) -> Result<char, String> {
    let hex: String = characters.by_ref().take(digits).map(|(_, digit)| digit).collect();
    let code = u32::from_str_radix(&hex, 16).ok().filter(|_| hex.len() == digits);
    code.and_then(char::from_u32).ok_or_else(|| format!("'{hex}' is not the code of a character"))
}

/// Formats the whole file.
pub(super) fn write(storage: &BTreeMap<String, Tuned>) -> String {
    let mut text = String::from("# `halfpower tune` writes this file. `seqio` reads it.\n");
    for (name, tuned) in storage {
        let name = quoted(name);
        let _ = writeln!(text, "\n[storage.{name}]\nmeasured = {}", quoted(&tuned.measured));
        let settings = [("read", Some(tuned.read)), ("write", tuned.write)];
        for (part, setting) in settings {
            if let Some(Setting { request_bytes, depth }) = setting {
                let _ = writeln!(text, "[storage.{name}.{part}]");
                let _ = writeln!(text, "request_bytes = {request_bytes}\ndepth = {depth}");
            }
        }
    }
    text
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(control));
            }
            character => quoted.push(character),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_may_be_bare_or_quoted_and_errors_report_their_line() {
        let good = "[storage.vda]\nmeasured = 'x'\n\n# why\n[storage.vda.read]\n\
                    request_bytes = 4096\ndepth = 2\n[storage . \"a \\\"b\\\" \\u00e9\"]\n\
                    measured = \"\"\n[storage.\"a \\\"b\\\" \\u00e9\".read]\ndepth=1\n\
                    request_bytes=8192";
        let read = read(good).unwrap();
        assert_eq!(read.keys().collect::<Vec<_>>(), ["a \"b\" é", "vda"]);
        for (text, words) in [
            ("storage = 3", "line 1: 'storage' is outside"),
            ("[storage.x]\nread = 3", "line 2: unknown key 'read'"),
            ("[other]", "line 1: unknown section"),
            ("[storage.\"x]", "line 1: a quote is not closed"),
            ("[storage.x.read]\ndepth = many", "line 2: 'many' is not a whole number"),
            ("[storage.x.read]\ndepth = 1", "must contain both request_bytes and depth"),
            ("[storage.x]\nmeasured = \"y\"", "section 'read' is missing"),
            ("hello", "line 1: expected KEY = VALUE"),
        ] {
            let error = super::read(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read_back(
            entries in prop::collection::btree_map(any::<String>(), (any::<u32>(), any::<u32>(),
                prop::option::of(any::<u32>()), any::<String>()), 0..4),
        ) {
            let entries: BTreeMap<String, Tuned> = entries.into_iter().map(|(name, one)| {
                let (request_bytes, depth, write, measured) = one;
                let setting = |request_bytes| Setting { request_bytes, depth };
                (name, Tuned { read: setting(request_bytes), write: write.map(setting), measured })
            }).collect();
            prop_assert_eq!(read(&write(&entries)), Ok(entries));
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            drop(read(&text));
        }
    }
}
