//! The rounds: cluster the open units, ask for them, answer and judge, until nothing new is covered.

use std::collections::BTreeMap;

use probity_lm::LanguageModel;

use super::answers::{self, Answerer, AskedQuestion, GivenAnswers};
use super::clustering::clusters;
use super::judgements::{self, JudgedAnswer, Verdict, verdict};
use super::options::RefEvalParams;
use super::prompts;
use super::questions::{
    CLUSTERS, EXAMINATION, ExamQuestion, ONE_BY_ONE, QuestionOutcome, QuestionReadout, QuestionSet, Turn, WantedUnits,
    clusters_stage, question_id, questions_stage,
};
use super::units::{Passage, Unit};
use crate::answer::Answer;
use crate::figures::TokenTally;
use crate::prompt_set::PromptSet;
use crate::written::WrittenText;
use crate::{Artefact, MethodError, Run};

/// The reason for ending at the end of a file of answers.
const WAITS: &str = "the last questions in questions.jsonl have no answers in the file";

/// The inputs of all queries about the units.
pub(super) struct RefEvalWork<'a> {
    pub(super) params: &'a RefEvalParams,
    pub(super) passages: &'a [Passage],
    pub(super) units: &'a [Unit],
    /// By unit; empty without clustering by embeddings.
    pub(super) vectors: &'a [Vec<f32>],
    pub(super) prompts: &'a PromptSet,
    pub(super) evaluator: &'a dyn LanguageModel,
    pub(super) by: &'a Answerer<'a>,
    /// The key of the units.
    pub(super) units_key: &'a str,
}

/// The state of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct UnitState {
    /// The correctness, round and turn of the covering answer; absent while open.
    pub(super) covered: Option<(bool, usize, usize)>,
    /// The number of questions that asked for it.
    pub(super) asked: usize,
    /// The number of answers to them that did not cover it.
    pub(super) ignored: usize,
}

/// A question with its answer and judgements.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AskedUnits {
    pub(super) id: String,
    pub(super) turn: usize,
    pub(super) round: usize,
    pub(super) question: String,
    pub(super) answer: WrittenText,
    /// Each unit it asked for, with the verdict.
    pub(super) judged: Vec<(usize, Answer<usize>)>,
}

/// The result of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub(super) struct RoundTally {
    /// From 1.
    pub(super) round: usize,
    /// Units that were open at the beginning.
    pub(super) open: usize,
    pub(super) clusters: usize,
    /// Questions, including follow-ups.
    pub(super) questions: usize,
    pub(super) follow_ups: usize,
    /// Units covered in it, and the correct ones among them.
    pub(super) covered: usize,
    pub(super) correct: usize,
    /// Units that are open at the end.
    pub(super) left: usize,
}

/// The results of all rounds.
#[derive(Debug, Default)]
pub(super) struct ExaminationResults {
    pub(super) units: Vec<UnitState>,
    pub(super) asked: Vec<AskedUnits>,
    pub(super) rounds: Vec<RoundTally>,
    /// Why the examination ended.
    pub(super) ended: &'static str,
    /// Outcomes of cluster names.
    pub(super) names: BTreeMap<&'static str, usize>,
    /// Outcomes of questions, by name.
    pub(super) questions: BTreeMap<&'static str, usize>,
    /// Units that questions leaked.
    pub(super) leaked: usize,
    /// By stage.
    pub(super) tokens: BTreeMap<&'static str, TokenTally>,
    /// The key of the last judgements.
    pub(super) key: String,
    /// Whether the last questions have no answers in the file.
    pub(super) waits: bool,
}

