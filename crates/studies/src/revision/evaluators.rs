//! Verdicts of filled-in forms, `ParaPLUIE` and metrics on pairs.

use probity_data::extended_choice;
use probity_lm::Outcome;
use probity_metrics::{ChosenMetric, Direction, Metric, MetricItem, Score};
use serde::Serialize;

use super::agreement::RevisionEvaluator;
use super::forms::{AskedForm, CATEGORIES, GRADES};
use super::options::evaluator_name;
use super::pairs::Revisions;
use super::paraphrase::Paraphrases;
use super::stages::{FilledForm, QuestionAnswer};
use crate::answer::Answer;
use crate::figures::{TokenTally, mean};
use crate::metrics::{item, references};
use crate::{MethodError, Run};

/// Forms of one kind with their answers and label probabilities.
pub(super) struct AnsweredForms<'a> {
    pub(super) forms: &'a [AskedForm<'a>],
    filled: Vec<FilledForm>,
    /// The probabilities of the answers, by form and question; absent if not requested.
    probabilities: Option<Vec<Vec<Option<Vec<f64>>>>>,
    /// By form and question.
    label_tokens: Vec<Vec<TokenTally>>,
    /// The mass of each label set, and whether it is low.
    pub(super) masses: Vec<(f64, bool)>,
}

