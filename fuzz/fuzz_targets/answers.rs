//! A database of answers with arbitrary bytes is read or rejected. If bytes of a valid one change, it returns the
//! original answers, recomputes them, or is rejected. If rows change and get new checksums, it returns only valid
//! answers.
#![no_main]

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use probity_fuzz::{Input, Word, end_when_large, scratch};
use probity_lm::{Ask, LabelAnswer, LabelSet, LanguageModel as _, Prompt, ScoreRequest, ScoreResult, ScriptedModel};
use probity_store::{Answers, AnyAnswer, Recorded};
use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;
use rusqlite::types::ValueRef;
use sha2::{Digest as _, Sha256};

static FILE: LazyLock<PathBuf> = LazyLock::new(|| scratch().join("answers.sqlite"));

fn model() -> ScriptedModel {
    ScriptedModel::from_probabilities(|request| if request.id == "0" { vec![0.5, 0.25] } else { vec![0.1, 0.7] })
}

fn requests() -> Vec<ScoreRequest> {
    let labels = LabelSet::from_words(["A", "B"]).expect("labels");
    (0..3)
        .map(|n| ScoreRequest {
            id: n.to_string(),
            prompt: Prompt::Text(format!("Which? {n}")),
            ask: Ask::Labels(labels.clone()),
        })
        .collect()
}

/// A valid database and its answers.
static BASE: LazyLock<(Vec<u8>, Vec<ScoreResult>)> = LazyLock::new(|| {
    clear();
    let model = model();
    let expected = {
        let answers = Arc::new(Answers::open(&FILE).expect("a database"));
        let recorded = Recorded::new(Arc::new(&model), "", Some(&answers), None).expect("a model");
        let expected = recorded.score_all(&requests()).expect("answered");
        recorded.finish().expect("settled");
        expected
    };
    (std::fs::read(&*FILE).expect("there"), expected)
});

fn clear() {
    for side in ["", "-wal", "-shm", "-journal"] {
        let _ = std::fs::remove_file(format!("{}{side}", FILE.display()));
    }
}

#[derive(Arbitrary)]
enum Change {
    Byte(u16, u8),
    Cut(u16),
    Row { table: u8, column: u8, row: u8, value: Value },
    Text { row: u8, from: Word, to: Word },
    Number { row: u8, from: u8, to: f64 },
    Statement(u8),
}

#[derive(Arbitrary)]
enum Value {
    Null,
    Integer(i64),
    Real(f64),
    Text(Word),
    Blob(Vec<u8>),
    Zeros(u16),
}

/// Changes that leave a valid database with another schema or content.
const STATEMENTS: [&str; 10] = [
    "DROP TABLE requests",
    "DROP TABLE models",
    "ALTER TABLE answers RENAME TO others; CREATE VIEW answers AS SELECT * FROM others UNION ALL SELECT * FROM others",
    "ALTER TABLE answers RENAME TO others; CREATE VIEW answers AS WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x \
     + 1 FROM n) SELECT x AS key FROM n",
    "CREATE TRIGGER t AFTER INSERT ON requests BEGIN DELETE FROM answers; END",
    "ALTER TABLE answers ADD COLUMN more TEXT DEFAULT 'x'",
    "PRAGMA user_version = 7",
    "PRAGMA user_version = 0",
    "DELETE FROM answers",
    "CREATE INDEX i ON answers (answer)",
];

const TABLES: [(&str, &[&str]); 3] = [
    ("answers", &["key", "model", "kind", "question", "outcome", "answer", "seal"]),
    ("requests", &["position", "request", "key", "seal"]),
    ("models", &["id", "fingerprint", "precision", "device", "version", "settings", "description", "seal"]),
];

impl Change {
    /// Whether only bytes changed, so that checksums no longer match.
    fn is_damage(&self) -> bool {
        matches!(self, Self::Byte(..) | Self::Cut(_))
    }

