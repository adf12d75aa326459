//! Forms: several questions about revisions in one prompt, and parsing of the answers.

use std::fmt::Write as _;

use probity_data::Sample;
use probity_lm::{Constraint, Label, LabelSet};
use serde_json::{Map, Value, json};

use super::pairs::{RevisionPair, RevisionText, categories};
use crate::MethodError;

/// Whether a text follows the instruction: strictly, with further changes, or not.
pub(super) const RELATEDNESS: [&str; 3] = ["strictly", "with more", "no"];
/// Whether a text could replace the original.
pub(super) const ACCEPTABLE: [&str; 2] = ["yes", "no"];
/// The choice between two texts.
pub(super) const CHOICE: [&str; 4] = ["A", "B", "both", "none"];
/// Degrees of agreement with a statement.
pub(super) const GRADES: [&str; 5] = ["1", "2", "3", "4", "5"];

/// A category of revisions: its name, the question which of two texts is better in it, and the statement about one
/// text.
type Category = (&'static str, &'static str, &'static str);
pub(super) const CATEGORIES: [Category; 4] = [
    (
        "rewriting_light",
        "Which revision makes the style more academic and the English better?",
        "The style is more academic and the English better than in the original.",
    ),
    (
        "rewriting_medium",
        "Which revision makes the paragraph more readable and better built?",
        "The paragraph is more readable and better built than the original.",
    ),
    (
        "rewriting_heavy",
        "Which revision makes the paragraph more readable and clearer?",
        "The paragraph is rewritten so that it is clearer and better ordered, in an academic style.",
    ),
    (
        "concision",
        "Which revision is the shorter one that keeps every important idea?",
        "The revision is shorter than the original and keeps every important idea.",
    ),
];

/// All questions of all forms, one per line, for the signature: templates do not contain them.
pub(super) fn wording() -> String {
    let forms = [Form::choice_of(CATEGORIES.into_iter()), Form::likert_of(CATEGORIES.into_iter(), true)];
    forms.iter().flat_map(Form::lines).collect::<Vec<_>>().join("\n")
}

/// A question with its possible answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FormQuestion {
    pub(super) name: &'static str,
    text: &'static str,
    pub(super) answers: &'static [&'static str],
}

/// The questions about one pair or one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) questions: Vec<FormQuestion>,
}

impl Form {
    /// The questions about two texts, A and B.
    pub(super) fn choice(sample: &Sample) -> Self {
        Self::choice_of(categories_with_questions(sample))
    }

    fn choice_of(categories: impl Iterator<Item = Category>) -> Self {
        let question = |name, text, answers| FormQuestion { name, text, answers };
        let mut questions = vec![
            question(
                "related_a",
                "Does revision A do what the author wanted: strictly, with more changes as well, or not? Its quality \
                 does not matter here.",
                &RELATEDNESS[..],
            ),
            question(
                "related_b",
                "Does revision B do what the author wanted: strictly, with more changes as well, or not? Its quality \
                 does not matter here.",
                &RELATEDNESS,
            ),
            question(
                "acceptable_a",
                "Is revision A good enough to stand in the article in the place of the original?",
                &ACCEPTABLE,
            ),
            question(
                "acceptable_b",
                "Is revision B good enough to stand in the article in the place of the original?",
                &ACCEPTABLE,
            ),
            question(
                "best",
                "Which revision is the best? Choose A or B if you can, both only if they are truly equal, and none \
                 only \
                 if neither is acceptable.",
                &CHOICE,
            ),
        ];
        questions.extend(categories.map(|(name, text, _)| question(name, text, &CHOICE)));
        Self { questions }
    }

    /// The questions about one text.
    pub(super) fn likert(sample: &Sample, gold: bool) -> Self {
        Self::likert_of(categories_with_questions(sample), gold)
    }

    fn likert_of(categories: impl Iterator<Item = Category>, gold: bool) -> Self {
        let statement = |name, text| FormQuestion { name, text, answers: &GRADES };
        let similar = gold.then(|| statement("similar", "The revision is like the author's own."));
        let own = [
            statement("related", "The revision does what the author wanted."),
            statement("correct", "The revision is better than the original."),
        ];
        let further = categories.map(|(name, _, text)| statement(name, text));
        Self { questions: similar.into_iter().chain(own).chain(further).collect() }
    }

