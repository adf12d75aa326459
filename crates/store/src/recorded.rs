//! A model wrapper that stores answers and reuses stored ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use probity_lm::{
    GenerateRequest, GenerateResult, LanguageModel, LmError, ModelDescription, Requests, ScoreRequest, ScoreResult,
    Sink, SinkError, Usage, plain_error,
};

use crate::StoreError;
use crate::answers::{Answers, FoundAnswer, KeptQuestion, ModelEntry, NamedRequest, QuestionEntry};

/// A [`LanguageModel`] that looks up each answer, queries `model` for the missing ones, and stores them as they arrive.
/// The results equal those of `model`, except for their order and the usage: stored answers cost nothing.
pub struct Recorded<'a> {
    model: Arc<dyn LanguageModel + 'a>,
    /// The run's own answers, with the ids of its requests.
    own: Option<AnswerPlace>,
    /// Answers shared between runs.
    shared: Option<AnswerPlace>,
    tally: Arc<RunTally>,
}

/// Counts over all models of a run.
#[derive(Default)]
struct RunTally {
    /// Number of requests in earlier lists.
    asked: AtomicUsize,
    found: Arc<AtomicUsize>,
    /// Requests whose stored answer was damaged and which were queried again.
    damaged: Mutex<Vec<String>>,
}

/// An answer database and the model's entry in it.
struct AnswerPlace {
    answers: Arc<Answers>,
    model: ModelEntry,
}

/// A request without an answer so far.
struct OpenRequest {
    position: usize,
    entry: Option<QuestionEntry>,
    id: String,
}

impl<'a> Recorded<'a> {
    /// Wraps `model` with its settings; answers are stored in the run's `own` database and in a `shared` one.
    pub fn new(
        model: Arc<dyn LanguageModel + 'a>,
        settings: &str,
        own: Option<&Arc<Answers>>,
        shared: Option<&Arc<Answers>>,
    ) -> Result<Self, StoreError> {
        let place = |answers: &Arc<Answers>| {
            Ok(AnswerPlace { answers: answers.clone(), model: answers.model(model.description(), settings)? })
        };
        let place = |answers: Option<&Arc<Answers>>| answers.map(place).transpose();
        let (own, shared) = (place(own)?, place(shared)?);
        Ok(Self { model, own, shared, tally: Arc::default() })
    }

