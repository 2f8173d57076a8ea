//! Reads the kernel's type information (BTF, `/sys/kernel/btf/vmlinux`): the offsets of members of
//! kernel structures, and the types of tracepoint arguments. The format is described in the
//! kernel's document `bpf/btf.rst`.

use std::collections::HashMap;

const MAGIC: u16 = 0xEB9F;
const HEADER_BYTES: usize = 24;
/// Maximum depth to which nested structures and chains of types are followed.
const DEPTH_MAX: u32 = 32;

const KIND_PTR: u32 = 2;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_TYPEDEF: u32 = 8;
const KIND_MODIFIERS: [u32; 5] = [KIND_TYPEDEF, 9, 10, 11, 18];
const KIND_FUNC_PROTO: u32 = 13;

/// A type of the kernel, and the location of its description.
#[derive(Clone, Copy, Debug)]
struct Type {
    name: u32,
    kind: u32,
    /// Number of members, parameters or values of the type.
    count: u32,
    /// Whether the offsets of members also contain the size of a bit field.
    has_bit_fields: bool,
    /// The size of the type, or the id of the type that this type refers to.
    size_or_type: u32,
    /// Offset of the members, parameters or values (bytes from the start of the type section).
    rest: usize,
}

/// The kernel's type information.
#[derive(Debug)]
pub struct Btf {
    types: Vec<Type>,
    /// The content of the type section.
    bytes: Vec<u8>,
    strings: Vec<u8>,
    structs: HashMap<String, u32>,
    typedefs: HashMap<String, u32>,
}

impl Btf {
    /// Parses type information. None if the data are not valid BTF.
    pub fn parse(data: &[u8]) -> Option<Btf> {
        if half(data, 0)? != MAGIC {
            return None;
        }
        let header = word(data, 4)? as usize;
        let section = |at: usize| {
            let from = header.checked_add(word(data, at)? as usize)?;
            data.get(from..from.checked_add(word(data, at + 4)? as usize)?)
        };
        if header < HEADER_BYTES {
            return None;
        }
        let (bytes, strings) = (section(8)?.to_vec(), section(16)?.to_vec());
        let types = types(&bytes)?;
        let mut btf =
            Btf { types, bytes, strings, structs: HashMap::new(), typedefs: HashMap::new() };
        for id in 1..btf.types.len() as u32 {
            let kind = btf.types[id as usize];
            let name = btf.string(kind.name).to_owned();
            match kind.kind {
                _ if name.is_empty() => {}
                KIND_STRUCT => drop(btf.structs.entry(name).or_insert(id)),
                KIND_TYPEDEF => drop(btf.typedefs.entry(name).or_insert(id)),
                _ => {}
            }
        }
        Some(btf)
    }

