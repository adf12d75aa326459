//! A database of encoder outputs, keyed by the content of the input.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use probity_lm::{
    EncoderConfig, EncoderError, HiddenStates, MaskedSequence, ModelDescription, Sink, TextEncoder, TextTokenizer,
    Usage, device_kind,
};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};
use sha2::{Digest, Sha256};

use crate::StoreError;
use crate::access::{Access, create_folders, create_new};
use crate::database::{format, has_tables, objects, patiently, prepare};

/// File name in a run folder and in a shared cache folder.
pub const ENCODINGS: &str = "encodings.sqlite";

/// The version of the table and of the key content.
const FORMAT: i64 = 1;

const SCHEMA: &str =
    "CREATE TABLE IF NOT EXISTS encodings (key BLOB PRIMARY KEY NOT NULL, value BLOB NOT NULL, seal BLOB NOT NULL);";

/// Maximum bytes stored per run. Hidden states take some kilobytes per token; the rest is recomputed when a run is
/// resumed.
const MOST_BYTES: u64 = 2 << 30;

/// Cached encodings of texts. Damaged entries are recomputed.
#[derive(Debug)]
pub struct Encodings {
    path: PathBuf,
    connection: Mutex<Connection>,
    bytes: AtomicU64,
}

impl Encodings {
    /// Opens the database at `path`, or creates a private one. A damaged database is replaced. A database that cannot
    /// be opened for another reason, or has another version or other tables, stays unchanged and is an error.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        match path.symlink_metadata() {
            Ok(found) if !found.is_file() => return Err(StoreError::NoFile(path.to_owned())),
            Ok(_) => {}
            // Another run that starts on the same cache may have created it meanwhile.
            Err(_) => match create_new(path, Access::Private) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(StoreError::io("created", path)(error));
                }
                _ => {}
            },
        }
        let opened = match Self::prepared(path) {
            // A busy disk, a lock or missing permissions do not mean that the file is damaged, and others may use it.
            Err(StoreError::Database { source, .. }) if is_damage(&source) => {
                create_again(path)?;
                Self::prepared(path)
            }
            opened => opened,
        };
        let (connection, bytes) = opened?;
        Ok(Self { path: path.to_owned(), connection: Mutex::new(connection), bytes: AtomicU64::new(bytes) })
    }

    /// Opens the database of a shared cache folder. Creates both if missing.
    pub fn open_shared(folder: &Path) -> Result<Self, StoreError> {
        create_folders(folder).map_err(StoreError::io("created", folder))?;
        Self::open(&folder.join(ENCODINGS))
    }

    fn prepared(path: &Path) -> Result<(Connection, u64), StoreError> {
        let failed = || StoreError::database("opened", path);
        let open = || -> rusqlite::Result<(Connection, i64, bool)> {
            let connection = Connection::open(path)?;
            prepare(&connection)?;
            if format(&connection)? == 0 && objects(&connection, "main")?.is_empty() {
                connection
                    .execute_batch(&format!("BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;"))?;
            }
            let (format, ours) = (format(&connection)?, has_tables(&connection, "main", SCHEMA)?);
            // A database of another program stays unchanged.
            if format == FORMAT && ours {
                connection.pragma_update(None, "journal_mode", "wal")?;
                // Entries lost in a power failure are recomputed.
                connection.pragma_update(None, "synchronous", "off")?;
            }
            Ok((connection, format, ours))
        };
        let (connection, format, ours) = patiently(open).map_err(failed())?;
        if format > FORMAT {
            return Err(StoreError::Newer(path.to_owned()));
        }
        if format != FORMAT || !ours {
            return Err(StoreError::Foreign(path.to_owned()));
        }
        let sum = "SELECT coalesce(sum(length(value)), 0) FROM encodings";
        let bytes: i64 = connection.query_row(sum, [], |row| row.get(0)).map_err(failed())?;
        Ok((connection, bytes as u64))
    }

    /// Copies the entries of another database, up to the size limit. Unreadable entries are skipped and recomputed.
    pub fn absorb(&self, other: &Path) {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let absorb = || -> rusqlite::Result<()> {
            let connection = Connection::open_with_flags(other, flags)?;
            prepare(&connection)?;
            if format(&connection)? != FORMAT || !has_tables(&connection, "main", SCHEMA)? {
                return Ok(());
            }
            let mut find = connection.prepare("SELECT key, value FROM encodings ORDER BY key")?;
            let mut rows = find.query([])?;
            while let Some(row) = rows.next()? {
                let (key, value): ([u8; 32], Vec<u8>) = (row.get(0)?, row.get(1)?);
                if self.get(&key).is_none() && self.put(&key, &value).is_err() {
                    break;
                }
            }
            Ok(())
        };
        let _ = absorb();
    }

    /// The value of a key, if its seal is valid.
    fn get(&self, key: &[u8; 32]) -> Option<Vec<u8>> {
        let connection = self.connection.lock();
        let mut find = connection.prepare_cached("SELECT value, seal FROM encodings WHERE key = ?1").ok()?;
        let row = find.query_row([&key[..]], |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, Vec<u8>>(1)?)));
        let (value, seal) = row.optional().ok()??;
        (seal == seal_of(key, &value)).then_some(value)
    }

    fn put(&self, key: &[u8; 32], value: &[u8]) -> Result<(), StoreError> {
        // Beyond the limit entries are not stored, which is not an error: the run has the states themselves.
        if self.bytes.fetch_add(value.len() as u64, Ordering::Relaxed) > MOST_BYTES {
            return Ok(());
        }
        let connection = self.connection.lock();
        let insert = "INSERT OR REPLACE INTO encodings (key, value, seal) VALUES (?1, ?2, ?3)";
        let put = connection
            .prepare_cached(insert)
            .and_then(|mut insert| insert.execute(params![&key[..], value, seal_of(key, value)]));
        put.map(drop).map_err(StoreError::database("written", &self.path))
    }
}