    /// Wraps another model of the same run: its answers are stored in the same databases, and its requests are numbered
    /// after earlier ones. [`Recorded::found`] and [`Recorded::finish`] cover all models together.
    pub fn beside<'b>(&self, model: Arc<dyn LanguageModel + 'b>, settings: &str) -> Result<Recorded<'b>, StoreError> {
        let [own, shared] = [&self.own, &self.shared].map(|place| place.as_ref().map(|place| &place.answers));
        let other = Recorded::new(model, settings, own, shared)?;
        Ok(Recorded { tally: self.tally.clone(), ..other })
    }

    /// Number of stored answers found so far.
    pub fn found(&self) -> usize {
        self.tally.found.load(Ordering::Relaxed)
    }

    /// The requests whose stored answers were damaged, with their file. They were queried again.
    pub fn damaged(&self) -> Vec<String> {
        self.tally.damaged.lock().clone()
    }

    /// The live counter of [`Recorded::found`], for other threads.
    pub fn found_so_far(&self) -> &Arc<AtomicUsize> {
        &self.tally.found
    }

    /// Marks the end of the run's requests: removes requests of a longer earlier run and settles the database.
    pub fn finish(&self) -> Result<(), StoreError> {
        let Some(own) = &self.own else { return Ok(()) };
        own.answers.forget_requests_from(self.tally.asked.load(Ordering::Relaxed))?;
        own.answers.settle();
        Ok(())
    }

    /// The entry of a query; the same in both databases.
    fn entry<Q: KeptQuestion>(&self, question: &Q) -> Result<Option<QuestionEntry>, SinkError> {
        let place = self.own.as_ref().or(self.shared.as_ref());
        place.map(|place| place.model.entry(question)).transpose().map_err(plain_error)
    }

    fn find<Q: KeptQuestion>(&self, open: &OpenRequest) -> Result<Option<Q::Answer>, StoreError> {
        let Some(entry) = &open.entry else { return Ok(None) };
        let get = |place: &Option<AnswerPlace>| -> Result<Option<Q::Answer>, StoreError> {
            let Some(place) = place else { return Ok(None) };
            Ok(match place.answers.get::<Q>(entry)? {
                FoundAnswer::Answer(answer) => Some(answer),
                FoundAnswer::Nothing => None,
                FoundAnswer::Damaged => {
                    // Reported, but not an error: the query is repeated and replaces the damaged answer.
                    self.tally.damaged.lock().push(format!("`{}` in {}", open.id, place.answers.path().display()));
                    None
                }
            })
        };
        // The run's own database first: a resumed run must use the answers of its tables.
        let mut answer = get(&self.own)?;
        if let (Some(_), Some(own)) = (&answer, &self.own) {
            own.answers.name(self.named(open), entry)?;
        } else {
            answer = get(&self.shared)?;
            if let (Some(answer), Some(own)) = (&answer, &self.own) {
                // A run copies shared answers, so that its folder is complete without the cache.
                own.answers.put::<Q>(&own.model, entry, answer, Some(self.named(open)))?;
            }
        }
        self.tally.found.fetch_add(usize::from(answer.is_some()), Ordering::Relaxed);
        Ok(answer)
    }

    fn keep<Q: KeptQuestion>(&self, open: &OpenRequest, answer: &Q::Answer) -> Result<(), StoreError> {
        let Some(entry) = &open.entry else { return Ok(()) };
        let put = |place: &AnswerPlace, named| place.answers.put::<Q>(&place.model, entry, answer, named);
        // The run's own database first: if the second write fails, the run keeps the answer.
        self.own.as_ref().map_or(Ok(()), |own| put(own, Some(self.named(open))))?;
        self.shared.as_ref().map_or(Ok(()), |shared| put(shared, None))
    }

    fn named<'o>(&self, open: &'o OpenRequest) -> NamedRequest<'o> {
        NamedRequest { position: self.tally.asked.load(Ordering::Relaxed) + open.position, request: &open.id }
    }

    fn ask<Q: KeptQuestion>(
        &self,
        requests: &mut Requests<'_, Q>,
        sink: &mut Sink<'_, Q::Answer>,
        answer: impl FnOnce(&mut Requests<'_, Q>, &mut Sink<'_, Q::Answer>) -> Result<Usage, LmError>,
    ) -> Result<Usage, LmError> {
        let sink = Mutex::new(sink);
        let refused: Mutex<Option<SinkError>> = Mutex::new(None);
        // By position among the requests passed to the model.
        let waiting: Mutex<BTreeMap<usize, OpenRequest>> = Mutex::default();
        let (mut taken, mut passed) = (0, 0);
        let mut next = || -> Result<Option<Q>, SinkError> {
            for request in &mut *requests {
                let open = OpenRequest { position: taken, entry: self.entry(&request)?, id: request.id().to_owned() };
                taken += 1;
                if let Some(answer) = self.find::<Q>(&open)? {
                    sink.lock()(open.position, answer)?;
                    continue;
                }
                waiting.lock().insert(passed, open);
                passed += 1;
                return Ok(Some(request));
            }
            Ok(None)
        };
        let mut missing = std::iter::from_fn(|| {
            // An iterator cannot return an error: end the list here, and return the error after the model has returned.
            if refused.lock().is_some() {
                return None;
            }
            next().unwrap_or_else(|error| {
                *refused.lock() = Some(error);
                None
            })
        });
        let usage = answer(&mut missing, &mut |index, answer| {
            let open = waiting.lock().remove(&index).ok_or("an answer came twice")?;
            // Stored before it is passed on: after a kill, no output exists without its answer.
            self.keep::<Q>(&open, &answer)?;
            sink.lock()(open.position, answer)
        });
        // After the list: positions in the list count from its start.
        self.tally.asked.fetch_add(taken, Ordering::Relaxed);
        match refused.into_inner() {
            Some(error) => Err(LmError::Sink(error)),
            None => usage,
        }
    }
}

impl LanguageModel for Recorded<'_> {
    fn description(&self) -> &ModelDescription {
        self.model.description()
    }

    fn score(
        &self,
        requests: &mut Requests<'_, ScoreRequest>,
        sink: &mut Sink<'_, ScoreResult>,
    ) -> Result<Usage, LmError> {
        self.ask(requests, sink, |requests, sink| self.model.score(requests, sink))
    }

    fn generate(
        &self,
        requests: &mut Requests<'_, GenerateRequest>,
        sink: &mut Sink<'_, GenerateResult>,
    ) -> Result<Usage, LmError> {
        self.ask(requests, sink, |requests, sink| self.model.generate(requests, sink))
    }
}

