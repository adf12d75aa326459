//! A model's answers in a database, keyed by the content of what was asked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use probity_lm::{Ask, GenerateRequest, GenerateResult, ModelDescription, Outcome, ScoreRequest, ScoreResult};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::StoreError;

/// The file's name in a run folder and in a folder of answers that runs share.
pub const ANSWERS: &str = "answers.sqlite";

/// The version of the tables and of what goes into a key.
const FORMAT: i64 = 1;

/// How long a process waits for another that writes to the same database.
const PATIENCE: Duration = Duration::from_secs(30);

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS models (
    id INTEGER PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    precision TEXT NOT NULL,
    device TEXT NOT NULL,
    version TEXT NOT NULL,
    settings TEXT NOT NULL,
    description TEXT NOT NULL,
    UNIQUE (fingerprint, precision, device, version, settings)
);
CREATE TABLE IF NOT EXISTS answers (
    key BLOB PRIMARY KEY NOT NULL,
    model INTEGER NOT NULL REFERENCES models (id),
    kind TEXT NOT NULL,
    request TEXT NOT NULL,
    outcome TEXT NOT NULL,
    answer TEXT NOT NULL
) WITHOUT ROWID;
";

/// What an answer is found by: SHA-256 over the version of probity, the model's fingerprint, its arithmetic, the device, its settings, and
/// everything that was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key([u8; 32]);

/// Something that is asked of a model and whose answer is kept.
pub trait Question {
    /// What comes back.
    type Answer: Serialize + DeserializeOwned;
    /// The table's word for it.
    const KIND: &'static str;

    /// Names the question to people.
    fn id(&self) -> &str;

    /// Everything that the answer depends on besides the model, as JSON.
    fn content(&self) -> Result<Vec<u8>, serde_json::Error>;

    /// How an answer ended.
    fn outcome(answer: &Self::Answer) -> &Outcome;
}

impl Question for ScoreRequest {
    type Answer = ScoreResult;
    const KIND: &'static str = "score";

    fn id(&self) -> &str {
        &self.id
    }

    fn content(&self) -> Result<Vec<u8>, serde_json::Error> {
        match &self.ask {
            Ask::Labels(labels) => serde_json::to_vec(&(&self.prompt, "labels", labels)),
            Ask::Continuation(text) => serde_json::to_vec(&(&self.prompt, "continuation", text)),
        }
    }

    fn outcome(answer: &ScoreResult) -> &Outcome {
        &answer.outcome
    }
}

impl Question for GenerateRequest {
    type Answer = GenerateResult;
    const KIND: &'static str = "generate";

    fn id(&self) -> &str {
        &self.id
    }

    fn content(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&(&self.prompt, self.max_tokens, &self.stop, self.sampling, &self.verdict))
    }

    fn outcome(answer: &GenerateResult) -> &Outcome {
        &answer.outcome
    }
}

/// Answers of models, in a SQLite database. Each is there once it was put, whatever becomes of the process; a machine that loses power may
/// lose the last few. Several processes may share one.
#[derive(Debug)]
pub struct Answers {
    path: PathBuf,
    connection: Connection,
}

/// A model in a database of answers.
#[derive(Debug, Clone)]
pub struct ModelEntry {
    id: i64,
    /// What every key of the model begins with.
    hasher: Sha256,
}

impl ModelEntry {
    /// The key of a question to this model.
    pub fn key<Q: Question>(&self, question: &Q) -> Result<Key, serde_json::Error> {
        let mut hasher = self.hasher.clone();
        hasher.update(Q::KIND);
        hasher.update(question.content()?);
        Ok(Key(hasher.finalize().into()))
    }
}

impl Answers {
    /// Opens the database at `path`, or makes one.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let open = || -> rusqlite::Result<(Connection, i64)> {
            let connection = Connection::open(path)?;
            connection.busy_timeout(PATIENCE)?;
            // With a write-ahead log the database is whole whenever the process or the machine stops, and an answer costs microseconds.
            connection.pragma_update(None, "journal_mode", "wal")?;
            connection.pragma_update(None, "synchronous", "normal")?;
            let format = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
            if format == 0 {
                connection.execute_batch(&format!("BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;"))?;
            }
            Ok((connection, format))
        };
        let (connection, format) = open().map_err(StoreError::database("opened", path))?;
        if format > FORMAT {
            return Err(StoreError::Newer { path: path.to_owned() });
        }
        Ok(Self { path: path.to_owned(), connection })
    }

    /// Opens a database that is there, to read alone.
    pub fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(StoreError::database("opened", path))?;
        Ok(Self { path: path.to_owned(), connection })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Finds or adds the model that is asked; `settings` are those that an answer depends on besides.
    pub fn model(&self, description: &ModelDescription, settings: &str) -> Result<ModelEntry, StoreError> {
        let version = env!("CARGO_PKG_VERSION");
        let (fingerprint, precision, device) = (&description.fingerprint, description.precision.as_str(), &description.device);
        let text = serde_json::to_string(description).map_err(|source| StoreError::Json { path: self.path.clone(), source })?;
        let parts = [fingerprint.as_str(), precision, device, version, settings];
        let add = || -> rusqlite::Result<i64> {
            let [fingerprint, precision, device, version, settings] = parts;
            self.connection.execute(
                "INSERT OR IGNORE INTO models (fingerprint, precision, device, version, settings, description) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![fingerprint, precision, device, version, settings, text],
            )?;
            let find = "SELECT id FROM models WHERE fingerprint = ?1 AND precision = ?2 AND device = ?3 AND version = ?4 AND settings = ?5";
            self.connection.query_row(find, params![fingerprint, precision, device, version, settings], |row| row.get(0))
        };
        let id = add().map_err(StoreError::database("written", &self.path))?;
        let mut hasher = Sha256::new();
        for part in parts {
            // Lengths keep two parts from being read as two others.
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Ok(ModelEntry { id, hasher })
    }

    /// The answer of that key, where there is one.
    pub fn get<Q: Question>(&self, key: &Key) -> Result<Option<Q::Answer>, StoreError> {
        let get = || -> rusqlite::Result<Option<String>> {
            let mut find = self.connection.prepare_cached("SELECT answer FROM answers WHERE key = ?1")?;
            find.query_row([&key.0[..]], |row| row.get(0)).optional()
        };
        let text = get().map_err(StoreError::database("read", &self.path))?;
        text.map(|text| serde_json::from_str(&text).map_err(|source| StoreError::Json { path: self.path.clone(), source })).transpose()
    }

    /// Keeps an answer. One that is there already stays: it is the same.
    pub fn put<Q: Question>(&self, model: &ModelEntry, key: &Key, id: &str, answer: &Q::Answer) -> Result<(), StoreError> {
        let text = serde_json::to_string(answer).map_err(|source| StoreError::Json { path: self.path.clone(), source })?;
        let put = || -> rusqlite::Result<usize> {
            let insert = "INSERT OR IGNORE INTO answers (key, model, kind, request, outcome, answer) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            let mut insert = self.connection.prepare_cached(insert)?;
            insert.execute(params![&key.0[..], model.id, Q::KIND, id, Q::outcome(answer).name(), text])
        };
        put().map_err(StoreError::database("written", &self.path))?;
        Ok(())
    }

    /// How many answers there are.
    pub fn count(&self) -> Result<u64, StoreError> {
        let count = self.connection.query_row("SELECT count(*) FROM answers", [], |row| row.get(0));
        count.map_err(StoreError::database("read", &self.path))
    }
}
