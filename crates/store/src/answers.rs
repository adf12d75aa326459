//! A database of model answers, keyed by the content of the query.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, ReentrantMutex};
use probity_lm::{
    Ask, GenerateRequest, GenerateResult, LabelAnswer, ModelDescription, Outcome, ScoreRequest, ScoreResult,
    device_kind,
};
use rusqlite::functions::FunctionFlags;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::StoreError;
use crate::access::{Access, create_folders, create_new};
use crate::database::{self, PATIENCE, format, has_tables, objects, patiently};

/// File name in a run folder and in a shared cache folder.
pub const ANSWERS: &str = "answers.sqlite";

/// The version of the tables and of the key content.
// Increment with every change of the tables or keys: a database of another version is rejected instead of misread.
const FORMAT: i64 = 2;

/// Maximum time between flushes: the first answer after this interval is flushed to disk with all earlier ones.
const FLUSH_AFTER: Duration = Duration::from_secs(2);

/// Maximum size of the write-ahead log, in pages of 4 KiB: fast models could otherwise fill a disk between two flushes.
const MOST_PAGES_IN_LOG: i64 = 2_000;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS models (
    id INTEGER PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    precision TEXT NOT NULL,
    device TEXT NOT NULL,
    version TEXT NOT NULL,
    settings TEXT NOT NULL,
    description TEXT NOT NULL,
    seal BLOB NOT NULL,
    UNIQUE (fingerprint, precision, device, version, settings)
);
CREATE TABLE IF NOT EXISTS answers (
    key BLOB PRIMARY KEY NOT NULL,
    model INTEGER NOT NULL REFERENCES models (id),
    kind TEXT NOT NULL,
    question TEXT NOT NULL,
    outcome TEXT NOT NULL,
    answer TEXT NOT NULL,
    seal BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS requests (
    position INTEGER PRIMARY KEY,
    request TEXT NOT NULL,
    key BLOB NOT NULL REFERENCES answers (key),
    seal BLOB NOT NULL
);
";

/// The seal of a row is the SHA-256 of its content, which detects bit errors of disks and cables on reading.
pub(crate) const ANSWER_SEAL: &str = "seal('answer', a.key, a.model, a.kind, a.question, a.outcome, a.answer)";
/// The seal of a row that links a request to its query.
pub(crate) const REQUEST_SEAL: &str = "seal('request', r.position, r.request, r.key)";
/// The seal of a model row.
const MODEL_SEAL: &str =
    "seal('model', m.id, m.fingerprint, m.precision, m.device, m.version, m.settings, m.description)";

/// Key of an answer: SHA-256 over the version of probity, the model's fingerprint, its precision, the device, its
/// settings, and the whole query.
#[derive(Debug, Clone, Copy)]
struct AnswerKey([u8; 32]);

/// Tells label queries from continuation queries.
pub(crate) const LABELS: &str = "labels";
const CONTINUATION: &str = "continuation";
pub(crate) const READING: &str = "reading";
pub(crate) const TOKENS: &str = "tokens";
pub(crate) const CLASSES: &str = "classes";

/// A query whose answer is stored.
pub trait KeptQuestion {
    /// Type of the answer.
    type Answer: Serialize + DeserializeOwned;
    /// Name of the query type in the table.
    const KIND: &'static str;

    /// Id of the query, for messages.
    fn id(&self) -> &str;

    /// Everything that the answer depends on besides the model, as a JSON list that begins with the prompt.
    fn content(&self) -> Result<String, serde_json::Error>;

    /// The outcome of an answer.
    fn outcome(answer: &Self::Answer) -> &Outcome;

    /// Whether an answer is plausible: probabilities are valid and agree with their logarithms.
    fn is_sound(answer: &Self::Answer) -> bool;
}

impl KeptQuestion for ScoreRequest {
    type Answer = ScoreResult;
    const KIND: &'static str = "score";

    fn id(&self) -> &str {
        &self.id
    }

    fn content(&self) -> Result<String, serde_json::Error> {
        match &self.ask {
            Ask::Labels(labels) => serde_json::to_string(&(&self.prompt, LABELS, labels)),
            Ask::Continuation(text) => serde_json::to_string(&(&self.prompt, CONTINUATION, text)),
            Ask::Reading(reading) => serde_json::to_string(&(&self.prompt, READING, reading)),
            Ask::Tokens(tokens) => serde_json::to_string(&(&self.prompt, TOKENS, tokens)),
            Ask::Classes => serde_json::to_string(&(&self.prompt, CLASSES, ())),
        }
    }

    fn outcome(answer: &ScoreResult) -> &Outcome {
        &answer.outcome
    }

    fn is_sound(answer: &ScoreResult) -> bool {
        answer.labels().is_none_or(LabelAnswer::is_sound)
            && answer.continuation().is_none_or(|text| text.logprob <= 0.0)
            && answer
                .reading()
                .is_none_or(|reading| reading.states.iter().flat_map(|s| &s.values).all(|v| v.is_finite()))
            && answer.classes().is_none_or(|answer| answer.classes.iter().all(|class| class.logit.is_finite()))
    }
}

impl KeptQuestion for GenerateRequest {
    type Answer = GenerateResult;
    const KIND: &'static str = "generate";

    fn id(&self) -> &str {
        &self.id
    }

    fn content(&self) -> Result<String, serde_json::Error> {
        let asked = (&self.prompt, self.max_tokens, &self.stop, self.sampling, &self.constraint, &self.verdict);
        // Only if present: earlier entries without this field keep their keys.
        match self.alternatives {
            None => serde_json::to_string(&asked),
            Some(count) => {
                let (prompt, max_tokens, stop, sampling, constraint, verdict) = asked;
                serde_json::to_string(&(prompt, max_tokens, stop, sampling, constraint, verdict, count))
            }
        }
    }

    fn outcome(answer: &GenerateResult) -> &Outcome {
        &answer.outcome
    }

    fn is_sound(answer: &GenerateResult) -> bool {
        answer.verdict.as_ref().is_none_or(ScoreRequest::is_sound)
    }
}

/// Model answers in an `SQLite` database, and the requests of a run that they belong to. A stored answer survives a
/// crash of the process. A power failure may lose the answers since the last flush, which happens with the first answer
/// after two seconds. Several processes may share a database.
#[derive(Debug)]
pub struct Answers {
    pub(crate) path: PathBuf,
    pub(crate) connection: ReentrantMutex<Connection>,
    flushed: Mutex<Instant>,
}

/// A model in an answer database.
#[derive(Debug, Clone)]
pub struct ModelEntry {
    id: i64,
    /// Hash state of the common prefix of the model's keys.
    hasher: Sha256,
}

impl ModelEntry {
    /// The key of a query to this model, from its content.
    fn key<Q: KeptQuestion>(&self, content: &str) -> AnswerKey {
        let mut hasher = self.hasher.clone();
        hasher.update(Q::KIND);
        hasher.update(content);
        AnswerKey(hasher.finalize().into())
    }

    /// Prepares a query to this model for lookup.
    pub fn entry<Q: KeptQuestion>(&self, question: &Q) -> Result<QuestionEntry, serde_json::Error> {
        let content = question.content()?;
        Ok(QuestionEntry { key: self.key::<Q>(&content), content })
    }
}

/// A query in its database form.
#[derive(Debug, Clone)]
pub struct QuestionEntry {
    key: AnswerKey,
    content: String,
}

/// Result of a lookup.
#[derive(Debug, Clone, PartialEq)]
pub enum FoundAnswer<A> {
    /// The stored answer.
    Answer(A),
    /// No answer.
    Nothing,
    /// A corrupt row: treated as missing, and replaced by the next answer.
    Damaged,
}

/// Summary of a run's requests in a database, as recorded in the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswersExtent {
    /// Number of requests.
    pub requests: usize,
    /// SHA-256, in hex, over the seals of each request and its answer, in order.
    pub sha256: String,
}