#[cfg(test)]
mod tests {
    use probity_lm::{Ask, LabelSet, Outcome, Prompt, ScriptedModel};

    use super::*;
    use crate::error::hint_of;
    use crate::{AnyAnswer, Difference, RunOverlap};

    fn request(text: &str) -> ScoreRequest {
        let labels = LabelSet::from_words(["A", "B"]).expect("valid");
        ScoreRequest { id: format!("id of {text}"), prompt: Prompt::Text(text.into()), ask: Ask::Labels(labels) }
    }

    /// A model that counts its requests; longer prompts have higher certainty, and one letter is never followed by B.
    fn counting() -> (ScriptedModel, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let model = ScriptedModel::from_probabilities(move |request| {
            counted.fetch_add(1, Ordering::Relaxed);
            let len = request.prompt.text().len() as f64;
            vec![1.0 - 1.0 / (1.0 + len), if len > 1.0 { 0.3 / (1.0 + len) } else { 0.0 }]
        });
        (model, count)
    }

    fn place(folder: &tempfile::TempDir, name: &str) -> Arc<Answers> {
        Arc::new(Answers::open(&folder.path().join(name)).expect("opened"))
    }

    #[test]
    fn what_was_answered_is_not_asked_again_and_comes_back_bit_for_bit() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (model, count) = counting();
        let requests: Vec<ScoreRequest> = ["x", "xy", "xyz", "xy"].map(request).into();
        let expected = model.score_all(&requests).expect("scripted");
        assert_eq!(expected[0].labels().expect("labels").labels[1].logprob, f64::NEG_INFINITY);
        for (asked, found) in [(4, 0), (0, 4)] {
            let answers = place(&folder, "a.sqlite");
            let recorded = Recorded::new(Arc::new(&model), "", Some(&answers), None).expect("readable");
            count.store(0, Ordering::Relaxed);
            assert_eq!(recorded.score_all(&requests).expect("answered"), expected);
            assert_eq!((count.load(Ordering::Relaxed), recorded.found()), (asked, found));
            assert_eq!(answers.count().expect("readable"), 3, "the same question is kept once");
        }
        // Other settings may give other answers.
        let answers = place(&folder, "a.sqlite");
        let other = Recorded::new(Arc::new(&model), "min_mass:0.9", Some(&answers), None).expect("readable");
        count.store(0, Ordering::Relaxed);
        other.score_all(&requests).expect("answered");
        assert_eq!((count.load(Ordering::Relaxed), other.found()), (4, 0));
    }

    #[test]
    fn a_list_that_is_cut_short_keeps_what_was_answered_and_goes_on_with_the_rest() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (model, count) = counting();
        let requests: Vec<ScoreRequest> = (0..10).map(|n| request(&"x".repeat(n + 1))).collect();
        let expected = model.score_all(&requests).expect("scripted");
        let answers = place(&folder, "a.sqlite");
        let recorded = Recorded::new(Arc::new(&model), "", Some(&answers), None).expect("readable");
        let mut taken = 0;
        let stopped = recorded.score(&mut requests.iter().cloned(), &mut |_, _| {
            taken += 1;
            if taken == 4 { Err("enough".into()) } else { Ok(()) }
        });
        assert!(matches!(stopped, Err(LmError::Sink(error)) if error.to_string() == "enough"));
        drop(answers);
        let answers = place(&folder, "a.sqlite");
        let recorded = Recorded::new(Arc::new(&model), "", Some(&answers), None).expect("readable");
        count.store(0, Ordering::Relaxed);
        assert_eq!(recorded.score_all(&requests).expect("answered"), expected);
        assert_eq!((count.load(Ordering::Relaxed), recorded.found()), (6, 4), "the refused answer is kept too");
        // A sink that rejects a stored answer ends the list as well.
        let refused = recorded.score(&mut requests.iter().cloned(), &mut |_, _| Err("no".into()));
        assert!(matches!(refused, Err(LmError::Sink(error)) if error.to_string() == "no"));
    }

    #[test]
    fn runs_share_answers_and_each_has_its_own() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (model, count) = counting();
        let (first, second, shared) =
            (place(&folder, "1.sqlite"), place(&folder, "2.sqlite"), place(&folder, "shared.sqlite"));
        let ask = |places: [&Arc<Answers>; 2], texts: &[&str]| {
            count.store(0, Ordering::Relaxed);
            let recorded = Recorded::new(Arc::new(&model), "", Some(places[0]), Some(places[1])).expect("readable");
            recorded.score_all(&texts.iter().map(|text| request(text)).collect::<Vec<_>>()).expect("answered");
            (count.load(Ordering::Relaxed), recorded.found())
        };
        assert_eq!(ask([&first, &shared], &["a", "ab"]), (2, 0));
        assert_eq!(ask([&second, &shared], &["ab", "abc"]), (1, 1));
        let counts = [&first, &second, &shared].map(|answers| answers.count().expect("readable"));
        assert_eq!(counts, [2, 2, 3]);
    }

    #[test]
    fn that_a_prompt_is_too_long_is_shown_but_asked_again() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let outcome = Outcome::TooLong { tokens_needed: 9, limit: 4 };
        let model = ScriptedModel::from_results(move |_| ScoreResult {
            outcome: outcome.clone(),
            prompt_tokens: 9,
            answer: None,
        });
        let answers = place(&folder, "a.sqlite");
        for _ in 0..2 {
            let recorded = Recorded::new(Arc::new(&model), "", Some(&answers), None).expect("readable");
            recorded.score_all(&[request("x")]).expect("answered");
            assert_eq!((recorded.found(), answers.count().expect("readable")), (0, 1));
        }
        assert_eq!(answers.page(0, 9).expect("readable")[0].answer.outcome().name(), "too_long");
    }

    #[test]
    fn requests_are_read_back_in_the_order_of_the_run_and_by_name() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (model, _) = counting();
        let answers = place(&folder, "a.sqlite");
        let named = |id: &str, text: &str| ScoreRequest { id: id.into(), ..request(text) };
        let long = [
            named("b/1", "x"),
            named("a/1", "y"),
            named("a/2", "x"),
            named("a", "z"),
            named("a!/1", "w"),
            named("ab/1", "v"),
        ];
        for requests in [&long[..], &long[..5]] {
            let recorded = Recorded::new(Arc::new(&model), "", Some(&answers), None).expect("readable");
            let (first, second) = requests.split_at(2);
            let results =
                [recorded.score_all(first).expect("answered"), recorded.score_all(second).expect("answered")].concat();
            recorded.finish().expect("written");
            let asked = answers.page(0, 100).expect("readable");
            assert_eq!(asked.len(), requests.len());
            for (position, (asked, request)) in asked.iter().zip(requests).enumerate() {
                assert_eq!((asked.position, &asked.request, &asked.prompt), (position, &request.id, &request.prompt));
                assert_eq!(asked.ask.as_ref(), Some(&request.ask));
                assert_eq!(asked.answer, AnyAnswer::Score(results[position].clone()));
            }
        }
        let ids =
            |id: &str| answers.named(id).expect("readable").into_iter().map(|asked| asked.request).collect::<Vec<_>>();
        assert_eq!(ids("a"), ["a/1", "a/2", "a"]);
        assert_eq!((ids("a/2"), ids("ab")), (vec!["a/2".to_owned()], vec![]));
        let rest = answers.page(3, 1).expect("readable");
        assert_eq!((rest.len(), rest[0].position), (1, 3));
    }

    #[test]
    fn two_runs_are_put_side_by_side() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (model, _) = counting();
        let (first, second) = (place(&folder, "a #1?.sqlite"), place(&folder, "b.sqlite"));
        let named = |id: &str, text: &str| ScoreRequest { id: id.into(), ..request(text) };
        let ask = |place: &Arc<Answers>, requests: &[ScoreRequest]| {
            Recorded::new(Arc::new(&model), "", Some(place), None)
                .expect("readable")
                .score_all(requests)
                .expect("answered")
        };
        let here = ask(&first, &[named("same", "x"), named("other", "y"), named("gone", "z")]);
        let there = ask(&second, &[named("new", "w"), named("other", "yy"), named("same", "x"), named("newer", "ww")]);
        let mut found = Vec::new();
        let overlap = first.differences(second.path(), |difference| found.push(difference)).expect("readable");
        assert_eq!(overlap, RunOverlap { both: 2, differ: 1, only_here: 1, only_there: 2 });
        let [here, there] = [&here[1], &there[1]].map(|result| AnyAnswer::Score(result.clone()));
        assert_eq!(found, [Difference { request: "other".into(), here, there }]);
        let back = second.differences(first.path(), |_| ()).expect("readable");
        assert_eq!((back.only_here, back.only_there), (2, 1));
    }

    #[test]
    fn a_database_is_read_where_nothing_can_be_written() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (model, _) = counting();
        let answers = place(&folder, "a.sqlite");
        Recorded::new(Arc::new(&model), "", Some(&answers), None)
            .expect("readable")
            .score_all(&[request("x")])
            .expect("answered");
        drop(answers);
        let mut permissions = std::fs::metadata(folder.path()).expect("there").permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(folder.path(), permissions.clone()).expect("changed");
        let path = folder.path().join("a.sqlite");
        assert_eq!(Answers::open_read_only(&path).expect("readable").count().expect("readable"), 1);
        let immutable =
            rusqlite::Connection::open(crate::answers::uri(&path, "immutable=1").expect("it has one")).expect("opened");
        let count: i64 = immutable.query_row("SELECT count(*) FROM answers", [], |row| row.get(0)).expect("readable");
        assert_eq!(count, 1);
        assert!(matches!(Answers::open_read_only(&folder.path().join("b.sqlite")), Err(StoreError::Database { .. })));
        #[expect(clippy::permissions_set_readonly_false, reason = "so that the folder can be removed")]
        permissions.set_readonly(false);
        std::fs::set_permissions(folder.path(), permissions).expect("changed");
    }

    #[test]
    fn what_is_no_database_and_one_of_a_newer_version_are_refused() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("a.sqlite");
        std::fs::write(&path, "not a database, but long enough to be taken for one at first sight".repeat(20))
            .expect("written");
        let error = Answers::open(&path).expect_err("no database");
        assert!(error.to_string().contains("a.sqlite could not be opened"), "{error}");
        assert!(hint_of(&error).starts_with("move it away"), "{error:?}");
        let newer = folder.path().join("b.sqlite");
        drop(Answers::open(&newer).expect("opened"));
        let connection = rusqlite::Connection::open(&newer).expect("opened");
        connection.pragma_update(None, "user_version", 99).expect("written");
        assert!(matches!(Answers::open(&newer), Err(StoreError::Newer(_))));
        let strangers = folder.path().join("c.sqlite");
        rusqlite::Connection::open(&strangers)
            .and_then(|other| other.execute_batch("CREATE TABLE t (x)"))
            .expect("made");
        let before = std::fs::read(&strangers).expect("there");
        assert!(matches!(Answers::open(&strangers), Err(StoreError::NoAnswers(_))));
        assert!(std::fs::read(&strangers).expect("there") == before, "a stranger's database stays as it is");
        rusqlite::Connection::open(folder.path().join("d.sqlite")).expect("made");
        drop(Answers::open(&folder.path().join("d.sqlite")).expect("opened"));
        rusqlite::Connection::open(folder.path().join("d.sqlite"))
            .and_then(|other| other.execute_batch("CREATE TABLE t (x)"))
            .expect("added");
        assert!(matches!(Answers::open(&folder.path().join("d.sqlite")), Err(StoreError::Foreign(_))));
    }

    #[test]
    fn a_database_that_another_process_is_making_is_waited_for() {
        let dir = tempfile::tempdir().expect("temp");
        let path = dir.path().join("answers.sqlite");
        let other = rusqlite::Connection::open(&path).expect("opened");
        // SQLite immediately refuses to change the journal mode while another connection has a write transaction.
        other.execute_batch("BEGIN IMMEDIATE").expect("begun");
        std::thread::scope(|scope| {
            let opened = scope.spawn(|| Answers::open(&path).map(drop));
            std::thread::sleep(std::time::Duration::from_millis(50));
            other.execute_batch("COMMIT").expect("ended");
            opened.join().expect("joined").expect("opened");
        });
    }

    #[test]
    fn a_bit_that_was_turned_is_refused_healed_or_without_effect() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (model, _) = counting();
        let requests: Vec<ScoreRequest> = (0..12).map(|n| request(&"x".repeat(n + 1))).collect();
        let expected = model.score_all(&requests).expect("scripted");
        let whole = place(&folder, "whole.sqlite");
        let recorded = Recorded::new(Arc::new(&model), "", Some(&whole), None).expect("readable");
        recorded.score_all(&requests).expect("answered");
        recorded.finish().expect("settled");
        drop(recorded);
        drop(whole);
        let bytes = std::fs::read(folder.path().join("whole.sqlite")).expect("there");
        let (mut refused, mut healed) = (0, 0);
        // Fixed positions, spread over the file by the golden section.
        for turn in 0..400_u64 {
            let bit = (turn as f64 * 0.618_033_988_749_895).fract() * (bytes.len() * 8) as f64;
            let mut damaged = bytes.clone();
            damaged[bit as usize / 8] ^= 1 << (bit as usize % 8);
            let path = folder.path().join("damaged.sqlite");
            std::fs::write(&path, &damaged).expect("written");
            let answered = Answers::open(&path).map(Arc::new).and_then(|answers| {
                let recorded = Recorded::new(Arc::new(&model), "", Some(&answers), None)?;
                let found = recorded.score_all(&requests);
                healed += usize::from(!recorded.damaged().is_empty());
                Ok(found)
            });
            match answered {
                Ok(Ok(answers)) => assert_eq!(answers, expected, "bit {bit}"),
                Ok(Err(_)) | Err(_) => refused += 1,
            }
            for side in ["", "-wal", "-shm"] {
                let _ = std::fs::remove_file(folder.path().join(format!("damaged.sqlite{side}")));
            }
        }
        assert!(refused > 0 && healed > 0, "{refused} refused, {healed} healed");
    }

    #[test]
    fn a_database_whose_tables_are_not_ours_is_refused_before_anything_is_asked_of_it() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let statements = [
            "ALTER TABLE answers RENAME TO others;
             CREATE VIEW answers AS WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS key \
             FROM n",
            "CREATE TRIGGER t AFTER INSERT ON requests BEGIN DELETE FROM answers; END",
            "DROP TABLE requests",
            "ALTER TABLE models ADD COLUMN more",
        ];
        place(&folder, "sound.sqlite");
        for (index, statement) in statements.iter().enumerate() {
            let name = format!("{index}.sqlite");
            place(&folder, &name).connection.lock().execute_batch(statement).expect(statement);
            let path = folder.path().join(name);
            let foreign = |error: StoreError| matches!(error, StoreError::Foreign(_));
            assert!(Answers::open(&path).is_err_and(foreign), "{statement}");
            assert!(Answers::open_read_only(&path).is_err_and(foreign), "{statement}");
            assert!(place(&folder, "sound.sqlite").differences(&path, |_| {}).is_err_and(foreign), "{statement}");
        }
    }

    #[test]
    fn damaged_rows_are_named_by_a_check_and_refused_where_runs_are_read() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (model, count) = counting();
        let answers = place(&folder, "a.sqlite");
        let requests: Vec<ScoreRequest> = ["x", "xy"].map(request).into();
        Recorded::new(Arc::new(&model), "", Some(&answers), None)
            .expect("readable")
            .score_all(&requests)
            .expect("answered");
        let wrong = |answers: &Answers| {
            let mut wrong = Vec::new();
            answers.check(|row| wrong.push(row)).map(|rows| (rows, wrong)).expect("readable")
        };
        assert_eq!(wrong(&answers), (5, Vec::new()), "two answers, two requests, a model");
        answers
            .connection
            .lock()
            .execute("UPDATE answers SET answer = replace(answer, '0.', '1.') WHERE question LIKE '%xy%'", [])
            .expect("changed");
        answers
            .connection
            .lock()
            .execute("UPDATE requests SET request = 'another' WHERE position = 0", [])
            .expect("changed");
        let (_, rows) = wrong(&answers);
        assert_eq!(rows, ["the answer to `id of xy`", "request 0"]);
        assert!(matches!(answers.page(0, 10), Err(StoreError::Damaged(_))));
        count.store(0, Ordering::Relaxed);
        let recorded = Recorded::new(Arc::new(&model), "", Some(&answers), None).expect("readable");
        recorded.score_all(&requests).expect("answered");
        assert_eq!((count.load(Ordering::Relaxed), recorded.damaged().len()), (1, 1), "asked again, and told");
        assert_eq!(wrong(&answers), (5, Vec::new()), "healed");
        // A request whose answer is missing differs from a request that was never made.
        answers
            .connection
            .lock()
            .execute_batch("PRAGMA foreign_keys = off; DELETE FROM answers WHERE question LIKE '%xy%'")
            .expect("changed");
        assert!(matches!(answers.outcomes(|_, _, _| {}), Err(StoreError::Damaged(_))));
        assert!(matches!(answers.named("id of xy"), Err(StoreError::Damaged(_))));
    }
}
