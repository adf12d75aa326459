//! A model whose answers are kept, and that is not asked twice.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use probity_lm::{
    GenerateRequest, GenerateResult, LanguageModel, LmError, ModelDescription, Outcome, Requests, ScoreRequest, ScoreResult, Sink,
    SinkError, Usage,
};

use crate::StoreError;
use crate::answers::{Answers, Key, ModelEntry, Question};

/// A [`LanguageModel`] that looks for each answer where answers are kept, asks `model` for those that are missing, and keeps them as they
/// come. What comes out is the same as without, but for the order and the usage: what was found cost nothing.
pub struct Recorded<'a> {
    model: &'a dyn LanguageModel,
    /// Looked through in this order; what is missing in one is put there.
    kept: Vec<(&'a Answers, ModelEntry)>,
    found: Cell<usize>,
}

impl<'a> Recorded<'a> {
    /// Answers of `model` with those settings, kept in each of `places`.
    pub fn new(model: &'a dyn LanguageModel, settings: &str, places: impl IntoIterator<Item = &'a Answers>) -> Result<Self, StoreError> {
        let entry = |place: &'a Answers| Ok((place, place.model(model.description(), settings)?));
        Ok(Self { model, kept: places.into_iter().map(entry).collect::<Result<_, StoreError>>()?, found: Cell::new(0) })
    }

    /// How many answers were found so far.
    pub fn found(&self) -> usize {
        self.found.get()
    }

    /// The key of a question; the same in all places.
    fn key<Q: Question>(&self, question: &Q) -> Result<Option<Key>, SinkError> {
        Ok(self.kept.first().map(|(_, entry)| entry.key(question)).transpose()?)
    }