impl RefEvalWork<'_> {
    /// The inputs that a stage's parts depend on.
    pub(super) fn inputs(
        &self,
        stage: &'static str,
        prompt: &str,
        model: &dyn LanguageModel,
        key: &str,
    ) -> Vec<String> {
        let mut inputs = prompts::inputs(self.params, self.prompts, stage, prompt, model, key);
        inputs.extend(self.by.hash().filter(|_| prompt == "answer"));
        inputs
    }

    /// Runs all rounds of the examination.
    pub(super) fn examine(&self, run: &mut Run<'_>) -> Result<ExaminationResults, MethodError> {
        let mut results =
            ExaminationResults { units: vec![UnitState::default(); self.units.len()], ..ExaminationResults::default() };
        results.ended = "the limit of rounds";
        let mut key = self.units_key.to_owned();
        for round in 1..=self.params.rounds as usize {
            let open: Vec<usize> =
                (0..self.units.len()).filter(|unit| results.units[*unit].covered.is_none()).collect();
            if open.is_empty() {
                results.ended = "no unit was open";
                break;
            }
            let found = self.cluster(&open);
            let inputs = self.inputs(CLUSTERS, "name", self.evaluator, &key);
            let stage = clusters_stage(round, self.units, &found, self.prompts.get("name"), self.evaluator, inputs);
            let names = run.round(&stage)?;
            for name in &names.parts {
                results.tokens.entry(CLUSTERS).or_default().add(name.counts);
                *results.names.entry(name.outcome()).or_default() += 1;
            }
            key = names.key;
            let wanted = found.iter().enumerate();
            let wanted =
                wanted.map(|(place, units)| WantedUnits { cluster: place + 1, units: units.clone(), earlier: None });
            let mut tally = RoundTally { round, open: open.len(), clusters: found.len(), ..RoundTally::default() };
            self.round(EXAMINATION, wanted.collect(), &mut key, &mut tally, run, &mut results)?;
            if results.waits && tally.questions == 0 {
                results.ended = WAITS;
                break;
            }
            tally.left = results.units.iter().filter(|unit| unit.covered.is_none()).count();
            results.rounds.push(tally);
            if results.waits {
                results.ended = WAITS;
                break;
            }
            if tally.covered == 0 {
                let is_asked = tally.questions > 0;
                results.ended = if is_asked { "a round covered nothing new" } else { "a round had no question to ask" };
                break;
            }
        }
        run.end_rounds(&[CLUSTERS, EXAMINATION.questions, EXAMINATION.answers, EXAMINATION.judgements])?;
        results.key = key;
        Ok(results)
    }

    /// Asks for each unit separately, in one round.
    pub(super) fn one_by_one(&self, run: &mut Run<'_>) -> Result<ExaminationResults, MethodError> {
        let mut results =
            ExaminationResults { units: vec![UnitState::default(); self.units.len()], ..ExaminationResults::default() };
        let wanted =
            (0..self.units.len()).map(|unit| WantedUnits { cluster: unit + 1, units: vec![unit], earlier: None });
        let mut tally = RoundTally { round: 1, open: self.units.len(), ..RoundTally::default() };
        let mut key = self.units_key.to_owned();
        self.round(ONE_BY_ONE, wanted.collect(), &mut key, &mut tally, run, &mut results)?;
        run.end_rounds(&[ONE_BY_ONE.questions, ONE_BY_ONE.answers, ONE_BY_ONE.judgements])?;
        results.rounds.push(tally);
        Ok(results)
    }

    /// Clusters of open units, as positions among all.
    fn cluster(&self, open: &[usize]) -> Vec<Vec<usize>> {
        let most = self.params.cluster_units as usize;
        if self.vectors.is_empty() {
            return open.chunks(most).map(<[usize]>::to_vec).collect();
        }
        let vectors: Vec<&[f32]> = open.iter().map(|unit| self.vectors[*unit].as_slice()).collect();
        let found = clusters(&vectors, most).into_iter();
        found.map(|cluster| cluster.into_iter().map(|place| open[place]).collect()).collect()
    }

    /// Questions, answers and judgements, repeated as follow-ups for units that the answers leave open.
    fn round(
        &self,
        set: QuestionSet,
        wanted: Vec<WantedUnits>,
        key: &mut String,
        tally: &mut RoundTally,
        run: &mut Run<'_>,
        results: &mut ExaminationResults,
    ) -> Result<(), MethodError> {
        let is_one_by_one = set == ONE_BY_ONE;
        let follow_ups = if is_one_by_one { 0 } else { self.params.follow_ups as usize };
        let mut wanted = wanted;
        for turn in 0..=follow_ups {
            let place = Turn { set, round: tally.round, number: turn };
            if wanted.is_empty() {
                break;
            }
            if let Answerer::File(answers) = self.by
                && place != (Turn { set, round: 1, number: 0 })
                && !run.is_rehearsal()
                && !answers.reach(place)
            {
                // A file with answers to the next round skips these follow-ups; otherwise they are the questions to
                // answer now.
                results.waits = turn == 0 || !answers.reach(Turn { round: place.round + 1, number: 0, ..place });
                if results.waits {
                    let questions = self.ask(place, &wanted, key, run)?;
                    // Without a valid question no answer is pending.
                    results.waits = questions.iter().any(|question| question.ended == QuestionOutcome::Asked);
                }
                break;
            }
            wanted = self.turn(place, &wanted, key, tally, run, results)?;
        }
        Ok(())
    }

    /// Writes one question per entry, answers and judges it; returns the entries of the next turn.
    fn turn(
        &self,
        place: Turn,
        wanted: &[WantedUnits],
        key: &mut String,
        tally: &mut RoundTally,
        run: &mut Run<'_>,
        results: &mut ExaminationResults,
    ) -> Result<Vec<WantedUnits>, MethodError> {
        let questions = self.ask(place, wanted, key, run)?;
        for question in &questions {
            *results.questions.entry(question.ended.name()).or_default() += 1;
            results.leaked += question.leaked.len();
            results.tokens.entry(place.set.questions).or_default().add(question.counts);
        }
        let good = wanted.iter().zip(&questions).filter(|(_, question)| question.ended == QuestionOutcome::Asked);
        let good: Vec<(&WantedUnits, &ExamQuestion)> = good.collect();
        let asked: Vec<AskedQuestion> = good
            .iter()
            .map(|(wanted, question)| AskedQuestion { id: question_id(place, wanted), text: question.text.clone() })
            .collect();
        let answers = self.answer(place.set, &asked, key, run)?;
        let judgements = self.judge(place.set, &good, &asked, &answers, key, run)?;
        tally.questions += good.len();
        tally.follow_ups += if place.number > 0 { good.len() } else { 0 };
        let mut rest = judgements.into_iter();
        let mut next = Vec::new();
        for (((wanted, question), asked), answer) in good.iter().zip(asked).zip(answers) {
            results.tokens.entry(place.set.answers).or_default().add(answer.counts);
            let units = question.targets.iter().map(|target| wanted.units[*target]);
            let judged: Vec<(usize, Answer<usize>)> = units.zip(rest.by_ref()).collect();
            let open = results.settle(place, &judged, tally);
            // An empty answer has no follow-up.
            if let Some(said) = answer.usable().filter(|_| !open.is_empty()) {
                let earlier = Some((asked.text.clone(), said.to_owned()));
                next.push(WantedUnits { cluster: wanted.cluster, units: open, earlier });
            }
            let AskedQuestion { id, text: question } = asked;
            results.asked.push(AskedUnits { id, turn: place.number, round: place.round, question, answer, judged });
        }
        Ok(next)
    }

    fn ask(
        &self,
        turn: Turn,
        wanted: &[WantedUnits],
        key: &mut String,
        run: &mut Run<'_>,
    ) -> Result<Vec<ExamQuestion>, MethodError> {
        let Artefact { parts, key: own } = run.round(&questions_stage(
            turn,
            QuestionReadout { units: self.units, wanted, words: self.params.question_words },
            self.prompts.get("question"),
            self.evaluator,
            self.inputs(turn.set.questions, "question", self.evaluator, key),
        ))?;
        *key = own;
        Ok(parts)
    }

    fn answer(
        &self,
        set: QuestionSet,
        questions: &[AskedQuestion],
        key: &mut String,
        run: &mut Run<'_>,
    ) -> Result<Vec<WrittenText>, MethodError> {
        let who = match self.by {
            Answerer::Model(model) => *model,
            Answerer::File(_) | Answerer::Nobody => self.evaluator,
        };
        let Artefact { parts, key: own } = run.round(&answers::stage(
            set.answers,
            questions,
            self.by,
            (self.prompts.get("answer"), self.evaluator),
            self.params.answer_tokens,
            self.inputs(set.answers, "answer", who, key),
        ))?;
        *key = own;
        Ok(parts)
    }

    /// Judges each target of each question.
    fn judge(
        &self,
        set: QuestionSet,
        good: &[(&WantedUnits, &ExamQuestion)],
        asked: &[AskedQuestion],
        answers: &[WrittenText],
        key: &mut String,
        run: &mut Run<'_>,
    ) -> Result<Vec<Answer<usize>>, MethodError> {
        let mut judged = Vec::new();
        for (((wanted, question), asked), answer) in good.iter().zip(asked).zip(answers) {
            judged.extend(question.targets.iter().map(|target| {
                let unit = &self.units[wanted.units[*target]];
                JudgedAnswer {
                    question_id: &asked.id,
                    question: &asked.text,
                    answer: answer.usable().unwrap_or_default(),
                    unit_id: &unit.id,
                    unit: &unit.text,
                }
            }));
        }
        let Artefact { parts, key: own } = run.round(&judgements::stage(
            set.judgements,
            &judged,
            self.params.verdict,
            self.prompts.get("judgement"),
            self.evaluator,
            self.inputs(set.judgements, "judgement", self.evaluator, key),
        )?)?;
        *key = own;
        Ok(parts)
    }
}

impl ExaminationResults {
    /// Records the judgements of an answer; returns the units that it leaves open.
    fn settle(&mut self, place: Turn, judged: &[(usize, Answer<usize>)], tally: &mut RoundTally) -> Vec<usize> {
        let mut open = Vec::new();
        for (unit, judgement) in judged {
            self.tokens.entry(place.set.judgements).or_default().add(judgement.counts);
            let state = &mut self.units[*unit];
            state.asked += 1;
            match verdict(judgement) {
                Some(verdict @ (Verdict::Correct | Verdict::Incorrect)) => {
                    let is_right = verdict == Verdict::Correct;
                    tally.covered += 1;
                    tally.correct += usize::from(is_right);
                    state.covered = Some((is_right, place.round, place.number));
                }
                // Units that could not be judged stay open, like those that are not covered.
                Some(Verdict::Unrelated) | None => {
                    state.ignored += 1;
                    open.push(*unit);
                }
            }
        }
        open
    }
}

/// The number of answers in a file to questions that were not asked.
pub(super) fn unused(answers: &GivenAnswers, results: &ExaminationResults) -> usize {
    answers.count().saturating_sub(results.asked.len())
}