    /// The questions as prompt lines.
    pub(super) fn lines(&self) -> Vec<String> {
        let answers = |one: &FormQuestion| {
            if one.is_number() { String::new() } else { format!(" ({})", one.answers.join(", ")) }
        };
        self.questions.iter().map(|one| format!("{}: {}{}", one.name, one.text, answers(one))).collect()
    }

    /// JSON with each question's name and one of its answers, in this order.
    pub(super) fn constraint(&self) -> Constraint {
        let answers = |one: &FormQuestion| (0..one.answers.len()).map(|place| one.json(place)).collect::<Vec<_>>();
        let properties: Map<String, Value> =
            self.questions.iter().map(|one| (one.name.to_owned(), json!({ "enum": answers(one) }))).collect();
        let names: Vec<&str> = self.questions.iter().map(|one| one.name).collect();
        Constraint::JsonSchema(json!({
            "type": "object", "properties": properties, "required": names, "additionalProperties": false
        }))
    }

    /// The token limit of an answer: a few for each name and answer.
    pub(super) fn tokens(&self) -> usize {
        24 * self.questions.len() + 16
    }

    /// Parses the answers by question, as positions among its possible answers.
    pub(super) fn read(&self, text: &str) -> Option<Vec<usize>> {
        let all: Map<String, Value> = serde_json::from_str(text.trim()).ok()?;
        self.read_map(&all)
    }

    /// Parses the answers from an object.
    pub(super) fn read_map(&self, all: &Map<String, Value>) -> Option<Vec<usize>> {
        let answer = |one: &FormQuestion| {
            let said = all.get(one.name)?;
            (0..one.answers.len()).find(|place| one.json(*place) == *said)
        };
        self.questions.iter().map(answer).collect()
    }

    /// The answers by question name.
    pub(super) fn map(&self, answers: &[usize]) -> Map<String, Value> {
        let named = self.questions.iter().zip(answers);
        named.map(|(one, answer)| (one.name.to_owned(), one.json(*answer))).collect()
    }

    /// The position of the question with this name.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.questions.iter().position(|one| one.name == name)
    }

    /// The JSON up to the answer of this question.
    pub(super) fn begun(&self, question: usize, answers: &[usize]) -> String {
        let mut text = "{".to_owned();
        for (one, answer) in self.questions.iter().zip(answers).take(question) {
            let _ = write!(text, "\"{}\": {}, ", one.name, one.json(*answer));
        }
        let asked = &self.questions[question];
        format!("{text}\"{}\":{}", asked.name, if asked.is_number() { "" } else { " \"" })
    }
}

impl FormQuestion {
    /// Grades are numbers, since models write JSON numbers with other tokens than digits in a string.
    fn is_number(&self) -> bool {
        self.answers == GRADES
    }

    /// An answer in JSON.
    fn json(&self, place: usize) -> Value {
        if self.is_number() { json!(place + 1) } else { json!(self.answers[place]) }
    }

    /// Its answers as labels, none of which is a prefix of another. They omit the closing quotation mark, which forms
    /// one token with the following comma and is rarely a separate token.
    pub(super) fn labels(&self) -> Result<LabelSet, MethodError> {
        let space = if self.is_number() { " " } else { "" };
        let label = |name: &&str| Label { name: (*name).to_owned(), variants: vec![format!("{space}{name}")] };
        Ok(LabelSet::new(self.answers.iter().map(label).collect())?)
    }
}

/// The categories of a sample that have questions.
fn categories_with_questions(sample: &Sample) -> impl Iterator<Item = Category> {
    let of = categories(sample);
    CATEGORIES.into_iter().filter(move |(name, ..)| of.contains(name))
}

/// A form for certain candidates, with their order and whether the author's own revision is shown.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AskedForm<'a> {
    /// The position of the pair or of the revision.
    pub(super) of: usize,
    pub(super) sample: &'a Sample,
    /// The positions of the candidates: two in presentation order, or one.
    pub(super) shown: Vec<usize>,
    /// Whether the second of a pair is shown first.
    pub(super) turned: bool,
    pub(super) gold: bool,
    pub(super) form: Form,
}

