//! Checks a Parquet footer before the library parses it.
//!
//! The library walks the schema by recursion, so a small file with deeply nested columns would overflow the stack and
//! abort the process. The footer is a Thrift struct in the compact protocol. Its field 2 is the schema, a list of nodes
//! in depth-first order, each with its number of children in field 5.

use parquet::errors::{ParquetError, Result};
use parquet::file::reader::ChunkReader;

/// Maximum nesting depth. Data sets use a few levels.
const DEEPEST: usize = 200;

/// Rejects an invalid footer and columns that are nested too deeply.
pub(crate) fn check(source: &impl ChunkReader) -> Result<()> {
    let damaged = |why: &str| ParquetError::General(why.to_owned());
    let length = source.len();
    let end = length.checked_sub(8).filter(|&end| end >= 4).ok_or_else(|| damaged("it is too short"))?;
    let tail = source.get_bytes(end, 8)?;
    let size = u64::from(u32::from_le_bytes(tail[..4].try_into().expect("four bytes")));
    if &tail[4..] != b"PAR1" {
        return Err(damaged("it does not end like a Parquet file"));
    }
    // The size comes from the file. The check against the file length prevents excessive allocation.
    let start = end.checked_sub(size).ok_or_else(|| damaged("its footer is longer than the file"))?;
    let footer = source.get_bytes(start, size as usize)?;
    let depth = FooterWalk(&footer).schema_depth().ok_or_else(|| damaged("its footer cannot be read"))?;
    if depth > DEEPEST {
        Err(damaged(&format!("its columns are nested more than {DEEPEST} levels deep")))
    } else {
        Ok(())
    }
}

/// The remaining bytes of a compact Thrift message.
struct FooterWalk<'a>(&'a [u8]);

impl FooterWalk<'_> {
    /// Depth of the schema, capped at one above the maximum.
    fn schema_depth(&mut self) -> Option<usize> {
        let mut id = 0;
        while let kind @ 1.. = self.field(&mut id)? {
            if (id, kind) != (2, LIST) {
                self.skip(kind, 0)?;
                continue;
            }
            let (items, STRUCT) = self.list()? else { return None };
            // Remaining children on each level.
            let mut open: Vec<u64> = Vec::new();
            let mut deepest = 0;
            // The number of items comes from the file too. Each takes at least a byte, so a false number ends with the
            // footer.
            for _ in 0..items {
                // Close completed levels first, or siblings would count as nested.
                while open.pop_if(|left| *left == 0).is_some() {}
                if let Some(left) = open.last_mut() {
                    *left -= 1;
                }
                let children = self.children()?;
                if children > 0 {
                    open.push(children);
                }
                deepest = deepest.max(open.len());
                if deepest > DEEPEST {
                    return Some(deepest);
                }
            }
            return Some(deepest);
        }
        None
    }

    /// The number of children of a schema node.
    fn children(&mut self) -> Option<u64> {
        let (mut id, mut children) = (0, 0);
        while let kind @ 1.. = self.field(&mut id)? {
            match (id, kind) {
                (5, I16..=I64) => {
                    children = self.varint().map(|zigzag| if zigzag % 2 == 0 { zigzag / 2 } else { 0 })?;
                }
                _ => self.skip(kind, 0)?,
            }
        }
        Some(children)
    }

    /// The type of the next field, with its number in `id`; type 0 ends the struct.
    fn field(&mut self, id: &mut i64) -> Option<u8> {
        let head = self.byte()?;
        let (step, kind) = (i64::from(head >> 4), head & 0xf);
        if kind != 0 {
            *id = if step == 0 { unzigzag(self.varint()?) } else { id.checked_add(step)? };
        }
        Some(kind)
    }

    fn list(&mut self) -> Option<(u64, u8)> {
        let head = self.byte()?;
        let items = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        Some((items, head & 0xf))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        // This walk recurses over nested structs as well, so it has its own limit.
        if depth > 32 {
            return None;
        }
        match kind {
            1 | 2 => {}
            BYTE => drop(self.byte()?),
            I16..=I64 => drop(self.varint()?),
            DOUBLE => self.advance(8)?,
            BINARY => {
                let length = self.varint()?;
                self.advance(length)?;
            }
            LIST | SET => {
                let (items, kind) = self.list()?;
                // A boolean in a list takes a byte, unlike in a field.
                (0..items).try_for_each(|_| if kind <= 2 { self.advance(1) } else { self.skip(kind, depth + 1) })?;
            }
            MAP => {
                let items = self.varint()?;
                let kinds = if items > 0 { self.byte()? } else { 0 };
                for kind in (0..items).flat_map(|_| [kinds >> 4, kinds & 0xf]) {
                    if kind <= 2 { self.advance(1)? } else { self.skip(kind, depth + 1)? }
                }
            }
            STRUCT => {
                let mut id = 0;
                while let kind @ 1.. = self.field(&mut id)? {
                    self.skip(kind, depth + 1)?;
                }
            }
            UUID => self.advance(16)?,
            _ => return None,
        }
        Some(())
    }

    fn advance(&mut self, bytes: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

const BYTE: u8 = 3;
const I16: u8 = 4;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;
const UUID: u8 = 13;

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parquet_file::ParquetRows;

    /// An empty file with one column that is nested `levels` deep.
    fn nested(levels: usize) -> Vec<u8> {
        let node = |children: u8| [&[0x35, 0x00, 0x18, 1, b'a'][..], &[0x15, children * 2, 0]].concat();
        let root = [0x48, 1, b'r', 0x15, 2, 0];
        let leaf = [0x15, 12, 0x25, 0x00, 0x18, 1, b'x', 0];
        let items = (levels + 2) as u32;
        let mut footer = vec![0x15, 2, 0x19, 0xfc];
        let mut left = items;
        while left >= 0x80 {
            footer.push((left & 0x7f) as u8 | 0x80);
            left >>= 7;
        }
        footer.push(left as u8);
        footer.extend(root);
        (0..levels).for_each(|_| footer.extend(node(1)));
        footer.extend(leaf);
        footer.extend([0x16, 0, 0x19, 0x0c, 0]);
        [b"PAR1", &footer[..], &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat()
    }

    #[test]
    fn columns_that_are_nested_too_deeply_are_refused_before_they_overflow_the_stack() {
        let rows = |levels| ParquetRows::from_bytes(nested(levels)).map(|rows| rows.columns().to_vec());
        assert_eq!(rows(DEEPEST - 1).expect("a file"), ["a"]);
        for levels in [DEEPEST, 300_000] {
            let error = rows(levels).expect_err("too deep").to_string();
            assert!(error.contains("nested more than 200 levels deep"), "{error}");
        }
    }
}
