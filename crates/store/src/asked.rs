//! The requests of runs, read back with what was asked and what came of it.

use std::path::Path;

use probity_lm::{Ask, GenerateRequest, GenerateResult, Outcome, Prompt, ScoreResult};
use rusqlite::{Row, params};

use crate::answers::{ANSWER_SEAL, CLASSES, KeptQuestion, LABELS, READING, REQUEST_SEAL, TOKENS, has_our_tables, uri};
use crate::{Answers, StoreError};

/// A request of a run with its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedRequest {
    /// The request's place in the run, from 0.
    pub position: usize,
    /// Its id: the sample's, a slash, and what tells it from the sample's others.
    pub request: String,
    /// What the model was shown.
    pub prompt: Prompt,
    /// What was asked about the next tokens; absent where a text was generated.
    pub ask: Option<Ask>,
    /// What came back.
    pub answer: AnyAnswer,
}

/// The sample that a request is about: what `find` knows by the longest id that the request's begins with.
pub fn sample_of<T>(request: &str, find: impl Fn(&str) -> Option<T>) -> Option<T> {
    // From the right: ids of samples may have slashes of their own.
    request.rmatch_indices('/').find_map(|(at, _)| find(&request[..at]))
}

/// An answer to a question of either kind.
#[derive(Debug, Clone, PartialEq)]
pub enum AnyAnswer {
    /// Log-probabilities of labels or of a continuation.
    Score(ScoreResult),
    /// A generated text.
    Generate(GenerateResult),
}

/// A request whose answers differ in two runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Its id.
    pub request: String,
    /// The answer in the database that was asked.
    pub here: AnyAnswer,
    /// The answer in the other.
    pub there: AnyAnswer,
}

/// How the requests of two runs overlap, by their ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunOverlap {
    /// Requests in both.
    pub both: usize,
    /// Of these, those whose answers differ in a bit.
    pub differ: usize,
    /// Requests in the database that was asked alone.
    pub only_here: usize,
    /// Requests in the other alone.
    pub only_there: usize,
}

impl AnyAnswer {
    /// By the kind of the question: the JSON of a text can be taken for that of a score.
    fn read(kind: &str, json: &str) -> Result<Self, serde_json::Error> {
        if kind == GenerateRequest::KIND {
            Ok(Self::Generate(serde_json::from_str(json)?))
        } else {
            Ok(Self::Score(serde_json::from_str(json)?))
        }
    }

    /// How it ended.
    pub fn outcome(&self) -> &Outcome {
        match self {
            Self::Score(result) => &result.outcome,
            Self::Generate(result) => &result.outcome,
        }
    }
}

impl Answers {
    /// Up to `limit` requests of the run with their answers, in the run's order, from place `from` on. Empty at the
    /// end.
    pub fn page(&self, from: usize, limit: usize) -> Result<Vec<AskedRequest>, StoreError> {
        self.select("r.position >= ?1 ORDER BY r.position LIMIT ?2", params![from as i64, limit as i64])
    }

    /// The place and the id of every request, in the run's order; nothing of what was asked is read.
    pub fn requests(&self, mut each: impl FnMut(usize, &str)) -> Result<(), StoreError> {
        self.each_row(
            &format!("SELECT r.seal = {REQUEST_SEAL}, r.position, r.request FROM requests r ORDER BY r.position"),
            |row| {
                each(row.get::<_, i64>(1)? as usize, row.get_ref(2)?.as_str()?);
                Ok(())
            },
        )
    }

    /// The id of every request, whether it was for a text, and how its answer ended, in the run's order.
    pub fn outcomes(&self, mut each: impl FnMut(&str, bool, &str)) -> Result<(), StoreError> {
        let joined = "FROM requests r LEFT JOIN answers a USING (key) ORDER BY r.position";
        self.each_row(&format!("SELECT {}, r.request, a.kind, a.outcome {joined}", both_sealed()), |row| {
            let is_text = row.get_ref(2)?.as_str()? == GenerateRequest::KIND;
            each(row.get_ref(1)?.as_str()?, is_text, row.get_ref(3)?.as_str()?);
            Ok(())
        })
    }

