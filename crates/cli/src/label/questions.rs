//! Selects the questions for annotators and their order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use probity_data::{LabelSubject, LabelTask, LineError, ReadOptions, Sample, TIE, called_tie, read_label_tasks};
use probity_methods::rng_for;
use probity_serve::LabelQuestion;
use rand::Rng as _;
use rand::seq::SliceRandom as _;

use super::LabelArgs;

/// Labelling tasks with their texts.
pub(super) struct SelectedQuestions {
    pub(super) questions: Vec<LabelQuestion>,
    /// Candidates without text, which are skipped.
    pub(super) without_text: Vec<String>,
    /// Number of pairs in a file that have no attribute and get the selected ones.
    pub(super) named: usize,
    /// Whether there are tasks with scores.
    pub(super) has_scores: bool,
}

/// Why there are no questions.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
enum NothingToAsk {
    #[error("no task in {file} is about {asked}")]
    #[diagnostic(help("the tasks are about: {known}"))]
    Attribute { file: String, asked: String, known: String },
    #[error("--scale applies to single texts, and all tasks in {file} are pairs")]
    #[diagnostic(help("omit --scale, or use the scores_to_label.jsonl of a run, which has tasks with single texts"))]
    Pairs { file: String },
    #[error("there is nothing to label")]
    #[diagnostic(help("add samples with two candidates that have a text, or rate single texts with --scale 1..5"))]
    NoTask,
}

impl LabelArgs {
    /// All questions.
    pub(super) fn questions(&self) -> miette::Result<SelectedQuestions> {
        let (samples, mut tasks, named) = self.tasks_of_samples()?;
        let samples: BTreeMap<&str, &Sample> = samples.iter().map(|sample| (sample.id.as_str(), sample)).collect();
        let mut without_text = BTreeSet::new();
        tasks.retain(|task| {
            let empty = empty_candidates(samples[task.item.as_str()], &task.subject);
            let has_text = empty.is_empty();
            without_text.extend(empty.into_iter().map(|candidate| (task.item.clone(), candidate)));
            has_text
        });
        // Limits tasks; elsewhere the option limits samples.
        tasks.truncate(self.read.limit.unwrap_or(usize::MAX));
        if tasks.is_empty() {
            return Err(NothingToAsk::NoTask.into());
        }
        let has_scores = tasks.iter().any(|task| matches!(task.subject, LabelSubject::Candidate(_)));
        let question = |task: LabelTask| {
            let is_mirrored = self.draws_mirrored(&task);
            let sample = samples[task.item.as_str()];
            LabelQuestion::new(task, sample, is_mirrored).expect("tasks name candidates of their samples")
        };
        let questions = tasks.into_iter().map(question).collect();
        let name = |(item, candidate): (String, String)| format!("`{candidate}` of sample `{item}`");
        let without_text = without_text.into_iter().map(name).collect();
        Ok(SelectedQuestions { questions, without_text, named, has_scores })
    }

    /// The samples, all tasks about them, and the number of pairs in a file that get an attribute here.
    fn tasks_of_samples(&self) -> miette::Result<(Vec<Sample>, Vec<LabelTask>, usize)> {
        let read = ReadOptions { limit: None, ..self.read.0.clone() };
        match (&self.tasks, self.scale) {
            (Some(path), _) => {
                let samples = read.samples(&self.data)?;
                let tasks = read_label_tasks(path, &samples)?;
                let is_pair = |task: &&LabelTask| matches!(task.subject, LabelSubject::Pair { .. });
                if self.scale.is_some() && !tasks.is_empty() && tasks.iter().all(|task| is_pair(&task)) {
                    return Err(NothingToAsk::Pairs { file: path.display().to_string() }.into());
                }
                let is_named = |task: &&LabelTask| task.attribute.is_none() && !self.attribute.is_empty();
                let named = tasks.iter().filter(is_pair).filter(is_named).count();
                Ok((samples, self.with_attributes(path, tasks)?, named))
            }
            (None, Some(_)) => {
                let samples = read.samples(&self.data)?;
                let tasks = self.shuffled(samples.iter().flat_map(candidates));
                Ok((samples, tasks, 0))
            }
            (None, None) => {
                let samples = read.samples_for(&self.data, candidates_called_tie)?;
                let tasks = self.shuffled(samples.iter().flat_map(pairs));
                Ok((samples, tasks, 0))
            }
        }
    }