/// Whether the error shows that the file itself is damaged.
fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt))
}

/// Replaces a damaged database and its side files by an empty file.
fn create_again(path: &Path) -> Result<(), StoreError> {
    for end in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        match std::fs::remove_file(&name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::io("removed", path)(error));
            }
            _ => {}
        }
    }
    create_new(path, Access::Private).map(drop).map_err(StoreError::io("created", path))
}

/// Hash of the whole row, which detects bit errors.
fn seal_of(key: &[u8; 32], value: &[u8]) -> Vec<u8> {
    Sha256::new().chain_update(key).chain_update(value).finalize().to_vec()
}

/// A [`TextEncoder`] that reads cached encodings, computes the missing ones with `encoder`, and stores them.
pub struct RecordedEncoder {
    encoder: Arc<dyn TextEncoder>,
    places: Vec<Arc<Encodings>>,
    /// Hash state of the common prefix of the encoder's keys.
    hasher: Sha256,
    found: Arc<AtomicUsize>,
}

impl RecordedEncoder {
    /// Wraps an encoder with caches in order of precedence: the run's own first, then a shared one.
    pub fn new(encoder: Arc<dyn TextEncoder>, places: Vec<Arc<Encodings>>) -> Self {
        let ModelDescription { fingerprint, precision, device, .. } = &encoder.config().description;
        let mut hasher = Sha256::new();
        for part in [env!("CARGO_PKG_VERSION"), fingerprint, precision.as_str(), device_kind(device)] {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self { encoder, places, hasher, found: Arc::default() }
    }

    /// Number of sequences found in the cache so far.
    pub fn found(&self) -> usize {
        self.found.load(Ordering::Relaxed)
    }

    /// The key of a sequence: the request and its token ids.
    fn key(&self, kind: &str, asked: &[usize], ids: &[u32]) -> [u8; 32] {
        let mut hasher = self.hasher.clone();
        hasher.update(kind);
        hasher.update((asked.len() as u64).to_le_bytes());
        hasher.update(bytes_of(asked, |part| (part as u64).to_le_bytes()));
        hasher.update(bytes_of(ids, u32::to_le_bytes));
        hasher.finalize().into()
    }

    /// Passes on the cached values; returns the positions of the rest with their keys.
    fn find<T>(
        &self,
        keys: Vec<[u8; 32]>,
        read: impl Fn(usize, &[u8]) -> Option<T>,
        sink: &mut Sink<'_, T>,
    ) -> Result<Vec<(usize, [u8; 32])>, EncoderError> {
        let mut rest = Vec::new();
        for (index, key) in keys.into_iter().enumerate() {
            // A value of unexpected length counts as missing.
            let found = self.places.iter().find_map(|place| place.get(&key)).and_then(|bytes| read(index, &bytes));
            match found {
                Some(value) => {
                    self.found.fetch_add(1, Ordering::Relaxed);
                    sink(index, value).map_err(EncoderError::Sink)?;
                }
                None => rest.push((index, key)),
            }
        }
        Ok(rest)
    }

    fn keep(&self, key: &[u8; 32], bytes: &[u8]) -> Result<(), StoreError> {
        self.places.iter().try_for_each(|place| place.put(key, bytes))
    }
}

fn bytes_of<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| bytes(*value)).collect()
}

