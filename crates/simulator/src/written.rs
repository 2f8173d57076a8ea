//! Writes a description back as the text of a system file.
//!
//! Each value is on one line with its unit and source. Groups have headings, as in the built-in
//! files. Parsing the text gives the same description.

use std::fmt::Write;

use toml::{Table, Value};

/// Returns a table and its subtables as TOML text.
pub(crate) fn text_of(table: &Table) -> String {
    let mut text = String::new();
    write_table(&mut text, "", table);
    text.trim_start().to_owned()
}

fn write_table(text: &mut String, path: &str, table: &Table) {
    let below = |key: &str| match path {
        "" => name(key),
        _ => format!("{path}.{}", name(key)),
    };
    let is_heading = |value: &Value| match value {
        Value::Table(inner) => !is_value(inner),
        Value::Array(items) => !items.is_empty() && items.iter().all(Value::is_table),
        _ => false,
    };
    for (key, value) in table.iter().filter(|(_, value)| !is_heading(value)) {
        let _ = writeln!(text, "{} = {}", name(key), inline(value));
    }
    for (key, value) in table.iter().filter(|(_, value)| is_heading(value)) {
        let path = below(key);
        match value {
            Value::Table(inner) => {
                let _ = writeln!(text, "\n[{path}]");
                write_table(text, &path, inner);
            }
            Value::Array(items) => {
                for inner in items.iter().filter_map(Value::as_table) {
                    let _ = writeln!(text, "\n[[{path}]]");
                    write_table(text, &path, inner);
                }
            }
            _ => {}
        }
    }
}

fn is_value(table: &Table) -> bool {
    table.contains_key("unit")
}

fn inline(value: &Value) -> String {
    match value {
        Value::Table(table) => {
            // Reverse alphabetical order puts value, unit and source in reading order.
            let mut keys: Vec<&String> = table.keys().collect();
            keys.sort_by_key(|key| std::cmp::Reverse(key.as_str()));
            let parts: Vec<String> = keys
                .iter()
                .map(|key| format!("{} = {}", name(key), inline(&table[*key])))
                .collect();
            format!("{{ {} }}", parts.join(", "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Value::String(text) => quoted(text),
        Value::Float(number) if number.is_nan() => "nan".to_owned(),
        Value::Float(number) => format!("{number:?}"),
        Value::Integer(number) => number.to_string(),
        Value::Boolean(switch) => switch.to_string(),
        Value::Datetime(moment) => moment.to_string(),
    }
}

/// Formats a key. Quotes it unless it is a bare TOML key.
fn name(key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(plain) { key.to_owned() } else { quoted(key) }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use crate::Description;

    #[test]
    fn unusual_keys_and_text_survive_a_round_trip() {
        let odd = "'a b' = \"\\u007f \\\" \\\\ \\n\"\nx = [{ y = nan }, 1]\n[\"\".\"k.l\"]\n";
        let before = Description::read(odd, "odd").unwrap();
        let after = Description::read(&before.text(), "written").unwrap();
        assert_eq!(before.text(), after.text());
        assert!(after.text().contains("\\u007F"), "{}", after.text());
    }

    #[test]
    fn a_system_that_is_written_and_read_is_the_same() {
        let before = Description::named("nt4-ultrawide").unwrap();
        let after = Description::read(&before.text(), "written").unwrap();
        assert_eq!(before.keys(), after.keys());
        assert_eq!(before.text(), after.text());
        for key in before.keys() {
            assert_eq!(before.value_of(&key), after.value_of(&key), "{key}");
            assert_eq!(before.source_of(&key), after.source_of(&key), "{key}");
        }
        let systems = [before, after].map(|description| description.system().unwrap());
        assert_eq!(format!("{:?}", systems[0]), format!("{:?}", systems[1]));
    }

    #[test]
    fn a_value_is_put_with_its_source_in_its_own_unit() {
        let mut system = Description::named("nt4-ultrawide").unwrap();
        system.put("bus.command", 12.5, "measured").unwrap();
        assert_eq!(system.value_of("bus.command"), Some((12.5, "us".to_owned())));
        assert_eq!(system.source_of("bus.command").as_deref(), Some("measured"));
        assert!(system.put("bus.colour", 1.0, "measured").is_err());
    }
}