    /// The tasks of a file that match the selected attributes. Tasks without an attribute are repeated for each.
    fn with_attributes(&self, path: &Path, tasks: Vec<LabelTask>) -> miette::Result<Vec<LabelTask>> {
        let known: BTreeSet<String> = tasks.iter().filter_map(|task| task.attribute.clone()).collect();
        let is_asked = |own: &String| self.attribute.is_empty() || self.attribute.contains(own);
        let under = |task: LabelTask| match &task.attribute {
            Some(own) if is_asked(own) => vec![task],
            Some(_) => Vec::new(),
            None => self.under_each(&task),
        };
        let mut seen = BTreeSet::new();
        let asked: Vec<LabelTask> = tasks.into_iter().flat_map(under).filter(|task| seen.insert(task.key())).collect();
        if asked.is_empty() {
            let file = path.display().to_string();
            return Err(NothingToAsk::Attribute { file, asked: list(&self.attribute), known: list(&known) }.into());
        }
        Ok(asked)
    }

    /// The task repeated for each selected attribute; unchanged if none is selected.
    fn under_each(&self, task: &LabelTask) -> Vec<LabelTask> {
        if self.attribute.is_empty() {
            return vec![task.clone()];
        }
        let mut seen = BTreeSet::new();
        let names = self.attribute.iter().filter(|name| seen.insert(*name));
        names.map(|name| LabelTask { attribute: Some(name.clone()), ..task.clone() }).collect()
    }

    /// The tasks repeated for each attribute, in random order.
    fn shuffled(&self, tasks: impl Iterator<Item = LabelTask>) -> Vec<LabelTask> {
        let mut tasks: Vec<LabelTask> = tasks.flat_map(|task| self.under_each(&task)).collect();
        // Sorted by id first, so that the order depends on the seed and not on the order of the samples.
        tasks.sort_by_cached_key(LabelTask::key);
        tasks.shuffle(&mut rng_for(self.seed, &["label", "order"]));
        tasks
    }

    /// Whether the second text of a pair is shown on the left.
    fn draws_mirrored(&self, task: &LabelTask) -> bool {
        let LabelSubject::Pair { i, j } = &task.subject else { return false };
        let attribute = task.attribute.as_deref().unwrap_or_default();
        rng_for(self.seed, &["label", "side", &task.item, attribute, i, j]).random()
    }
}

fn list<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// A candidate named `tie` cannot be distinguished from a tie.
fn candidates_called_tie(sample: &Sample) -> Vec<LineError> {
    let called_so = sample.candidates.iter().enumerate().filter(|(_, candidate)| candidate.id == TIE);
    called_so.map(|(place, _)| called_tie(format!("candidates[{place}].id"))).collect()
}

fn task(sample: &Sample, subject: LabelSubject) -> LabelTask {
    LabelTask { item: sample.id.clone(), attribute: None, subject }
}

/// A rating task for each candidate.
fn candidates(sample: &Sample) -> impl Iterator<Item = LabelTask> {
    sample.candidates.iter().map(|candidate| task(sample, LabelSubject::Candidate(candidate.id.clone())))
}

/// A preference task for each pair of candidates.
fn pairs(sample: &Sample) -> impl Iterator<Item = LabelTask> {
    let ids = || sample.candidates.iter().map(|candidate| &candidate.id).enumerate();
    ids().flat_map(move |(place, i)| {
        ids().skip(place + 1).map(move |(_, j)| task(sample, LabelSubject::Pair { i: i.clone(), j: j.clone() }))
    })
}

/// The task's candidates without text.
fn empty_candidates(sample: &Sample, subject: &LabelSubject) -> Vec<String> {
    let ids = match subject {
        LabelSubject::Pair { i, j } => vec![i, j],
        LabelSubject::Candidate(id) => vec![id],
    };
    let is_empty = |id: &String| sample.candidate(id).is_none_or(|candidate| candidate.text.trim().is_empty());
    ids.into_iter().filter(|id| is_empty(id)).cloned().collect()
}