impl<'a> AnsweredForms<'a> {
    pub(super) fn new(
        forms: &'a [AskedForm<'a>],
        filled: Vec<FilledForm>,
        labels: Option<(&[QuestionAnswer<'_>], &[Answer<usize>])>,
    ) -> Self {
        let mut label_tokens: Vec<Vec<TokenTally>> =
            forms.iter().map(|form| vec![TokenTally::default(); form.form.questions.len()]).collect();
        let said = labels.iter().flat_map(|(_, said)| said.iter());
        let masses = said.filter_map(|one| Some((one.mass?, one.outcome.is_low_mass()))).collect();
        let probabilities = labels.map(|(asked, said)| {
            let mut all: Vec<Vec<Option<Vec<f64>>>> =
                forms.iter().map(|form| vec![None; form.form.questions.len()]).collect();
            for (one, said) in asked.iter().zip(said) {
                all[one.form][one.question].clone_from(&said.probabilities);
                label_tokens[one.form][one.question].add(said.counts);
            }
            all
        });
        Self { forms, filled, probabilities, label_tokens, masses }
    }

    /// The answers of a form: as generated, or the most probable ones.
    fn answers(&self, form: usize, by_labels: bool) -> Option<Vec<usize>> {
        if !by_labels {
            return self.filled[form].value.clone();
        }
        let most = |all: &Vec<f64>| {
            let best = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            all.iter().position(|p| *p == best)
        };
        self.probabilities.as_ref()?[form].iter().map(|one| most(one.as_ref()?)).collect()
    }

    /// The mean value of each pair's forms.
    fn by_pair(&self, pairs: usize, gold: bool, of: impl Fn(usize, &AskedForm<'_>) -> Option<f64>) -> Vec<Option<f64>> {
        let mut sums: Vec<(f64, usize, bool)> = vec![(0.0, 0, true); pairs];
        for (number, form) in self.forms.iter().enumerate().filter(|(_, form)| form.gold == gold) {
            let sum = &mut sums[form.of];
            match of(number, form) {
                Some(value) => *sum = (sum.0 + value, sum.1 + 1, sum.2),
                // With one order missing, position bias would remain.
                None => sum.2 = false,
            }
        }
        sums.into_iter().map(|(sum, count, whole)| (whole && count > 0).then(|| sum / count as f64)).collect()
    }

    /// 2 for a text that strictly follows the instruction, 1 for one with further changes, 0 otherwise: as answered, or
    /// the expectation from the probabilities.
    fn relatedness(&self, form: usize, question: usize, by_labels: bool) -> Option<f64> {
        if !by_labels {
            return Some(2.0 - self.filled[form].value.as_ref()?[question] as f64);
        }
        let probabilities = self.probabilities.as_ref()?[form][question].as_ref()?;
        Some(probabilities.iter().zip([2.0, 1.0, 0.0]).map(|(p, value)| p * value).sum())
    }

    /// The cost of forms, and of the probabilities of the questions used.
    fn cost(&self, gold: bool, looked_at: impl Fn(&str) -> bool) -> TokenTally {
        let own =
            self.forms.iter().zip(&self.filled).zip(&self.label_tokens).filter(|((form, _), _)| form.gold == gold);
        TokenTally::sum(own.map(|((form, filled), labels)| {
            let asked = form.form.questions.iter().zip(labels).filter(|(question, _)| looked_at(question.name));
            let mut cost = TokenTally::sum(asked.map(|(_, labels)| *labels));
            if filled.counts.prompt_tokens.is_some() {
                cost.add(filled.counts);
            }
            cost
        }))
    }

    /// Whether label probabilities exist.
    pub(super) fn has_labels(&self) -> bool {
        self.probabilities.is_some()
    }
}

/// The evaluators based on questions about both texts.
pub(super) fn choice_evaluators(answered: &AnsweredForms<'_>, pairs: usize, golds: &[bool]) -> Vec<RevisionEvaluator> {
    let mut all = Vec::new();
    for gold in golds.iter().copied() {
        for by_labels in [false, true].into_iter().filter(|by_labels| !by_labels || answered.has_labels()) {
            let mut add = |part: &str, of: &dyn Fn(usize, &AskedForm<'_>) -> Option<f64>| {
                let looked_at = |question: &str| by_labels && question.starts_with(part.trim_start_matches('/'));
                let cost = answered.cost(gold, looked_at);
                let margins = answered.by_pair(pairs, gold, of);
                all.push(RevisionEvaluator {
                    name: evaluator_name("choice", gold, by_labels, part),
                    margins,
                    scores: None,
                    cost,
                });
            };
            add("", &|number, form| {
                let said = extended(form, &answered.answers(number, by_labels)?);
                Some(form.upright(said.map_or(0.0, |shown| [1.0, -1.0][shown])))
            });
            add("/related", &|number, form| {
                let related = |name: &str| answered.relatedness(number, form.form.place(name)?, by_labels);
                let margin = related("related_a")? - related("related_b")?;
                Some(form.upright(margin))
            });
            if by_labels {
                add("/best", &|number, form| {
                    let best = answered.probabilities.as_ref()?[number][form.form.place("best")?].as_ref()?;
                    let margin = best[0] - best[1];
                    Some(form.upright(margin))
                });
            }
        }
    }
    all
}

/// The text that a form prefers, by position shown.
fn extended(form: &AskedForm<'_>, answers: &[usize]) -> Option<usize> {
    let answer = |name: &str| form.form.place(name).map(|place| answers[place]);
    let chosen = answer("best").filter(|best| *best < 2);
    let yes = |name: &str| answer(name) == Some(0);
    let related = |name: &str| answer(name).is_some_and(|answer| answer < 2);
    extended_choice(chosen, [yes("acceptable_a"), yes("acceptable_b")], [related("related_a"), related("related_b")])
}

/// The evaluators based on statements about each text: the mean grade, and the mean expected grade.
pub(super) fn likert_evaluators(
    answered: &AnsweredForms<'_>,
    revisions: &Revisions<'_>,
    golds: &[bool],
) -> Vec<RevisionEvaluator> {
    let mut all = Vec::new();
    for gold in golds.iter().copied() {
        for by_labels in [false, true].into_iter().filter(|by_labels| !by_labels || answered.has_labels()) {
            let mut scores = vec![None; revisions.texts.len()];
            for (number, form) in answered.forms.iter().enumerate().filter(|(_, form)| form.gold == gold) {
                scores[form.of] = if by_labels { answered.expected(number) } else { answered.graded(number) };
            }
            let name = evaluator_name("likert", gold, by_labels, "");
            all.push(RevisionEvaluator::from_scores(
                name,
                scores,
                &revisions.pairs,
                answered.cost(gold, |_| by_labels),
            ));
        }
    }
    all
}

impl AnsweredForms<'_> {
    fn graded(&self, form: usize) -> Option<f64> {
        let answers = self.filled[form].value.as_ref()?;
        mean(answers.iter().map(|answer| (*answer + 1) as f64))
    }

    /// The outcomes of the answers.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.filled.iter().map(|one| &one.outcome)
    }