/// A request and its position in the run.
#[derive(Debug, Clone, Copy)]
pub struct NamedRequest<'a> {
    /// From 0, over all lists of the run.
    pub position: usize,
    /// Id of the request.
    pub request: &'a str,
}

impl Answers {
    /// Opens or creates the database at `path`.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        // An existing file may belong to another program.
        match path.symlink_metadata() {
            Ok(found) if !found.is_file() => return Err(StoreError::NoFile(path.to_owned())),
            _ => {}
        }
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(path)?;
            prepare(&connection)?;
            // A database of another program stays unchanged.
            if format(&connection)? == 0 && !objects(&connection, "main")?.is_empty() {
                return Ok(connection);
            }
            // A write-ahead log keeps the database consistent if the process or machine stops, and an answer costs
            // microseconds.
            connection.pragma_update(None, "journal_mode", "wal")?;
            connection.pragma_update(None, "synchronous", "normal")?;
            // The log is flushed by time (see `flush_in_time`) and when it becomes large.
            connection.pragma_update(None, "wal_autocheckpoint", MOST_PAGES_IN_LOG)?;
            if format(&connection)? == 0 {
                connection
                    .execute_batch(&format!("BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {FORMAT}; COMMIT;"))?;
            }
            Ok(connection)
        };
        Self::checked(path, patiently(open))
    }

    /// Opens the database of a shared cache folder. Creates both with private permissions if missing.
    pub fn open_shared(folder: &Path) -> Result<Self, StoreError> {
        create_folders(folder).map_err(StoreError::io("created", folder))?;
        let path = folder.join(ANSWERS);
        match create_new(&path, Access::Private) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(StoreError::io("created", &path)(error)),
            _ => Self::open(&path),
        }
    }

    /// Opens an existing database read-only, including on read-only media.
    pub fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(StoreError::NoFile(path.to_owned()));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open_with_flags(path, flags)?;
            prepare(&connection)?;
            format(&connection)?;
            Ok(connection)
        };
        let connection = open().or_else(|error| match (error.sqlite_error_code(), uri(path, "immutable=1")) {
            // `SQLite` creates files beside a database with a write-ahead log even for reading. If it cannot create
            // any, no other process can write either.
            (Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly), Some(uri)) if path.is_file() => {
                Connection::open_with_flags(uri, flags).and_then(|connection| prepare(&connection).map(|()| connection))
            }
            _ => Err(error),
        });
        Self::checked(path, connection)
    }

    fn checked(path: &Path, connection: rusqlite::Result<Connection>) -> Result<Self, StoreError> {
        let found = connection.and_then(|connection| Ok((format(&connection)?, connection)));
        let (format, connection) = found.map_err(StoreError::database("opened", path))?;
        match format {
            FORMAT if !has_our_tables(&connection, "main").map_err(StoreError::database("opened", path))? => {
                Err(StoreError::Foreign(path.to_owned()))
            }
            FORMAT => Ok(Self {
                path: path.to_owned(),
                connection: ReentrantMutex::new(connection),
                flushed: Mutex::new(Instant::now()),
            }),
            0 => Err(StoreError::NoAnswers(path.to_owned())),
            1..FORMAT => Err(StoreError::Older(path.to_owned())),
            _ => Err(StoreError::Newer(path.to_owned())),
        }
    }

    /// Path of the database.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Finds or adds a model; `settings` are the settings that answers depend on.
    pub fn model(&self, description: &ModelDescription, settings: &str) -> Result<ModelEntry, StoreError> {
        let connection = self.connection.lock();
        let version = env!("CARGO_PKG_VERSION");
        let (fingerprint, precision, device) =
            (&description.fingerprint, description.precision.as_str(), device_kind(&description.device));
        let text = serde_json::to_string(description)
            .map_err(|source| StoreError::Json { path: self.path.clone(), source })?;
        let parts = [fingerprint.as_str(), precision, device, version, settings];
        let add = || -> rusqlite::Result<i64> {
            let [fingerprint, precision, device, version, settings] = parts;
            let find = "SELECT id FROM models WHERE fingerprint = ?1 AND precision = ?2 AND device = ?3 AND version = \
                        ?4 AND settings = ?5";
            let parts = params![fingerprint, precision, device, version, settings];
            let id = || connection.query_row(find, parts, |row| row.get::<_, i64>(0));
            if id().optional()?.is_none() {
                // A single damaged row must be this model's. Reusing it is safe, because answer keys depend on the
                // model, not on its row.
                let heal = format!(
                    "UPDATE models SET fingerprint = ?1, precision = ?2, device = ?3, version = ?4, settings = ?5
                     WHERE (SELECT count(*) FROM models AS m WHERE seal <> {MODEL_SEAL}) = 1 AND id = (SELECT id FROM \
                     models AS m WHERE seal <> {MODEL_SEAL})"
                );
                connection.execute(&heal, parts)?;
            }
            // The last words of the query repair a damaged description.
            let add = "INSERT INTO models (fingerprint, precision, device, version, settings, description, seal) \
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, x'')
                ON CONFLICT DO UPDATE SET description = excluded.description";
            connection.execute(add, params![fingerprint, precision, device, version, settings, text])?;
            let id = id()?;
            connection.execute(&format!("UPDATE models AS m SET seal = {MODEL_SEAL} WHERE id = ?1"), [id])?;
            Ok(id)
        };
        let id = add().map_err(StoreError::database("written", &self.path))?;
        let mut hasher = Sha256::new();
        for part in parts {
            // Lengths make the concatenation unambiguous.
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Ok(ModelEntry { id, hasher })
    }

    /// Looks up the answer to a query. The outcome that a prompt is too long is not stored: it depends on the memory of
    /// the machine and costs nothing to recompute.
    pub fn get<Q: KeptQuestion>(&self, entry: &QuestionEntry) -> Result<FoundAnswer<Q::Answer>, StoreError> {
        let connection = self.connection.lock();
        let get = || -> rusqlite::Result<Option<Option<String>>> {
            let find = format!(
                // Compares the text of the query as well, so that the answer matches even if keys collide.
                "SELECT CASE WHEN a.seal = {ANSWER_SEAL} AND a.question = ?2 THEN a.answer END FROM answers a WHERE \
                 key = ?1 AND outcome <> 'too_long'"
            );
            let mut find = connection.prepare_cached(&find)?;
            find.query_row(params![&entry.key.0[..], entry.content], |row| row.get(0)).optional()
        };
        let Some(sealed) = get().map_err(StoreError::database("read", &self.path))? else {
            return Ok(FoundAnswer::Nothing);
        };
        let answer: Option<Q::Answer> = sealed.and_then(|text| serde_json::from_str(&text).ok());
        // A valid seal shows that the row is as it was written; its content must be plausible too.
        Ok(answer.filter(Q::is_sound).map_or(FoundAnswer::Damaged, FoundAnswer::Answer))
    }

    /// Stores the answer to a query of this model, and the request it belongs to in a run's own database.
    pub fn put<Q: KeptQuestion>(
        &self,
        model: &ModelEntry,
        entry: &QuestionEntry,
        answer: &Q::Answer,
        named: Option<NamedRequest<'_>>,
    ) -> Result<(), StoreError> {
        let connection = self.connection.lock();
        let text =
            serde_json::to_string(answer).map_err(|source| StoreError::Json { path: self.path.clone(), source })?;
        let put = || -> rusqlite::Result<()> {
            // Both rows or neither: a request without an answer counts as damaged.
            let together = connection.unchecked_transaction()?;
            let insert = "INSERT OR REPLACE INTO answers (key, model, kind, question, outcome, answer, seal)
                VALUES (?1, ?2, ?3, ?4, ?5, ?6, seal('answer', ?1, ?2, ?3, ?4, ?5, ?6))";
            let mut insert = connection.prepare_cached(insert)?;
            insert.execute(params![
                &entry.key.0[..],
                model.id,
                Q::KIND,
                entry.content,
                Q::outcome(answer).name(),
                text
            ])?;
            if let Some(named) = named {
                self.insert_name(named, entry)?;
            }
            together.commit()?;
            self.flush_in_time()
        };
        put().map_err(StoreError::database("written", &self.path))
    }

    /// Links a request of the run to a query.
    pub fn name(&self, named: NamedRequest<'_>, entry: &QuestionEntry) -> Result<(), StoreError> {
        let connection = self.connection.lock();
        let name = || -> rusqlite::Result<()> {
            let find = format!(
                "SELECT 1 FROM requests r WHERE position = ?1 AND request = ?2 AND key = ?3 AND seal = {REQUEST_SEAL}"
            );
            let mut find = connection.prepare_cached(&find)?;
            // A lookup is cheaper than a transaction.
            if find.exists(params![named.position as i64, named.request, &entry.key.0[..]])? {
                Ok(())
            } else {
                self.insert_name(named, entry)
            }
        };
        name().map_err(StoreError::database("written", &self.path))
    }

    fn insert_name(&self, named: NamedRequest<'_>, entry: &QuestionEntry) -> rusqlite::Result<()> {
        let connection = self.connection.lock();
        let insert = "INSERT OR REPLACE INTO requests (position, request, key, seal) VALUES (?1, ?2, ?3, \
                      seal('request', ?1, ?2, ?3))";
        let mut insert = connection.prepare_cached(insert)?;
        insert.execute(params![named.position as i64, named.request, &entry.key.0[..]])?;
        Ok(())
    }

    /// Removes the requests from this position on, left by a longer earlier run. Their answers stay.
    pub fn forget_requests_from(&self, position: usize) -> Result<(), StoreError> {
        let connection = self.connection.lock();
        let forget = connection.execute("DELETE FROM requests WHERE position >= ?1 OR position < 0", [position as i64]);
        forget.map_err(StoreError::database("written", &self.path))?;
        Ok(())
    }

    /// Copies all answers of another database and their models, without the requests.
    pub fn absorb(&self, other: &Path) -> Result<(), StoreError> {
        // First check that the other database has our tables and version.
        drop(Self::open_read_only(other)?);
        let connection = self.connection.lock();
        let absorb = || -> rusqlite::Result<()> {
            let place = uri(other, "mode=ro").unwrap_or_else(|| other.display().to_string());
            connection.execute("ATTACH ?1 AS other", [place])?;
            let copy = || -> rusqlite::Result<()> {
                let together = connection.unchecked_transaction()?;
                let of_model = "fingerprint, precision, device, version, settings";
                connection.execute(
                    &format!(
                        "INSERT OR IGNORE INTO models ({of_model}, description, seal) SELECT {of_model}, description, \
                         x'' FROM other.models ORDER BY id"
                    ),
                    [],
                )?;
                connection.execute(&format!("UPDATE models AS m SET seal = {MODEL_SEAL} WHERE seal = x''"), [])?;
                // A model may have another number here, and the seal of a row covers it.
                let copy = format!(
                    "INSERT OR IGNORE INTO answers (key, model, kind, question, outcome, answer, seal)
                     SELECT a.key, m.id, a.kind, a.question, a.outcome, a.answer,
                         seal('answer', a.key, m.id, a.kind, a.question, a.outcome, a.answer)
                     FROM other.answers a JOIN other.models o ON o.id = a.model JOIN models m USING ({of_model})
                     WHERE a.seal = {ANSWER_SEAL}"
                );
                connection.execute(&copy, [])?;
                together.commit()
            };
            let copied = copy();
            connection.execute("DETACH other", [])?;
            copied
        };
        absorb().map_err(StoreError::database("copied", other))
    }

    /// Removes answers without a request in the run, and models without answers.
    pub fn forget_unasked(&self) -> Result<(), StoreError> {
        let connection = self.connection.lock();
        let forget = connection.execute_batch(
            "DELETE FROM answers WHERE key NOT IN (SELECT key FROM requests);
             DELETE FROM models WHERE id NOT IN (SELECT model FROM answers);",
        );
        forget.map_err(StoreError::database("written", &self.path))
    }

    /// Merges the write-ahead log into the database file, so that readers need no other files until the next write. Has
    /// no effect while another process has the database open.
    pub fn settle(&self) {
        let connection = self.connection.lock();
        let settled = connection
            .busy_timeout(Duration::ZERO)
            .and_then(|()| connection.pragma_update(None, "journal_mode", "delete"));
        // The database is consistent either way.
        let _ = settled.and_then(|()| connection.busy_timeout(PATIENCE));
    }

    fn flush_in_time(&self) -> rusqlite::Result<()> {
        let connection = self.connection.lock();
        let mut flushed = self.flushed.lock();
        if flushed.elapsed() < FLUSH_AFTER {
            return Ok(());
        }
        *flushed = Instant::now();
        // Pages in use by other processes are left for the next flush.
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
    }

    /// Checks all rows and passes each damaged one to `damaged`: its request in a run's own database, otherwise its
    /// key. Returns the number of rows, or an error if the database is unreadable.
    pub fn check(&self, mut damaged: impl FnMut(String)) -> Result<usize, StoreError> {
        let connection = self.connection.lock();
        let tables = [
            (
                "answers a",
                ANSWER_SEAL,
                "coalesce('the answer to `' || (SELECT request FROM requests WHERE key = a.key) || '`', 'answer ' || \
                 hex(a.key))",
            ),
            ("requests r", REQUEST_SEAL, "'request ' || r.position"),
            ("models m", MODEL_SEAL, "'model ' || m.id"),
        ];
        let mut rows = 0;
        let mut of_table = |(table, seal, name): (&str, &str, &str)| -> rusqlite::Result<()> {
            let mut find = connection
                .prepare(&format!("SELECT CASE WHEN seal = {seal} THEN NULL ELSE {name} END FROM {table}"))?;
            let mut found = find.query([])?;
            while let Some(row) = found.next()? {
                rows += 1;
                if let Some(name) = row.get(0)? {
                    damaged(name);
                }
            }
            Ok(())
        };
        tables.into_iter().try_for_each(&mut of_table).map_err(StoreError::database("read", &self.path))?;
        if let Some(wrong) = self.wrong_pages("integrity_check")? {
            damaged(format!("the database: {wrong}"));
        }
        Ok(rows)
    }

    /// Checks the page structure of the database, without which its content cannot be fully read.
    pub(crate) fn check_pages(&self) -> Result<(), StoreError> {
        let wrong = self.wrong_pages("quick_check")?;
        wrong.map_or(Ok(()), |why| Err(StoreError::BrokenPages { path: self.path.clone(), why }))
    }

    fn wrong_pages(&self, check: &str) -> Result<Option<String>, StoreError> {
        let connection = self.connection.lock();
        let told: rusqlite::Result<String> = connection.query_row(&format!("PRAGMA {check}(1)"), [], |row| row.get(0));
        Ok(Some(told.map_err(StoreError::database("read", &self.path))?).filter(|told| told != "ok"))
    }

    /// Summary of the run's own requests.
    pub fn extent(&self) -> Result<AnswersExtent, StoreError> {
        let connection = self.connection.lock();
        let extent = || -> rusqlite::Result<AnswersExtent> {
            let find = "SELECT r.seal, a.seal FROM requests r LEFT JOIN answers a ON a.key = r.key ORDER BY r.position";
            let mut find = connection.prepare(find)?;
            let mut rows = find.query([])?;
            let (mut requests, mut hasher) = (0, Sha256::new());
            while let Some(row) = rows.next()? {
                requests += 1;
                for column in 0..2 {
                    let seal: Option<Vec<u8>> = row.get(column)?;
                    // A missing answer has an empty seal here, so that the hash differs.
                    let seal = seal.unwrap_or_default();
                    hasher.update((seal.len() as u64).to_le_bytes());
                    hasher.update(seal);
                }
            }
            Ok(AnswersExtent { requests, sha256: format!("{:x}", hasher.finalize()) })
        };
        extent().map_err(StoreError::database("read", &self.path))
    }

    /// Number of requests of the run.
    pub fn count_requests(&self) -> Result<usize, StoreError> {
        self.count_of("requests")
    }

    /// Number of answers.
    pub fn count(&self) -> Result<usize, StoreError> {
        self.count_of("answers")
    }

    fn count_of(&self, table: &str) -> Result<usize, StoreError> {
        let connection = self.connection.lock();
        let count = connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0));
        Ok(count.map_err(StoreError::database("read", &self.path))? as usize)
    }
}

