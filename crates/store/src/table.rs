//! JSON lines tables that are written in order, whatever the order in which rows arrive.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::StoreError;
use crate::access::{Access, create_new};

/// Maximum number of finished rows buffered before a write.
pub const FLUSH_EVERY: usize = 16;

/// Destination of a table's bytes.
trait TableOutput: Write + Send {
    /// Truncates the output to `len` bytes, if possible.
    fn cut(&mut self, len: u64) -> io::Result<()>;

    /// Flushes the output to disk, if possible.
    fn sync(&mut self) -> io::Result<()>;
}

impl TableOutput for File {
    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        match self.sync_all() {
            // Devices and pipes cannot be synced.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
            result => result,
        }
    }
}

/// A stream that cannot be truncated.
struct Stream<W>(W);

impl<W: Write> Write for Stream<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<W: Write + Send> TableOutput for Stream<W> {
    fn cut(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes rows as JSON lines in the order of their indices, each as soon as all earlier ones have arrived.
///
/// Finished rows are written every [`FLUSH_EVERY`] rows, by [`TableWriter::finish`] and on drop, even if the run fails;
/// then rows still waiting for earlier ones are included in order. After a failed write the file ends with a whole row,
/// if it can be truncated.
pub struct TableWriter {
    path: PathBuf,
    output: Box<dyn TableOutput>,
    next: usize,
    // Serialised rows that arrived before an earlier one; an index may have no row or several.
    waiting: BTreeMap<usize, Vec<u8>>,
    // Whole lines, not yet written.
    buffer: Vec<u8>,
    buffered_rows: usize,
    flush_every: usize,
    written: u64,
    broken: bool,
}

impl std::fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableWriter").field("path", &self.path).field("next", &self.next).finish_non_exhaustive()
    }
}

impl TableWriter {
    /// Creates a table in a file. An existing file is an error unless `overwrite`; devices and pipes are written to
    /// directly.
    pub fn create(path: &Path, overwrite: bool) -> Result<Self, StoreError> {
        // An existing path that is not a file (/dev/stdout) holds no data to lose.
        let special = path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir());
        let made = if overwrite || special {
            OpenOptions::new().write(true).create(true).truncate(true).open(path)
        } else {
            create_new(path, Access::Usual)
        };
        Self::made(path, made)
    }

    /// Creates a private table of a run.
    pub(crate) fn create_private(path: &Path) -> Result<Self, StoreError> {
        Self::made(path, create_new(path, Access::Private))
    }

    fn made(path: &Path, made: io::Result<File>) -> Result<Self, StoreError> {
        let file = made.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists if path.is_file() => StoreError::FileExists(path.to_owned()),
            io::ErrorKind::AlreadyExists => StoreError::io("created", path)(io::ErrorKind::IsADirectory.into()),
            _ => StoreError::io("created", path)(source),
        })?;
        Ok(Self::on(path, Box::new(file)))
    }

    /// Creates a table on a stream such as standard output; `name` is used in messages. Output cannot be truncated.
    pub fn to_stream(name: &str, stream: impl Write + Send + 'static) -> Self {
        Self::on(Path::new(name), Box::new(Stream(stream)))
    }

    fn on(path: &Path, output: Box<dyn TableOutput>) -> Self {
        Self {
            path: path.to_owned(),
            output,
            next: 0,
            waiting: BTreeMap::new(),
            buffer: Vec::new(),
            buffered_rows: 0,
            flush_every: FLUSH_EVERY,
            written: 0,
            broken: false,
        }
    }

    /// Writes rows in batches of `rows`, at least 1.
    #[must_use]
    pub fn with_flush_every(mut self, rows: usize) -> Self {
        self.flush_every = rows.max(1);
        self
    }

    /// The file path or the stream name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds the row at an index, from 0; each index once.
    pub fn put(&mut self, index: usize, row: &impl Serialize) -> Result<(), StoreError> {
        self.put_all(index, std::iter::once(row))
    }

    /// Adds the rows at an index: any number, none to skip it.
    pub fn put_all<T: Serialize>(&mut self, index: usize, rows: impl IntoIterator<Item = T>) -> Result<(), StoreError> {
        if self.broken {
            return Err(StoreError::Broken(self.path.clone()));
        }
        if index < self.next || self.waiting.contains_key(&index) {
            return Err(StoreError::Twice { path: self.path.clone(), index });
        }
        // Serialised separately, so that a failing row leaves the buffer unchanged.
        let mut lines = Vec::new();
        for row in rows {
            serde_json::to_writer(&mut lines, &row)
                .map_err(|source| StoreError::Json { path: self.path.clone(), source })?;
            lines.push(b'\n');
        }
        self.waiting.insert(index, lines);
        while let Some(lines) = self.waiting.remove(&self.next) {
            self.buffer.extend_from_slice(&lines);
            self.buffered_rows += 1;
            self.next += 1;
        }
        if self.buffered_rows >= self.flush_every { self.flush() } else { Ok(()) }
    }

    /// Writes all rows whose predecessors have arrived.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        let (done, result) = write_counted(&mut *self.output, &self.buffer);
        match result.and_then(|()| self.output.flush()) {
            Ok(()) => {
                self.written += done as u64;
                self.buffer.clear();
                self.buffered_rows = 0;
                Ok(())
            }
            Err(e) => {
                // No more rows after a failed write: a later success would leave a gap.
                self.broken = true;
                let whole = self.buffer[..done].iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
                self.written += whole as u64;
                // Report the failed write; a device that cannot be truncated keeps the partial row.
                let _ = self.output.cut(self.written);
                self.buffer.clear();
                // Earlier rows are lost, so these cannot be written either.
                self.waiting.clear();
                Err(StoreError::io("written", &self.path)(e))
            }
        }
    }

    /// Writes the remaining rows, flushes them to disk and returns the number of indices. An error if an index is
    /// missing; the other rows are in the file.
    pub fn finish(mut self) -> Result<usize, StoreError> {
        if self.broken {
            return Err(StoreError::Broken(self.path.clone()));
        }
        // Checked before writing, which empties it; existing rows are written regardless.
        let missing = (!self.waiting.is_empty()).then_some(self.next);
        self.write_out()?;
        self.output.sync().map_err(StoreError::io("written", &self.path))?;
        match missing {
            Some(index) => Err(StoreError::Missing { path: self.path.clone(), index }),
            None => Ok(self.next),
        }
    }

    fn write_out(&mut self) -> Result<(), StoreError> {
        for (_, lines) in std::mem::take(&mut self.waiting) {
            self.buffer.extend_from_slice(&lines);
        }
        self.flush()
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        if !self.broken {
            // Errors on drop cannot be reported; `finish` reports them.
            let _ = self.write_out();
        }
    }
}

