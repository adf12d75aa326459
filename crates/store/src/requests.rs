//! Reads the requests of runs with their queries and answers.

use std::path::Path;

use probity_lm::{Ask, GenerateRequest, GenerateResult, Outcome, Prompt, ScoreResult};
use rusqlite::{Row, params};

use crate::answers::{ANSWER_SEAL, CLASSES, KeptQuestion, LABELS, READING, REQUEST_SEAL, TOKENS, has_our_tables, uri};
use crate::{Answers, StoreError};

/// A request of a run with its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct AnsweredRequest {
    /// Position of the request in the run, from 0.
    pub position: usize,
    /// Id of the request: the sample id, a slash, and a suffix that is unique in the sample.
    pub request: String,
    /// The prompt of the model.
    pub prompt: Prompt,
    /// The queried labels or continuation; absent for generated text.
    pub ask: Option<Ask>,
    /// The answer of the model.
    pub answer: AnyAnswer,
}

/// The sample of a request: the result of `find` for the longest matching prefix of the request id.
pub fn sample_of<T>(request: &str, find: impl Fn(&str) -> Option<T>) -> Option<T> {
    // From the right: sample ids may contain slashes.
    request.rmatch_indices('/').find_map(|(at, _)| find(&request[..at]))
}

/// An answer to a scoring or generation request.
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
    /// Id of the request.
    pub request: String,
    /// Answer in this database.
    pub here: AnyAnswer,
    /// Answer in the other database.
    pub there: AnyAnswer,
}

/// Overlap of the requests of two runs, by id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunOverlap {
    /// Requests in both databases.
    pub both: usize,
    /// Shared requests whose answers are not bit-identical.
    pub differ: usize,
    /// Requests only in this database.
    pub only_here: usize,
    /// Requests only in the other database.
    pub only_there: usize,
}

impl AnyAnswer {
    /// Parses by request type: the JSON of a text also parses as that of a score.
    fn read(kind: &str, json: &str) -> Result<Self, serde_json::Error> {
        if kind == GenerateRequest::KIND {
            Ok(Self::Generate(serde_json::from_str(json)?))
        } else {
            Ok(Self::Score(serde_json::from_str(json)?))
        }
    }

    /// The outcome of the answer.
    pub fn outcome(&self) -> &Outcome {
        match self {
            Self::Score(result) => &result.outcome,
            Self::Generate(result) => &result.outcome,
        }
    }
}

impl Answers {
    /// Returns up to `limit` requests with their answers, in the order of the run, from position `from`. Empty at the
    /// end.
    pub fn page(&self, from: usize, limit: usize) -> Result<Vec<AnsweredRequest>, StoreError> {
        self.select("r.position >= ?1 ORDER BY r.position LIMIT ?2", params![from as i64, limit as i64])
    }

    /// Calls `each` with the position and id of every request, in the order of the run, without reading the queries.
    pub fn requests(&self, mut each: impl FnMut(usize, &str)) -> Result<(), StoreError> {
        self.each_row(
            &format!("SELECT r.seal = {REQUEST_SEAL}, r.position, r.request FROM requests r ORDER BY r.position"),
            |row| {
                each(row.get::<_, i64>(1)? as usize, row.get_ref(2)?.as_str()?);
                Ok(())
            },
        )
    }

    /// Calls `each` with the id of every request, whether it generated text, and its outcome, in the order of the run.
    pub fn outcomes(&self, mut each: impl FnMut(&str, bool, &str)) -> Result<(), StoreError> {
        let joined = "FROM requests r LEFT JOIN answers a USING (key) ORDER BY r.position";
        self.each_row(&format!("SELECT {}, r.request, a.kind, a.outcome {joined}", both_sealed()), |row| {
            let is_text = row.get_ref(2)?.as_str()? == GenerateRequest::KIND;
            each(row.get_ref(1)?.as_str()?, is_text, row.get_ref(3)?.as_str()?);
            Ok(())
        })
    }