/// Parses four-byte numbers; `None` if the length does not match.
fn numbers<T>(bytes: &[u8], count: usize, number: impl Fn([u8; 4]) -> T) -> Option<Vec<T>> {
    let (chunks, rest) = bytes.as_chunks::<4>();
    (rest.is_empty() && chunks.len() == count).then(|| chunks.iter().map(|chunk| number(*chunk)).collect())
}

impl TextEncoder for RecordedEncoder {
    fn config(&self) -> &EncoderConfig {
        self.encoder.config()
    }

    fn tokenizer(&self) -> &dyn TextTokenizer {
        self.encoder.tokenizer()
    }

    fn hidden_states(
        &self,
        sequences: &[&[u32]],
        layers: &[usize],
        sink: &mut Sink<'_, HiddenStates>,
    ) -> Result<Usage, EncoderError> {
        let hidden_size = self.config().hidden_size;
        let keys = sequences.iter().map(|ids| self.key("hidden", layers, ids)).collect();
        let read = |index: usize, bytes: &[u8]| {
            let tokens = sequences[index].len();
            let values = numbers(bytes, tokens * hidden_size * layers.len(), f32::from_le_bytes)?;
            Some(HiddenStates { values, tokens, hidden_size })
        };
        let rest = self.find(keys, read, sink)?;
        let asked: Vec<&[u32]> = rest.iter().map(|(index, _)| sequences[*index]).collect();
        if asked.is_empty() {
            return Ok(Usage::default());
        }
        self.encoder.hidden_states(&asked, layers, &mut |position, states| {
            let (index, key) = &rest[position];
            self.keep(key, &bytes_of(&states.values, f32::to_le_bytes))?;
            sink(*index, states)
        })
    }

    fn predict_masked(
        &self,
        sequences: &[MaskedSequence],
        sink: &mut Sink<'_, Vec<u32>>,
    ) -> Result<Usage, EncoderError> {
        let keys = sequences.iter().map(|sequence| self.key("masked", &sequence.positions, &sequence.ids)).collect();
        let read = |index: usize, bytes: &[u8]| numbers(bytes, sequences[index].positions.len(), u32::from_le_bytes);
        let rest = self.find(keys, read, sink)?;
        let asked: Vec<MaskedSequence> = rest.iter().map(|(index, _)| sequences[*index].clone()).collect();
        if asked.is_empty() {
            return Ok(Usage::default());
        }
        self.encoder.predict_masked(&asked, &mut |position, ids| {
            let (index, key) = &rest[position];
            self.keep(key, &bytes_of(&ids, u32::to_le_bytes))?;
            sink(*index, ids)
        })
    }
}

#[cfg(test)]
mod tests {
    use probity_lm::ScriptedEncoder;

    use super::*;

    /// Two numbers for each id, and an encoder that counts its sequences.
    fn counting() -> (Arc<dyn TextEncoder>, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let (states, masked) = (count.clone(), count.clone());
        let encoder = ScriptedEncoder::new(&["a", "b"], 2, 2, move |ids, layer| {
            states.fetch_add(usize::from(layer == 0), Ordering::Relaxed);
            ids.iter().flat_map(|id| [*id as f32 + 0.1, layer as f32 / 3.0]).collect()
        });
        let encoder = encoder.with_masked(move |sequence| {
            masked.fetch_add(1, Ordering::Relaxed);
            sequence.positions.iter().map(|position| *position as u32 + 4).collect()
        });
        (Arc::new(encoder), count)
    }

    fn states(encoder: &dyn TextEncoder, sequences: &[&[u32]], layers: &[usize]) -> Vec<HiddenStates> {
        let mut found = vec![None; sequences.len()];
        encoder
            .hidden_states(sequences, layers, &mut |index, states| {
                found[index] = Some(states);
                Ok(())
            })
            .expect("scripted");
        found.into_iter().map(|states| states.expect("each sequence is answered")).collect()
    }