    fn expected(&self, form: usize) -> Option<f64> {
        let all: Option<Vec<f64>> = self.probabilities.as_ref()?[form]
            .iter()
            .map(|one| Some(one.as_ref()?.iter().zip(1..=GRADES.len()).map(|(p, grade)| p * grade as f64).sum()))
            .collect();
        mean(all?)
    }
}

/// The evaluators based on `ParaPLUIE`, one for each template.
pub(super) fn paraphrase_evaluators(
    asked: Paraphrases<'_>,
    said: &[Answer<f64>],
    revisions: &Revisions<'_>,
) -> Vec<RevisionEvaluator> {
    let evaluator = |(place, prompt): (usize, &crate::prompt_set::ReadyPrompt)| {
        let mut cost = TokenTally::default();
        let own = (0..asked.texts.len()).map(|text| &said[asked.part(text, place)]);
        let scores = own.map(|one| {
            if one.counts.prompt_tokens.is_some() {
                cost.add(one.counts);
            }
            one.value
        });
        let scores = scores.collect();
        let several = asked.prompts.len() > 1;
        let name = if several { format!("parapluie/{}", prompt.name()) } else { "parapluie".to_owned() };
        RevisionEvaluator::from_scores(name, scores, &revisions.pairs, cost)
    };
    asked.prompts.iter().enumerate().map(evaluator).collect()
}

/// A metric with its scores.
pub(super) struct ScoredMetric {
    pub(super) label: String,
    /// The scale's direction.
    direction: Direction,
    /// Raw scores by revision.
    pub(super) scores: Vec<Option<f64>>,
    /// The score of each original itself: a system without any changes.
    pub(super) copies: Vec<Option<f64>>,
    pub(super) signature: String,
}

/// Scores each revision, and each original as if it were one.
pub(super) fn score(
    choice: &ChosenMetric,
    metric: &dyn Metric,
    revisions: &Revisions<'_>,
    run: &mut Run<'_>,
) -> Result<ScoredMetric, MethodError> {
    let texts = revisions.texts.iter().map(|text| item(text.sample, text.text(), references(text.sample)));
    // Each original is scored once, with its first revision.
    let originals = revisions.texts.iter().filter(|text| text.place == 0);
    let originals = originals.map(|text| item(text.sample, &text.sample.context, references(text.sample)));
    let items: Vec<MetricItem<'_>> = texts.chain(originals).collect();
    let scores = run.measure(Some(choice.label()), metric, &items)?.items;
    let mut scores: Vec<Option<f64>> = scores.iter().map(|row| Score::value(row[0])).collect();
    let copies = scores.split_off(revisions.texts.len());
    let signature = choice.signature(metric.item_settings(), &items);
    let direction = Direction::from_definition(choice.definition());
    Ok(ScoredMetric { label: choice.label().to_owned(), direction, scores, copies, signature })
}

impl ScoredMetric {
    pub(super) fn is_lower_better(&self) -> bool {
        self.direction == Direction::LowerIsBetter
    }

    /// Its verdicts on pairs: the text with the better score wins.
    pub(super) fn evaluator(&self, revisions: &Revisions<'_>) -> RevisionEvaluator {
        let upwards = |score: &Option<f64>| score.map(|score| self.direction.upwards(score));
        let scores = self.scores.iter().map(upwards).collect();
        RevisionEvaluator::from_scores(self.label.clone(), scores, &revisions.pairs, TokenTally::default())
    }
}

/// The agreement of a form's answers with human answers, by question (Table 7).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct AnswerAccuracy {
    pub(super) by: String,
    pub(super) question: &'static str,
    /// Answers with a human answer.
    pub(super) answers: usize,
    pub(super) accuracy: Option<f64>,
    /// The accuracy of always giving the most frequent human answer.
    pub(super) majority: Option<f64>,
}

/// The answers of a form paired with human answers, by number.
type OfForm<'f> = dyn Fn(&AskedForm<'_>, &[usize]) -> Vec<(u8, u8)> + 'f;