    /// Reads rows whose first column is whether the seal is valid.
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
        StoreError::Damaged(self.path.clone())
    }

    /// The request with this id, or the requests whose ids begin with it and a slash (all of a sample), in the order of
    /// the run.
    pub fn named(&self, id: &str) -> Result<Vec<AnsweredRequest>, StoreError> {
        // `0` is the character after `/`, so this range contains every id that begins with the id and a slash.
        self.select(
            "r.request = ?1 OR (r.request > ?1 || '/' AND r.request < ?1 || '0') ORDER BY r.position",
            params![id],
        )
    }

    /// Compares the answers of requests in both databases, in the order of this one; calls `each` for those that
    /// differ.
    pub fn differences(&self, other: &Path, mut each: impl FnMut(Difference)) -> Result<RunOverlap, StoreError> {
        let connection = self.connection.lock();
        let attached = uri(other, "mode=ro").ok_or_else(|| StoreError::NoAnswers(other.to_owned()))?;
        let mut overlap = RunOverlap::default();
        let (mut wrong, mut refused) = (None, None);
        let compare = || -> rusqlite::Result<()> {
            connection.execute("ATTACH ?1 AS other", [attached])?;
            if !has_our_tables(&connection, "other")? {
                refused = Some(StoreError::Foreign(other.to_owned()));
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
                        refused = Some(StoreError::Damaged(path.clone()));
                        return Ok(());
                    }
                }
                overlap.both += 1;
                let Some(here) = row.get::<_, Option<String>>(1)? else { continue };
                overlap.differ += 1;
                let [there, kind_here, kind_there] = [row.get::<_, String>(2)?, row.get(3)?, row.get(4)?];
                match (AnyAnswer::read(&kind_here, &here), AnyAnswer::read(&kind_there, &there)) {
                    (Ok(here), Ok(there)) => each(Difference { request: row.get(0)?, here, there }),
                    // Reported at the end: an early return would leave the other database attached.
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
        // Also after an error: the connection remains in use.
        let _ = connection.execute("DETACH other", []);
        compared.map_err(StoreError::database("read", &self.path))?;
        if let Some(error) = refused {
            return Err(error);
        }
        wrong.map_or(Ok(overlap), |source| Err(StoreError::Json { path: self.path.clone(), source }))
    }

    fn select(&self, condition: &str, values: impl rusqlite::Params) -> Result<Vec<AnsweredRequest>, StoreError> {
        let connection = self.connection.lock();
        let columns = format!(
            "SELECT r.position, r.request, a.kind, a.question, a.answer, {} FROM requests r LEFT JOIN answers a USING \
             (key) WHERE",
            both_sealed()
        );
        let rows = || -> rusqlite::Result<Vec<Option<Result<AnsweredRequest, serde_json::Error>>>> {
            let mut find = connection.prepare_cached(&format!("{columns} {condition}"))?;
            find.query_map(values, |row| if row.get(5)? { parse_request(row).map(Some) } else { Ok(None) })?.collect()
        };
        let rows = rows().map_err(StoreError::database("read", &self.path))?;
        let json = |source| StoreError::Json { path: self.path.clone(), source };
        rows.into_iter().map(|row| row.ok_or_else(|| self.damaged())?.map_err(json)).collect()
    }
}

/// Whether a request and its answer exist with valid seals; a request without an answer counts as damaged.
fn both_sealed() -> String {
    format!("coalesce(r.seal = {REQUEST_SEAL} AND a.seal = {ANSWER_SEAL}, 0)")
}

/// Parses a row of [`Answers::select`].
fn parse_request(row: &Row<'_>) -> rusqlite::Result<Result<AnsweredRequest, serde_json::Error>> {
    let (position, request): (i64, String) = (row.get(0)?, row.get(1)?);
    let [kind, question, answer] = [row.get::<_, String>(2)?, row.get(3)?, row.get(4)?];
    let read = || {
        let answer = AnyAnswer::read(&kind, &answer)?;
        if kind == GenerateRequest::KIND {
            // Only the prompt is read, so later fields do not matter here.
            let content: Vec<serde_json::Value> = serde_json::from_str(&question)?;
            let prompt: Prompt = serde_json::from_value(content.into_iter().next().unwrap_or_default())?;
            return Ok(AnsweredRequest { position: position as usize, request, prompt, ask: None, answer });
        }
        let (prompt, kind, asked): (Prompt, String, serde_json::Value) = serde_json::from_str(&question)?;
        let ask = match kind.as_str() {
            LABELS => Ask::Labels(serde_json::from_value(asked)?),
            READING => Ask::Reading(serde_json::from_value(asked)?),
            TOKENS => Ask::Tokens(serde_json::from_value(asked)?),
            CLASSES => Ask::Classes,
            _ => Ask::Continuation(serde_json::from_value(asked)?),
        };
        Ok(AnsweredRequest { position: position as usize, request, prompt, ask: Some(ask), answer })
    };
    Ok(read())
}