    /// Rows whose first column says whether they are as they were written.
    fn each_row(&self, select: &str, mut each: impl FnMut(&Row<'_>) -> rusqlite::Result<()>) -> Result<(), StoreError> {
        let connection = self.connection.lock();
        let mut all = || -> rusqlite::Result<bool> {
            let mut find = connection.prepare(select)?;
            let mut rows = find.query([])?;
            while let Some(row) = rows.next()? {
                if !row.get::<_, bool>(0)? {
                    return Ok(false);
                }
                each(row)?;
            }
            Ok(true)
        };
        let sealed = all().map_err(StoreError::database("read", &self.path))?;
        if sealed { Ok(()) } else { Err(self.damaged()) }
    }

    fn damaged(&self) -> StoreError {
        StoreError::Damaged { path: self.path.clone() }
    }

    /// The request of that id, or those whose ids begin with it and a slash: all of a sample. In the run's order.
    pub fn named(&self, id: &str) -> Result<Vec<AskedRequest>, StoreError> {
        // `0` follows `/`: between the two lies all that begins with the id and a slash.
        self.select(
            "r.request = ?1 OR (r.request > ?1 || '/' AND r.request < ?1 || '0') ORDER BY r.position",
            params![id],
        )
    }

    /// Puts the answers of requests that are in both databases side by side, in the order of this one: `each` gets
    /// those that differ.
    pub fn differences(&self, other: &Path, mut each: impl FnMut(Difference)) -> Result<RunOverlap, StoreError> {
        let connection = self.connection.lock();
        let attached = uri(other, "mode=ro").ok_or_else(|| StoreError::NoAnswers { path: other.to_owned() })?;
        let mut overlap = RunOverlap::default();
        let (mut wrong, mut refused) = (None, None);
        let compare = || -> rusqlite::Result<()> {
            connection.execute("ATTACH ?1 AS other", [attached])?;
            if !has_our_tables(&connection, "other")? {
                refused = Some(StoreError::Foreign { path: other.to_owned() });
                return Ok(());
            }
            let here = both_sealed();
            let there = here.replace("a.", "b.").replace("r.", "s.");
            let both = format!(
                "SELECT r.request, CASE WHEN a.answer <> b.answer THEN a.answer END, b.answer, a.kind, b.kind, {here}, \
                 {there}
                 FROM main.requests r LEFT JOIN main.answers a USING (key)
                 JOIN other.requests s ON s.request = r.request LEFT JOIN other.answers b ON b.key = s.key ORDER BY \
                 r.position"
            );
            let mut both = connection.prepare(&both)?;
            let mut rows = both.query([])?;
            while let Some(row) = rows.next()? {
                for (at, path) in [(5, &self.path), (6, &other.to_owned())] {
                    if !row.get::<_, bool>(at)? {
                        refused = Some(StoreError::Damaged { path: path.clone() });
                        return Ok(());
                    }
                }
                overlap.both += 1;
                let Some(here) = row.get::<_, Option<String>>(1)? else { continue };
                overlap.differ += 1;
                let [there, kind_here, kind_there] = [row.get::<_, String>(2)?, row.get(3)?, row.get(4)?];
                match (AnyAnswer::read(&kind_here, &here), AnyAnswer::read(&kind_there, &there)) {
                    (Ok(here), Ok(there)) => each(Difference { request: row.get(0)?, here, there }),
                    // Told at the end: to leave in the middle would leave the other database attached.
                    (Err(source), _) | (_, Err(source)) => wrong = Some(source),
                }
            }
            let count = |table: &str| {
                connection.query_row(&format!("SELECT count(*) FROM {table}.requests"), [], |row| row.get::<_, i64>(0))
            };
            overlap.only_here = (count("main")? as usize).saturating_sub(overlap.both);
            overlap.only_there = (count("other")? as usize).saturating_sub(overlap.both);
            Ok(())
        };
        let compared = compare();
        // Whatever came of it: the connection goes on being used.
        let _ = connection.execute("DETACH other", []);
        compared.map_err(StoreError::database("read", &self.path))?;
        if let Some(error) = refused {
            return Err(error);
        }
        wrong.map_or(Ok(overlap), |source| Err(StoreError::Json { path: self.path.clone(), source }))
    }

    fn select(&self, condition: &str, values: impl rusqlite::Params) -> Result<Vec<AskedRequest>, StoreError> {
        let connection = self.connection.lock();
        let columns = format!(
            "SELECT r.position, r.request, a.kind, a.question, a.answer, {} FROM requests r LEFT JOIN answers a USING \
             (key) WHERE",
            both_sealed()
        );
        let rows = || -> rusqlite::Result<Vec<Option<Result<AskedRequest, serde_json::Error>>>> {
            let mut find = connection.prepare_cached(&format!("{columns} {condition}"))?;
            find.query_map(values, |row| if row.get(5)? { asked(row).map(Some) } else { Ok(None) })?.collect()
        };
        let rows = rows().map_err(StoreError::database("read", &self.path))?;
        let json = |source| StoreError::Json { path: self.path.clone(), source };
        rows.into_iter().map(|row| row.ok_or_else(|| self.damaged())?.map_err(json)).collect()
    }
}

/// Whether a request and its answer are there and as they were written: a request whose answer is not found has lost
/// it.
fn both_sealed() -> String {
    format!("coalesce(r.seal = {REQUEST_SEAL} AND a.seal = {ANSWER_SEAL}, 0)")
}

/// A row of [`Answers::select`].
fn asked(row: &Row<'_>) -> rusqlite::Result<Result<AskedRequest, serde_json::Error>> {
    let (position, request): (i64, String) = (row.get(0)?, row.get(1)?);
    let [kind, question, answer] = [row.get::<_, String>(2)?, row.get(3)?, row.get(4)?];
    let read = || {
        let answer = AnyAnswer::read(&kind, &answer)?;
        if kind == GenerateRequest::KIND {
            // Only the prompt is read of it, so that a field that is added behind it does not matter here.
            let content: Vec<serde_json::Value> = serde_json::from_str(&question)?;
            let prompt: Prompt = serde_json::from_value(content.into_iter().next().unwrap_or_default())?;
            return Ok(AskedRequest { position: position as usize, request, prompt, ask: None, answer });
        }
        let (prompt, kind, asked): (Prompt, String, serde_json::Value) = serde_json::from_str(&question)?;
        let ask = match kind.as_str() {
            LABELS => Ask::Labels(serde_json::from_value(asked)?),
            READING => Ask::Reading(serde_json::from_value(asked)?),
            TOKENS => Ask::Tokens(serde_json::from_value(asked)?),
            CLASSES => Ask::Classes,
            _ => Ask::Continuation(serde_json::from_value(asked)?),
        };
        Ok(AskedRequest { position: position as usize, request, prompt, ask: Some(ask), answer })
    };
    Ok(read())
}