impl<'a> AskedForm<'a> {
    /// One form per pair and order.
    pub(super) fn choices(pairs: &[RevisionPair<'a>], gold: bool, one_order: bool) -> Vec<Self> {
        let orders: &[bool] = if one_order { &[false] } else { &[false, true] };
        let of = |(of, pair): (usize, &RevisionPair<'a>)| {
            let (sample, form) = (pair.sample, Form::choice(pair.sample));
            let [first, second] = pair.places;
            let asked = |turned: &bool| {
                let shown = if *turned { vec![second, first] } else { vec![first, second] };
                Self { of, sample, shown, turned: *turned, gold, form: form.clone() }
            };
            orders.iter().map(asked).collect::<Vec<_>>()
        };
        pairs.iter().enumerate().flat_map(of).collect()
    }

    /// One form per revision.
    pub(super) fn grades(texts: &[RevisionText<'a>], gold: bool) -> Vec<Self> {
        let of = |(of, text): (usize, &RevisionText<'a>)| {
            let (sample, form) = (text.sample, Form::likert(text.sample, gold));
            Self { of, sample, shown: vec![text.place], turned: false, gold, form }
        };
        texts.iter().enumerate().map(of).collect()
    }

    /// Converts a margin for the text shown first to one for the pair's first.
    pub(super) fn upright(&self, margin: f64) -> f64 {
        if self.turned { -margin } else { margin }
    }

    /// The texts of the prompt by slot.
    pub(super) fn slots(&self) -> Vec<(&'static str, &'a str)> {
        let sample = self.sample;
        let names: &[&'static str] = if self.shown.len() == 2 { &["first", "second"] } else { &["candidate"] };
        let shown = names.iter().zip(&self.shown).map(|(name, place)| (*name, &*sample.candidates[*place].text));
        let gold = sample.references.first().filter(|_| self.gold).map_or("", |text| &**text);
        let instruction = sample.instruction.as_deref().unwrap_or("");
        [("context", &*sample.context), ("instruction", instruction), ("gold", gold)].into_iter().chain(shown).collect()
    }

    /// Whether all texts to show exist.
    pub(super) fn has_all_texts(&self) -> bool {
        let has = |place: &usize| !self.sample.candidates[*place].text.trim().is_empty();
        let gold = || self.sample.references.first().is_some_and(|text| !text.trim().is_empty());
        self.shown.iter().all(has) && !self.sample.context.trim().is_empty() && (!self.gold || gold())
    }

    /// The identifying fields of its row.
    pub(super) fn identity(&self) -> Value {
        let id = |place: usize| self.sample.candidates[self.shown[place]].id.as_str();
        if self.shown.len() == 2 {
            json!({ "item": self.sample.id, "candidate_a": id(0), "candidate_b": id(1), "with_gold": self.gold })
        } else {
            json!({ "item": self.sample.id, "candidate": id(0), "with_gold": self.gold })
        }
    }

    /// Its name in request ids.
    pub(super) fn id(&self, stage: &str) -> String {
        let shown: Vec<&str> = self.shown.iter().map(|place| self.sample.candidates[*place].id.as_str()).collect();
        let gold = if self.gold { "/gold" } else { "" };
        format!("{}/{stage}/{}{gold}", self.sample.id, shown.join("|"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sample;

    #[test]
    fn answers_are_read_by_name_and_begin_the_next_question() {
        let mut one = sample("a", &[1.0, 2.0]);
        one.texts.insert("categories".into(), "concision\ncontent_deletion".into());
        let form = Form::choice(&one);
        assert_eq!(form.questions.iter().map(|one| one.name).collect::<Vec<_>>()[4..], ["best", "concision"]);
        let text = r#"{"related_a": "no", "related_b": "strictly", "acceptable_a": "no", "acceptable_b": "yes", "best": "B", "concision": "both"}"#;
        let answers = form.read(text).expect("all answers");
        assert_eq!(answers, [2, 0, 1, 0, 1, 2]);
        assert!(text.starts_with(&form.begun(4, &answers)) && form.begun(0, &[]) == "{\"related_a\": \"");
        assert_eq!(Value::Object(form.map(&answers)), serde_json::from_str::<Value>(text).expect("JSON"));
        assert_eq!(form.read(&text.replace("both", "nobody")), None);
        let grades = Form::likert(&one, true);
        assert_eq!(grades.lines().len(), 4);
        let text = r#"{"similar": 2, "related": 5, "correct": 1, "concision": 3}"#;
        let answers = grades.read(text).expect("all grades");
        assert_eq!(
            (answers.as_slice(), grades.begun(1, &answers)),
            (&[1, 4, 0, 2][..], "{\"similar\": 2, \"related\":".to_owned())
        );
        assert_eq!(grades.read(&text.replace('5', "6")), None);
    }
}