/// Prepares a connection to an untrusted file and adds the function `seal`.
fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    database::prepare(connection)?;
    learn_to_seal(connection)
}

/// Adds `seal(…)` to a connection: SHA-256 over its arguments, each with its type and length.
fn learn_to_seal(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("seal", -1, flags, |context| {
        let mut hasher = Sha256::new();
        for at in 0..context.len() {
            let (kind, bytes) = match context.get_raw(at) {
                ValueRef::Null => (0, Vec::new()),
                ValueRef::Integer(value) => (1, value.to_le_bytes().to_vec()),
                ValueRef::Real(value) => (2, value.to_le_bytes().to_vec()),
                ValueRef::Text(text) => (3, text.to_vec()),
                ValueRef::Blob(bytes) => (4, bytes.to_vec()),
            };
            // Type and length make the hash unambiguous for rows that split the same bytes differently.
            hasher.update([kind]);
            hasher.update((bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        }
        Ok(hasher.finalize().to_vec())
    })
}

/// See [`has_tables`].
pub(crate) fn has_our_tables(connection: &Connection, database: &str) -> rusqlite::Result<bool> {
    has_tables(connection, database, SCHEMA)
}

/// The path as a URI with this option; `None` if it has no such form.
pub(crate) fn uri(path: &Path, option: &str) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let escaped: String = path
        .to_str()?
        .chars()
        // These characters end the path of a URI or begin an escape.
        .map(|c| if matches!(c, '%' | '?' | '#') { format!("%{:02x}", c as u32) } else { c.into() })
        .collect();
    Some(format!("file:{escaped}?{option}"))
}