/// Writes all bytes; returns the number written before a failure.
fn write_counted(output: &mut dyn TableOutput, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut done = 0;
    while done < bytes.len() {
        match output.write(&bytes[done..]) {
            Ok(0) => return (done, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => done += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return (done, Err(e)),
        }
    }
    (done, Ok(()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::{Arc, Mutex};

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;
    use crate::error::hint_of;

    fn table() -> (TempDir, PathBuf, TableWriter) {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("rows.jsonl");
        let table = TableWriter::create(&path, false).expect("created");
        (folder, path, table)
    }

    fn text(path: &Path) -> String {
        fs::read_to_string(path).expect("readable")
    }

    /// Accepts `room` bytes, a few at a time, then is full.
    struct Small {
        bytes: Arc<Mutex<Vec<u8>>>,
        room: usize,
    }

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut taken = self.bytes.lock().expect("not poisoned");
            let count = bytes.len().min(self.room - taken.len()).min(3);
            taken.extend_from_slice(&bytes[..count]);
            if count == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(count) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl TableOutput for Small {
        fn cut(&mut self, len: u64) -> io::Result<()> {
            self.bytes.lock().expect("not poisoned").truncate(len as usize);
            Ok(())
        }

        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn rows_are_written_in_order_as_soon_as_their_predecessors_have_come() {
        let (_folder, path, table) = table();
        let mut table = table.with_flush_every(1);
        table.put(2, &"c").expect("taken");
        table.put(1, &"b").expect("taken");
        assert_eq!(text(&path), "");
        table.put(0, &"a\nb").expect("taken");
        assert_eq!(text(&path), "\"a\\nb\"\n\"b\"\n\"c\"\n");
        table.put_all(3, [4, 5]).expect("taken");
        table.put_all(4, [0; 0]).expect("taken");
        assert_eq!(table.finish().expect("complete"), 5);
        assert_eq!(text(&path), "\"a\\nb\"\n\"b\"\n\"c\"\n4\n5\n");
    }

    #[test]
    fn rows_wait_for_the_flush_and_a_drop_writes_them() {
        let (_folder, path, table) = table();
        let mut table = table.with_flush_every(3);
        table.put(0, &0).expect("taken");
        table.put(1, &1).expect("taken");
        assert_eq!(text(&path), "");
        table.put(2, &2).expect("taken");
        assert_eq!(text(&path), "0\n1\n2\n");
        table.put(3, &3).expect("taken");
        table.put(7, &7).expect("taken");
        drop(table);
        assert_eq!(text(&path), "0\n1\n2\n3\n7\n");
    }

    #[test]
    fn a_dropped_table_keeps_rows_that_waited_and_a_finished_one_names_the_gap() {
        let (_folder, path, mut table) = table();
        for index in [5, 0, 3] {
            table.put(index, &index).expect("taken");
        }
        drop(table);
        assert_eq!(text(&path), "0\n3\n5\n");
        let mut again = TableWriter::create(&path, true).expect("replaced");
        again.put(0, &0).expect("taken");
        again.put(2, &2).expect("taken");
        assert!(matches!(again.finish(), Err(StoreError::Missing { index: 1, .. })));
        assert_eq!(text(&path), "0\n2\n");
    }

    #[test]
    fn an_index_comes_once() {
        let (_folder, _path, mut table) = table();
        table.put(0, &0).expect("taken");
        table.put(2, &0).expect("taken");
        for index in [0, 2] {
            assert!(matches!(table.put(index, &1), Err(StoreError::Twice { .. })));
        }
    }

    #[test]
    fn a_file_that_exists_is_replaced_only_on_request() {
        let (folder, path, table) = table();
        drop(table);
        let error = TableWriter::create(&path, false).expect_err("exists");
        assert!(error.to_string().ends_with("rows.jsonl already exists"), "{error}");
        assert!(hint_of(&error).contains("--overwrite"));
        assert!(TableWriter::create(&path, true).is_ok());
        for overwrite in [false, true] {
            let error = TableWriter::create(folder.path(), overwrite).expect_err("a folder");
            assert!(hint_of(&error).contains("use the name of a file"), "{error:?}");
        }
        let error = TableWriter::create(&path.join("below.jsonl"), false).expect_err("a file");
        assert!(hint_of(&error).contains("a part of this path is a file"), "{error:?}");
        let error = TableWriter::create(&folder.path().join("no/rows.jsonl"), false).expect_err("no folder");
        assert!(hint_of(&error).contains("check that its folder"), "{error:?}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_named_with_a_hint_and_the_table_takes_no_more() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            eprintln!("skipped: there is no /dev/full");
            return;
        }
        let mut table = TableWriter::create(full, false).expect("a device").with_flush_every(1);
        let error = table.put(0, &"row").expect_err("full");
        assert!(error.to_string().starts_with("/dev/full could not be written: "), "{error}");
        assert!(hint_of(&error).starts_with("free some space"), "{error:?}");
        assert!(matches!(table.put(1, &"row"), Err(StoreError::Broken(_))));
        assert!(matches!(table.finish(), Err(StoreError::Broken(_))));
    }

    #[test]
    fn a_stream_whose_reader_has_gone_is_told_from_a_failure() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut table = TableWriter::to_stream("standard output", Gone).with_flush_every(1);
        let error = table.put(0, &0).expect_err("gone");
        assert!(error.is_broken_pipe() && error.to_string().starts_with("standard output could not be written"));
    }

    #[test]
    fn a_row_without_json_form_leaves_the_table_usable() {
        let (_folder, path, mut table) = table();
        let keyed_by_list: BTreeMap<Vec<u8>, u8> = [(vec![1], 1)].into();
        assert!(matches!(table.put(0, &keyed_by_list), Err(StoreError::Json { .. })));
        table.put(0, &1).expect("taken");
        table.finish().expect("complete");
        assert_eq!(text(&path), "1\n");
    }

    proptest! {
        #[test]
        fn any_order_of_arrival_gives_the_same_file(order in Just((0..30_usize).collect::<Vec<_>>()).prop_shuffle(), every in 1_usize..40) {
            let bytes = Arc::new(Mutex::new(Vec::new()));
            let small = Small { bytes: bytes.clone(), room: usize::MAX };
            let mut table = TableWriter::on(Path::new("memory"), Box::new(small)).with_flush_every(every);
            for index in order {
                table.put(index, &index).expect("taken");
            }
            prop_assert_eq!(table.finish().expect("complete"), 30);
            let found = String::from_utf8(bytes.lock().expect("not poisoned").clone()).expect("UTF-8");
            prop_assert!(found.ends_with("29\n") && found.lines().eq((0..30).map(|i| i.to_string())), "{found}");
        }

        #[test]
        fn a_disk_that_fills_up_keeps_whole_rows_only(room in 0_usize..120, every in 1_usize..6) {
            let bytes = Arc::new(Mutex::new(Vec::new()));
            let small = Small { bytes: bytes.clone(), room };
            let mut table = TableWriter::on(Path::new("memory"), Box::new(small)).with_flush_every(every);
            let row = |i: usize| format!("{{\"row\":{i}}}\n");
            let failed = (0..20).find_map(|i| table.put(i, &serde_json::json!({"row": i})).err());
            let ended = table.finish();
            let all: String = (0..20).map(row).collect();
            prop_assert_eq!(ended.is_ok(), room >= all.len());
            prop_assert!(failed.is_none() || ended.is_err());
            let found = String::from_utf8(bytes.lock().expect("not poisoned").clone()).expect("UTF-8");
            prop_assert!(all.starts_with(&found) && (found.is_empty() || found.ends_with('\n')));
            // Every row that fitted was kept.
            let next = row(found.lines().count());
            prop_assert!(found.len() == all.len() || found.len() + next.len() > room, "{found:?}");
        }
    }
}