/// The agreement of answers to single questions with human answers.
pub(super) fn answer_accuracy(answered: &AnsweredForms<'_>, golds: &[bool]) -> Vec<AnswerAccuracy> {
    let mut all = Vec::new();
    for gold in golds.iter().copied() {
        for by_labels in [false, true].into_iter().filter(|by_labels| !by_labels || answered.has_labels()) {
            let mut add = |question, of: &OfForm<'_>| {
                let own = answered.forms.iter().enumerate().filter(|(_, form)| form.gold == gold);
                let said = own.filter_map(|(number, form)| Some(of(form, &answered.answers(number, by_labels)?)));
                let said: Vec<(u8, u8)> = said.flatten().collect();
                let share = |is: &dyn Fn(&(u8, u8)) -> bool| mean(said.iter().map(|one| f64::from(u8::from(is(one)))));
                let majority = (0..3).filter_map(|answer| share(&|one| one.1 == answer)).reduce(f64::max);
                let by = evaluator_name("choice", gold, by_labels, "");
                let accuracy = share(&|one| one.0 == one.1);
                all.push(AnswerAccuracy { by, question, answers: said.len(), accuracy, majority });
            };
            let shown = |form: &AskedForm<'_>, place: usize, attribute: &str| -> Option<f64> {
                form.sample.candidates[form.shown[place]].scores.get(attribute).copied()
            };
            let both = |form: &AskedForm<'_>,
                        answers: &[usize],
                        names: [&str; 2],
                        attribute: &str,
                        of: &dyn Fn(usize, f64) -> (u8, u8)| {
                let one =
                    |place: usize| Some(of(answers[form.form.place(names[place])?], shown(form, place, attribute)?));
                [one(0), one(1)].into_iter().flatten().collect::<Vec<_>>()
            };
            add("related, strictly", &|form, answers| {
                both(form, answers, ["related_a", "related_b"], "relatedness", &|said, human| {
                    (said as u8, 2 - human as u8)
                })
            });
            add("related at all", &|form, answers| {
                both(form, answers, ["related_a", "related_b"], "relatedness", &|said, human| {
                    (u8::from(said < 2), u8::from(human > 0.0))
                })
            });
            add("acceptable", &|form, answers| {
                both(form, answers, ["acceptable_a", "acceptable_b"], "acceptable", &|said, human| {
                    (u8::from(said == 0), u8::from(human > 0.0))
                })
            });
            for (category, ..) in CATEGORIES {
                add(category, &|form, answers| {
                    let Some(place) = form.form.place(category) else { return Vec::new() };
                    // The better of the two; `both` and `none` are ties.
                    let side = |[first, second]: [bool; 2]| match (first, second) {
                        (true, false) => 0,
                        (false, true) => 1,
                        _ => 2,
                    };
                    let human = (shown(form, 0, category), shown(form, 1, category));
                    let (Some(first), Some(second)) = human else { return Vec::new() };
                    let said = u8::try_from(answers[place].min(2)).unwrap_or(2);
                    vec![(said, side([first > 0.0, second > 0.0]))]
                });
            }
            all.retain(|one| one.answers > 0);
        }
    }
    all
}

/// The share of pairs for which the two orders prefer different texts, and the number of pairs read in both.
pub(super) fn turned(answered: &AnsweredForms<'_>, pairs: usize, gold: bool) -> Option<(f64, usize)> {
    let mut seen: Vec<Vec<i8>> = vec![Vec::new(); pairs];
    for (number, form) in answered.forms.iter().enumerate().filter(|(_, form)| form.gold == gold) {
        if let Some(answers) = answered.answers(number, false) {
            let side = extended(form, &answers).map_or(0.0, |shown| [1.0, -1.0][shown]);
            seen[form.of].push(form.upright(side) as i8);
        }
    }
    let both: Vec<&Vec<i8>> = seen.iter().filter(|sides| sides.len() == 2).collect();
    // A tie in one order does not contradict the other.
    mean(both.iter().map(|sides| f64::from(u8::from(sides[0] * sides[1] < 0)))).map(|share| (share, both.len()))
}