    fn find<Q: Question>(&self, key: &Key, id: &str) -> Result<Option<Q::Answer>, StoreError> {
        for (index, (place, _)) in self.kept.iter().enumerate() {
            if let Some(answer) = place.get::<Q>(key)? {
                for (place, entry) in &self.kept[..index] {
                    place.put::<Q>(entry, key, id, &answer)?;
                }
                self.found.set(self.found.get() + 1);
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    fn keep<Q: Question>(&self, key: &Key, id: &str, answer: &Q::Answer) -> Result<(), StoreError> {
        // Whether a prompt fits depends on the machine's memory too, and costs nothing to find out.
        if matches!(Q::outcome(answer), Outcome::TooLong { .. }) {
            return Ok(());
        }
        self.kept.iter().try_for_each(|(place, entry)| place.put::<Q>(entry, key, id, answer))
    }

    fn ask<Q: Question>(
        &self,
        requests: &mut Requests<'_, Q>,
        sink: &mut Sink<'_, Q::Answer>,
        answer: impl FnOnce(&mut Requests<'_, Q>, &mut Sink<'_, Q::Answer>) -> Result<Usage, LmError>,
    ) -> Result<Usage, LmError> {
        let sink = RefCell::new(sink);
        let refused: RefCell<Option<SinkError>> = RefCell::new(None);
        // Of each request that the model has: its position among all, its key and its id.
        let asked: RefCell<BTreeMap<usize, (usize, Option<Key>, String)>> = RefCell::default();
        let (mut position, mut passed) = (0, 0);
        let mut next = || -> Result<Option<Q>, SinkError> {
            for request in &mut *requests {
                let at = position;
                position += 1;
                let key = self.key(&request)?;
                if let Some(key) = &key
                    && let Some(answer) = self.find::<Q>(key, request.id())?
                {
                    sink.borrow_mut()(at, answer)?;
                    continue;
                }
                asked.borrow_mut().insert(passed, (at, key, request.id().to_owned()));
                passed += 1;
                return Ok(Some(request));
            }
            Ok(None)
        };
        let mut missing = std::iter::from_fn(|| {
            if refused.borrow().is_some() {
                return None;
            }
            next().unwrap_or_else(|error| {
                *refused.borrow_mut() = Some(error);
                None
            })
        });
        let usage = answer(&mut missing, &mut |index, answer| {
            let (at, key, id) = asked.borrow_mut().remove(&index).ok_or("an answer came twice")?;
            if let Some(key) = key {
                self.keep::<Q>(&key, &id, &answer)?;
            }
            sink.borrow_mut()(at, answer)
        });
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

    fn score(&self, requests: &mut Requests<'_, ScoreRequest>, sink: &mut Sink<'_, ScoreResult>) -> Result<Usage, LmError> {
        self.ask(requests, sink, |requests, sink| self.model.score(requests, sink))
    }

    fn generate(&self, requests: &mut Requests<'_, GenerateRequest>, sink: &mut Sink<'_, GenerateResult>) -> Result<Usage, LmError> {
        self.ask(requests, sink, |requests, sink| self.model.generate(requests, sink))
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use probity_lm::{Ask, LabelSet, Prompt, ScriptedModel};

    use super::*;

    fn request(text: &str) -> ScoreRequest {
        let labels = LabelSet::words(["A", "B"]).expect("valid");
        ScoreRequest { id: format!("id of {text}"), prompt: Prompt::Text(text.into()), ask: Ask::Labels(labels) }
    }

    /// A model that counts what it is asked; longer prompts are surer, and one letter is never followed by B.
    fn counting() -> (ScriptedModel, Rc<Cell<usize>>) {
        let count = Rc::new(Cell::new(0));
        let counted = count.clone();
        let model = ScriptedModel::from_probabilities(move |request| {
            counted.set(counted.get() + 1);
            let len = request.prompt.text().len() as f64;
            vec![1.0 - 1.0 / (1.0 + len), if len > 1.0 { 0.3 / (1.0 + len) } else { 0.0 }]
        });
        (model, count)
    }

    fn place(folder: &tempfile::TempDir, name: &str) -> Answers {
        Answers::open(&folder.path().join(name)).expect("opened")
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
            let recorded = Recorded::new(&model, "", [&answers]).expect("readable");
            count.set(0);
            assert_eq!(recorded.score_all(&requests).expect("answered"), expected);
            assert_eq!((count.get(), recorded.found()), (asked, found));
            assert_eq!(answers.count().expect("readable"), 3, "the same question is kept once");
        }
        // Other settings may give other answers.
        let answers = place(&folder, "a.sqlite");
        let other = Recorded::new(&model, "min_mass:0.9", [&answers]).expect("readable");
        count.set(0);
        other.score_all(&requests).expect("answered");
        assert_eq!((count.get(), other.found()), (4, 0));
    }

    #[test]
    fn a_list_that_is_cut_short_keeps_what_was_answered_and_goes_on_with_the_rest() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (model, count) = counting();
        let requests: Vec<ScoreRequest> = (0..10).map(|n| request(&"x".repeat(n + 1))).collect();
        let expected = model.score_all(&requests).expect("scripted");
        let answers = place(&folder, "a.sqlite");
        let recorded = Recorded::new(&model, "", [&answers]).expect("readable");
        let mut taken = 0;
        let stopped = recorded.score(&mut requests.iter().cloned(), &mut |_, _| {
            taken += 1;
            if taken == 4 { Err("enough".into()) } else { Ok(()) }
        });
        assert!(matches!(stopped, Err(LmError::Sink(error)) if error.to_string() == "enough"));
        drop(answers);
        let answers = place(&folder, "a.sqlite");
        let recorded = Recorded::new(&model, "", [&answers]).expect("readable");
        count.set(0);
        assert_eq!(recorded.score_all(&requests).expect("answered"), expected);
        assert_eq!((count.get(), recorded.found()), (6, 4), "the refused answer is kept too");
        // A sink that refuses an answer that was found ends the list as well.
        let refused = recorded.score(&mut requests.iter().cloned(), &mut |_, _| Err("no".into()));
        assert!(matches!(refused, Err(LmError::Sink(error)) if error.to_string() == "no"));
    }

    #[test]
    fn runs_share_answers_and_each_has_its_own() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (model, count) = counting();
        let (first, second, shared) = (place(&folder, "1.sqlite"), place(&folder, "2.sqlite"), place(&folder, "shared.sqlite"));
        let ask = |places: [&Answers; 2], texts: &[&str]| {
            count.set(0);
            let recorded = Recorded::new(&model, "", places).expect("readable");
            recorded.score_all(&texts.iter().map(|text| request(text)).collect::<Vec<_>>()).expect("answered");
            (count.get(), recorded.found())
        };
        assert_eq!(ask([&first, &shared], &["a", "ab"]), (2, 0));
        assert_eq!(ask([&second, &shared], &["ab", "abc"]), (1, 1));
        let counts = [&first, &second, &shared].map(|answers| answers.count().expect("readable"));
        assert_eq!(counts, [2, 2, 3]);
    }

    #[test]
    fn that_a_prompt_is_too_long_is_not_kept() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let outcome = Outcome::TooLong { tokens_needed: 9, limit: 4 };
        let model = ScriptedModel::from_results(move |_| ScoreResult { outcome: outcome.clone(), prompt_tokens: 9, answer: None });
        let answers = place(&folder, "a.sqlite");
        let recorded = Recorded::new(&model, "", [&answers]).expect("readable");
        recorded.score_all(&[request("x")]).expect("answered");
        assert_eq!(answers.count().expect("readable"), 0);
    }

    #[test]
    fn what_is_no_database_and_one_of_a_newer_version_are_refused() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("a.sqlite");
        std::fs::write(&path, "not a database, but long enough to be taken for one at first sight".repeat(20)).expect("written");
        let error = Answers::open(&path).expect_err("no database").to_string();
        assert!(error.contains("a.sqlite could not be opened") && error.contains("hint: this is no database"), "{error}");
        let newer = folder.path().join("b.sqlite");
        drop(Answers::open(&newer).expect("opened"));
        let connection = rusqlite::Connection::open(&newer).expect("opened");
        connection.pragma_update(None, "user_version", 99).expect("written");
        assert!(matches!(Answers::open(&newer), Err(StoreError::Newer { .. })));
    }
}