    fn apply(&self, connection: &Connection) -> rusqlite::Result<()> {
        match self {
            Self::Byte(..) | Self::Cut(_) => Ok(()),
            Self::Statement(at) => connection.execute_batch(STATEMENTS[usize::from(*at) % STATEMENTS.len()]),
            Self::Row { table, column, row, value } => {
                let (table, columns) = TABLES[usize::from(*table) % TABLES.len()];
                let column = columns[usize::from(*column) % columns.len()];
                let update = format!("UPDATE {table} SET {column} = ?1 WHERE rowid % 4 = ?2 % 4");
                match value {
                    Value::Null => connection.execute(&update, (None::<i64>, row)),
                    Value::Integer(value) => connection.execute(&update, (value, row)),
                    Value::Real(value) => connection.execute(&update, (value, row)),
                    Value::Text(value) => connection.execute(&update, (value.0, row)),
                    Value::Blob(value) => connection.execute(&update, (value, row)),
                    Value::Zeros(count) => connection.execute(&update, (vec![0_u8; usize::from(*count)], row)),
                }
                .map(drop)
            }
            Self::Text { row, from, to } => {
                // A text that is doubled repeatedly would grow to a gigabyte.
                let update = "UPDATE answers SET answer = replace(answer, ?1, ?2), question = replace(question, ?1, ?2)
                              WHERE rowid % 4 = ?3 % 4 AND length(answer) + length(question) < 100000";
                connection.execute(update, (from.0, to.0, row)).map(drop)
            }
            Self::Number { row, from, to } => {
                let from = ["0.5", "0.25", "0.7", "-0.", "5", "1"][usize::from(*from) % 6];
                let update = "UPDATE answers SET answer = replace(answer, ?1, ?2) WHERE rowid % 4 = ?3 % 4";
                connection.execute(update, (from, to.to_string(), row)).map(drop)
            }
        }
    }
}

/// Recomputes the checksum of every row.
fn seal(connection: &Connection) -> rusqlite::Result<()> {
    connection.create_scalar_function("seal", -1, FunctionFlags::SQLITE_UTF8, |context| {
        let mut hasher = Sha256::new();
        for at in 0..context.len() {
            let (kind, bytes) = match context.get_raw(at) {
                ValueRef::Null => (0, Vec::new()),
                ValueRef::Integer(value) => (1, value.to_le_bytes().to_vec()),
                ValueRef::Real(value) => (2, value.to_le_bytes().to_vec()),
                ValueRef::Text(text) => (3, text.to_vec()),
                ValueRef::Blob(bytes) => (4, bytes.to_vec()),
            };
            hasher.update([kind]);
            hasher.update((bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        }
        Ok(hasher.finalize().to_vec())
    })?;
    for (table, columns) in TABLES {
        let name = table.trim_end_matches('s');
        let said = columns[..columns.len() - 1].join(", ");
        connection.execute(&format!("UPDATE {table} SET seal = seal('{name}', {said})"), [])?;
    }
    Ok(())
}

/// Reads everything.
fn read_all(answers: &Answers) {
    let _ = answers.check(drop);
    let _ = answers.count();
    let _ = answers.requests(|_, _| {});
    let _ = answers.outcomes(|_, _, _| {});
    let _ = answers.named("1");
    for asked in answers.page(0, 10).unwrap_or_default() {
        if let AnyAnswer::Score(result) = &asked.answer {
            let _ = result.labels().is_none_or(LabelAnswer::is_sound);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let (base, expected) = &*BASE;
    clear();
    // SQLite keeps memory of every database that it opened.
    end_when_large();
    let mut faithful = false;
    match Input::<Vec<Change>>::new(data) {
        Some(Input::Text(bytes)) => std::fs::write(&*FILE, bytes).expect("written"),
        Some(Input::Made(changes)) => {
            let mut bytes = base.clone();
            for change in changes.iter() {
                match change {
                    Change::Byte(at, to) => {
                        let at = usize::from(*at) % bytes.len().max(1);
                        bytes[at] = *to;
                    }
                    Change::Cut(at) => bytes.truncate(usize::from(*at).max(1)),
                    _ => {}
                }
            }
            faithful = changes.iter().all(Change::is_damage);
            std::fs::write(&*FILE, bytes).expect("written");
            if !faithful && let Ok(connection) = Connection::open(&*FILE) {
                let _ =
                    changes.iter().try_for_each(|change| change.apply(&connection)).and_then(|()| seal(&connection));
            }
        }
        None => return,
    }
    if let Ok(answers) = Answers::open_read_only(&FILE) {
        read_all(&answers);
    }
    let Ok(answers) = Answers::open(&FILE).map(Arc::new) else { return };
    let model = model();
    let Ok(recorded) = Recorded::new(Arc::new(&model), "", Some(&answers), None) else { return };
    if let Ok(found) = recorded.score_all(&requests()) {
        if faithful {
            assert_eq!(&found, expected);
        }
        assert!(found.iter().all(|result| result.labels().is_none_or(LabelAnswer::is_sound)));
    }
    let _ = recorded.finish();
    read_all(&answers);
});