    /// Returns the offset of a member of a structure (bytes). None if there is no such member, or
    /// if the member does not start at a byte boundary, as is the case for some bit fields. `path`
    /// is written as in C: `bi_iter.bi_size` for a member of a nested structure.
    pub fn offset(&self, structure: &str, path: &str) -> Option<u32> {
        let mut id = *self.structs.get(structure)?;
        let mut bits = 0_u32;
        for name in path.split('.') {
            let (at, member) = self.member(id, name, DEPTH_MAX)?;
            bits = bits.checked_add(at)?;
            id = member;
        }
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    /// Returns the types of the arguments of a tracepoint, in order: the name of the structure for
    /// a pointer to a structure, and an empty string for any other type. None if the tracepoint is
    /// unknown.
    pub fn arguments(&self, tracepoint: &str) -> Option<Vec<&str>> {
        let id = *self.typedefs.get(&format!("btf_trace_{tracepoint}"))?;
        let pointer = self.resolved(id)?;
        let function = self.resolved(pointer.size_or_type)?;
        if pointer.kind != KIND_PTR || function.kind != KIND_FUNC_PROTO {
            return None;
        }
        let argument = |at: u32| {
            let kind = self.resolved(word(&self.bytes, function.rest + at as usize * 8 + 4)?)?;
            let target = self.resolved(kind.size_or_type).filter(|_| kind.kind == KIND_PTR);
            let target = target.filter(|target| target.kind == KIND_STRUCT);
            Some(target.map_or("", |target| self.string(target.name)))
        };
        // BPF programs do not receive the first argument of the tracepoint, the data of the probe.
        (1..function.count).map(argument).collect()
    }

    /// Returns the offset (bits) and the type of a member, which may be inside an anonymous
    /// structure or union.
    fn member(&self, id: u32, wanted: &str, depth: u32) -> Option<(u32, u32)> {
        let kind = self.resolved(id)?;
        if depth == 0 || !matches!(kind.kind, KIND_STRUCT | KIND_UNION) {
            return None;
        }
        for at in 0..kind.count as usize {
            let at = kind.rest + at * 12;
            let name = self.string(word(&self.bytes, at)?);
            let (member, offset) = (word(&self.bytes, at + 4)?, word(&self.bytes, at + 8)?);
            let bits = if kind.has_bit_fields { offset & 0xFF_FFFF } else { offset };
            if name == wanted {
                return Some((bits, member));
            }
            if name.is_empty()
                && let Some((inner, found)) = self.member(member, wanted, depth - 1)
            {
                return Some((bits.checked_add(inner)?, found));
            }
        }
        None
    }

    /// Follows typedefs and modifiers, and returns the type to which they refer.
    fn resolved(&self, mut id: u32) -> Option<Type> {
        for _ in 0..DEPTH_MAX {
            let kind = *self.types.get(id as usize)?;
            if !KIND_MODIFIERS.contains(&kind.kind) {
                return Some(kind);
            }
            id = kind.size_or_type;
        }
        None
    }

    fn string(&self, at: u32) -> &str {
        let rest = self.strings.get(at as usize..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(0);
        std::str::from_utf8(&rest[..end]).unwrap_or_default()
    }
}

/// Parses all types. The first type in the result is `void`, which has no description.
fn types(bytes: &[u8]) -> Option<Vec<Type>> {
    let (name, kind, count, has_bit_fields, size_or_type, rest) = (0, 0, 0, false, 0, 0);
    let mut types = vec![Type { name, kind, count, has_bit_fields, size_or_type, rest }];
    let mut at = 0;
    while at < bytes.len() {
        let info = word(bytes, at + 4)?;
        let (kind, count) = ((info >> 24) & 31, info & 0xFFFF);
        let each = match kind {
            1 | 14 | 17 => 4,
            3 => 12,
            KIND_STRUCT | KIND_UNION | 15 | 19 => 12 * count as usize,
            6 | KIND_FUNC_PROTO => 8 * count as usize,
            2 | 7..=12 | 16 | 18 => 0,
            _ => return None,
        };
        types.push(Type {
            name: word(bytes, at)?,
            kind,
            count,
            has_bit_fields: info >> 31 == 1,
            size_or_type: word(bytes, at + 8)?,
            rest: at + 12,
        });
        at = at.checked_add(12 + each)?;
    }
    Some(types)
}

fn half(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*data.get(at..)?.first_chunk()?))
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*data.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns type information for `struct inner { u32 pad; u32 deep; }`, `struct outer { u64 a;
    /// union { struct inner b; }; }`, and a tracepoint with two arguments.
    fn example() -> Vec<u8> {
        let mut strings = vec![0_u8];
        let mut string = |name: &str| {
            let at = strings.len() as u32;
            strings.extend(name.as_bytes());
            strings.push(0);
            at
        };
        let info = |kind: u32, count: u32| (kind << 24) | count;
        let mut words = vec![string("int"), info(1, 0), 4, 32];
        words.extend([string("inner"), info(4, 2), 8, string("pad"), 1, 0, string("deep"), 1, 32]);
        words.extend([0, info(5, 1), 8, string("b"), 2, 0]);
        words.extend([string("outer"), info(4, 2), 16, string("a"), 1, 0, 0, 3, 64]);
        words.extend([0, info(2, 0), 4]);
        words.extend([0, info(13, 3), 0, 0, 0, 0, 5, 0, 1]);
        words.extend([0, info(2, 0), 6]);
        words.extend([string("btf_trace_block_rq_issue"), info(8, 0), 7]);
        let types: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut data = MAGIC.to_ne_bytes().to_vec();
        data.extend([1, 0]);
        let (types_len, strings_len) = (types.len() as u32, strings.len() as u32);
        for word in [24, 0, types_len, types_len, strings_len] {
            data.extend(u32::to_ne_bytes(word));
        }
        data.extend(types);
        data.extend(strings);
        data
    }

    #[test]
    fn members_are_found_also_in_anonymous_and_nested_structures() {
        let btf = Btf::parse(&example()).unwrap();
        assert_eq!(btf.offset("outer", "a"), Some(0));
        assert_eq!(btf.offset("outer", "b"), Some(8));
        assert_eq!(btf.offset("outer", "b.deep"), Some(12));
        assert_eq!(btf.offset("outer", "c"), None);
        assert_eq!(btf.offset("other", "a"), None);
    }

    #[test]
    fn the_arguments_of_a_tracepoint_name_the_structures_that_they_point_to() {
        let btf = Btf::parse(&example()).unwrap();
        assert_eq!(btf.arguments("block_rq_issue").unwrap(), ["outer", ""]);
        assert_eq!(btf.arguments("block_rq_merge"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(
            at in 0_usize..400, byte: u8, cut in 0_usize..400,
        ) {
            let mut data = example();
            let at = at % data.len();
            data[at] = byte;
            data.truncate(data.len() - cut % data.len());
            if let Some(btf) = Btf::parse(&data) {
                let _ = (btf.offset("outer", "b.deep"), btf.arguments("block_rq_issue"));
            }
        }
    }
}