    #[test]
    fn what_was_read_is_not_read_again_and_comes_back_bit_for_bit() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join(ENCODINGS);
        let (encoder, count) = counting();
        let sequences: [&[u32]; 3] = [&[4], &[4, 5], &[4]];
        let expected = states(encoder.as_ref(), &sequences, &[0, 2]);
        let masked = MaskedSequence { ids: vec![4, 3], positions: vec![1] };
        for (read, found) in [(4, 0), (0, 4)] {
            let place = Arc::new(Encodings::open(&path).expect("opened"));
            let recorded = RecordedEncoder::new(encoder.clone(), vec![place]);
            count.store(0, Ordering::Relaxed);
            assert_eq!(states(&recorded, &sequences, &[0, 2]), expected);
            let mut told = Vec::new();
            let predicted = recorded.predict_masked(std::slice::from_ref(&masked), &mut |_, ids| {
                told.push(ids);
                Ok(())
            });
            predicted.expect("scripted");
            assert_eq!(told, [[5]]);
            assert_eq!((count.load(Ordering::Relaxed), recorded.found()), (read, found));
        }
        // Other layers have other keys.
        let recorded = RecordedEncoder::new(encoder, vec![Arc::new(Encodings::open(&path).expect("opened"))]);
        states(&recorded, &sequences, &[0]);
        assert_eq!(recorded.found(), 0);
    }

    #[test]
    fn what_is_damaged_is_read_again() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join(ENCODINGS);
        let (encoder, _) = counting();
        let ask = || {
            let place = Arc::new(Encodings::open(&path).expect("opened"));
            let found = states(&RecordedEncoder::new(encoder.clone(), vec![place]), &[&[4, 5]], &[1]);
            assert_eq!(found, states(encoder.as_ref(), &[&[4, 5]], &[1]));
        };
        ask();
        let change = "UPDATE encodings SET value = zeroblob(16)";
        Connection::open(&path).expect("opened").execute_batch(change).expect(change);
        ask();
        std::fs::write(&path, "no database at all, and too long to be mistaken for one").expect("written");
        ask();
    }

    type IsRight = fn(&StoreError) -> bool;

    #[test]
    fn what_cannot_be_opened_for_another_reason_is_told_and_stays() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (encoder, _) = counting();
        let fresh = |name: &str| {
            let path = folder.path().join(name);
            let place = Arc::new(Encodings::open(&path).expect("opened"));
            states(&RecordedEncoder::new(encoder.clone(), vec![place]), &[&[4, 5]], &[1]);
            path
        };
        let change = |path: &Path, statement: &str| {
            Connection::open(path).expect("opened").execute_batch(statement).expect(statement);
        };
        let cases: [(&str, &str, &str, IsRight); 4] = [
            ("newer", "PRAGMA user_version = 99", "PRAGMA user_version = 1", |e| matches!(e, StoreError::Newer(_))),
            ("table", "CREATE TABLE more (x)", "DROP TABLE more", |e| matches!(e, StoreError::Foreign(_))),
            (
                "trigger",
                "CREATE TRIGGER t AFTER INSERT ON encodings BEGIN DELETE FROM encodings; END",
                "DROP TRIGGER t",
                |e| matches!(e, StoreError::Foreign(_)),
            ),
            ("lost", "ALTER TABLE encodings RENAME TO other", "ALTER TABLE other RENAME TO encodings", |e| {
                matches!(e, StoreError::Foreign(_))
            }),
        ];
        for (name, statement, undo, is_right) in cases {
            let path = fresh(name);
            change(&path, statement);
            let error = Encodings::open(&path).expect_err(name);
            assert!(is_right(&error), "{name}: {error}");
            change(&path, undo);
            let rows =
                Connection::open(&path)
                    .expect("opened")
                    .query_row("SELECT count(*) FROM encodings", [], |row| row.get(0));
            assert_eq!(rows, Ok(1), "{name}");
        }
        // A folder without write access: the log cannot be created.
        let path = fresh("log");
        let before = std::fs::read(&path).expect("read");
        std::fs::create_dir(folder.path().join("log-wal")).expect("created");
        let error = Encodings::open(&path).expect_err("no log");
        assert!(matches!(&error, StoreError::Database { .. }), "{error}");
        assert_eq!(std::fs::read(&path).expect("still there"), before);
    }
}
