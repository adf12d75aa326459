//! Comparative assessment (Liusie, Manakul and Gales 2024, "LLM Comparative Assessment").

mod analyses;
mod budget;
mod figures;
mod judge;
mod options;
mod preference;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use probity_data::Sample;
use probity_lm::LabelSet;
use probity_stats::{AgreementFigures, RankMethod};
use serde_json::json;

pub use budget::{Budget, BudgetError, PairOrder, StopAt};
pub use options::{ComparativeParams, DebiasMode, Decide, LabelWords};

use crate::attributes::AttributeWords;
use crate::builtin::{Builtin, DataSlot};
use crate::conclusion::{AnswerDoubts, ConclusionCase};
use crate::figures::{Mass, number};
use crate::gold::{self, GoldUse};
use crate::pairs::PairSelection;
use crate::question::LayoutOptions;
use crate::question::{MATERIAL, capitalised, first_duplicate, word_settings};
use crate::template::{PromptLayout, Template, TemplateError};
use crate::{
    Conclusion, Headline, Method, MethodError, MethodReport, Outcomes, Run, RunScores, Signature, Table, cells,
};
use figures::{CellFigures, ComparisonCell};
use judge::{ComparisonJudge, JudgedComparisons};

/// The prompts.
pub const TEMPLATES: &[Builtin] = &[
    Builtin { name: "1", source: include_str!("prompts/compare_1.j2"), data: DATA },
    Builtin { name: "2", source: include_str!("prompts/compare_2.j2"), data: DATA },
];

const DATA: &[DataSlot] =
    &[DataSlot::required("candidate_a"), DataSlot::required("candidate_b"), MATERIAL[0], MATERIAL[1]];

/// The pairs of a sample are listed before any is drawn; for this many candidates they take 0.5 GB.
const MOST_CANDIDATES: usize = 4096;

/// The maximum number of draws averaged for one point of the analyses.
const MOST_DRAWS: usize = 100_000;

/// The table of all scores.
const SCORES: &str = "scores";

/// Comparative assessment; see [`Method::LONG_ABOUT`].
pub struct Comparative;

impl Method for Comparative {
    type Params = ComparativeParams;
    const NAME: &'static str = "compare";
    const ABOUT: &'static str = "Compare candidates in pairs and rank them";
    const LONG_ABOUT: &'static str = "\
Compare candidates in pairs and rank them.

The model sees the source and two candidates, and answers A if the first is better, or B. \
p = P(A) / (P(A) + P(B)) is the probability that the first is better. It is computed from exact probabilities; nothing \
is parsed (Liusie, Manakul and Gales 2024). By default, a candidate's score is its share of won comparisons. If all \
samples are pairs, it is the candidate's mean probability of being better. --rank selects other scores. Candidates are \
ranked within each context.

Very small models prefer whichever text is shown first. Use `probity gpt-score` with them: it compares no texts.

Many models favour one position. In the tables, P(A) is the share of comparisons that the candidate shown first wins. \
Over all pairs in both orders, an unbiased judge has P(A) = 0.5.

Debiasing corrects p for this bias. A candidate shown first wins if p is above τ, the median of p, instead of 0.5, \
so both positions win equally often. Scores that average probabilities use p with the log-odds logit p − logit τ. τ is \
estimated from pairs judged in both orders. Without such pairs (for example with `--pairs no-repeat:R`), nothing is \
corrected, and P(A) cannot show whether the model favours a position or the candidates shown first are better. A \
correction does not improve a judge that cannot decide.

p_ij is p with candidate i shown first and candidate j second. The order gap |p_ij − (1 − p_ji)| measures how much a \
verdict depends on presentation order.

Read the figures in this order: label mass (did the model answer the question?), P(A) and order gap (did it judge the \
texts, or their positions?), then the correlation with gold scores or the accuracy on gold preferences.

Files: `comparisons.jsonl` (item, i, j, p as judged, label log-probabilities, mass, outcome), `scores.jsonl` (item, \
candidate, score, rank) and `summary.json`. --budget adds `budget.jsonl` (item, pairs compared, why the comparisons \
ended, certainty of the ranking). With gold, two more files list what people should label next with `probity label` \
(docs/promises.md): pairs in `to_label.jsonl`, and single candidates in `scores_to_label.jsonl`. A candidate without \
text is not shown to the model. A sample with one candidate has no comparisons, and the outcome `one_candidate`.

Templates: 1 shows the material, then the question; 2 states the task first. Your own template is a Jinja file with \
the slots context, instruction, candidate_a, candidate_b, name_a, name_b, label_a, label_b, noun, attribute, \
adjective, comparative. A line of the data is quoted with `> ` if it could be mistaken for a part of the template, for \
example `[End of Summary A]`. A candidate thus cannot close its block or write a verdict.";

    const PROMPTS: &'static [Builtin] = TEMPLATES;

    const JUDGES_CANDIDATES: bool = true;

    fn asks_in_rounds(params: &ComparativeParams) -> bool {
        params.budget.is_some()
    }

    fn layout(params: &ComparativeParams) -> Option<&LayoutOptions> {
        Some(&params.layout)
    }

    fn run(params: &ComparativeParams, samples: &[Sample], run: &mut Run<'_>) -> Result<MethodReport, MethodError> {
        check(params, samples)?;
        let gold = gold::uses(samples, &params.subject.attribute, params.subject.no_gold)?;
        let layout = params.layout.layout(run.model().description(), "Answer:")?;
        let words = params.subject.attribute_words()?;
        let templates = words.iter().map(|w| load_templates(params, w, &layout)).collect::<Result<Vec<_>, _>>()?;
        let labels = LabelSet::from_words(&params.label_words.0)?;
        let rank = params.rank.resolve(params, samples);
        let signature = Signature::new(Self::NAME, run.model()).with_layout(&layout).with("rank", &rank);
        let signature = signature.with_templates(templates.iter().flatten());
        let precision = run.model().description().precision;
        let judge = ComparisonJudge { params, samples, labels, layout, templates, precision };
        let judged = judge.judge(run)?;
        report(params, rank, samples, &gold, &judged, signature, run)
    }
}

fn check(params: &ComparativeParams, samples: &[Sample]) -> Result<(), MethodError> {
    if let Some(twice) = first_duplicate(&params.template) {
        return MethodError::refuse(format!("--template {twice}"), "repeated", "name each template once");
    }
    if !(params.temperature > 0.0 && params.temperature.is_finite()) {
        let hint = "1 leaves the model's probabilities unchanged";
        return MethodError::refuse(format!("--temperature {}", params.temperature), "not a positive number", hint);
    }
    if params.max_tokens == 0 {
        return MethodError::refuse("--max-tokens 0", "an answer has at least one token", "omit it for 5");
    }
    if params.analyses && params.pairs != PairSelection::Full {
        let hint = "omit --pairs or --analyses";
        return MethodError::refuse("--analyses", "the analyses require all comparisons", hint);
    }
    if params.analyses && !(1..=MOST_DRAWS).contains(&params.analysis_runs) {
        let option = format!("--analysis-runs {}", params.analysis_runs);
        return MethodError::refuse(option, format!("not a number from 1 to {MOST_DRAWS}"), "omit it for 50");
    }
    if let Some(sample) = samples.iter().find(|sample| sample.candidates.len() > MOST_CANDIDATES) {
        let n = sample.candidates.len();
        let (id, pairs) = (sample.id.escape_debug(), n as u64 * (n as u64 - 1));
        let why = format!(
            "sample `{id}` has {n} candidates ({pairs} ordered pairs); the maximum is {MOST_CANDIDATES} candidates per \
             sample"
        );
        let hint = "split the sample, or score each candidate independently: probity gpt-score";
        return MethodError::refuse("--pairs", why, hint);
    }
    if let Some(budget) = params.budget {
        if !(params.sure > 0.0 && params.sure < 1.0) {
            let hint = "a share such as 0.95";
            return MethodError::refuse(format!("--sure {}", params.sure), "not between 0 and 1", hint);
        }
        return budget.check(samples);
    }
    let Some(count) = params.pairs.count() else { return Ok(()) };
    let available = |sample: &Sample| params.pairs.max(sample.candidates.len());
    // A sample with one candidate is counted but not compared.
    let judged = samples.iter().filter(|sample| sample.candidates.len() > 1);
    match judged.min_by_key(|sample| available(sample)).map(|sample| (sample, available(sample))) {
        Some((sample, max)) if max < count => {
            let (id, n) = (sample.id.escape_debug(), sample.candidates.len());
            let why = format!("sample `{id}` has {n} candidates and thus at most {max} comparisons of this kind");
            let hint = format!("--pairs {}", params.pairs.with_count(max));
            MethodError::refuse(format!("--pairs {}", params.pairs), why, hint)
        }
        _ => Ok(()),
    }
}

fn load_templates(
    params: &ComparativeParams,
    words: &AttributeWords,
    layout: &PromptLayout,
) -> Result<Vec<Template>, TemplateError> {
    let settings = settings(words, &params.subject.noun, &params.label_words.0);
    params.template.iter().map(|choice| Template::load(choice, TEMPLATES, settings.clone(), layout)).collect()
}

/// The template variables that do not come from data.
pub fn settings(
    words: &AttributeWords,
    noun: &str,
    [label_a, label_b]: &[String; 2],
) -> BTreeMap<&'static str, String> {
    let mut settings: BTreeMap<&'static str, String> = word_settings(words, noun);
    // A label that contains the name of the text (`Summary A`) is used as the text's name.
    let name = |label: &String| {
        let names_it = label.to_lowercase().contains(&noun.to_lowercase());
        if names_it { label.clone() } else { format!("{} {label}", capitalised(noun)) }
    };
    settings.insert("name_a", name(label_a));
    settings.insert("name_b", name(label_b));
    settings.insert("label_a", label_a.clone());
    settings.insert("label_b", label_b.clone());
    settings
}

fn report(
    params: &ComparativeParams,
    rank: RankMethod,
    samples: &[Sample],
    gold: &[GoldUse<'_>],
    judged: &JudgedComparisons,
    signature: Signature,
    run: &mut Run<'_>,
) -> Result<MethodReport, MethodError> {
    let mut outcomes = Outcomes::default();
    judged.verdicts.iter().for_each(|verdict| outcomes.add(&verdict.answer.outcome));
    let one_candidate = samples.iter().filter(|sample| sample.candidates.len() == 1).count();
    (0..one_candidate).for_each(|_| outcomes.add_named("one_candidate"));
    let unparsed_samples: usize = judged.verdicts.iter().filter_map(|v| v.samples).map(|tally| tally.unparsed).sum();

    let cells = figures::cells(params, rank, samples, judged);
    let cell_figures: Vec<CellFigures> = cells.iter().map(|cell| cell.figures(samples, gold)).collect();
    let mut position = figures::position_table(params, &cell_figures);
    if params.decide != Decide::Prob {
        position.note(format!("sampled answers without a label: {unparsed_samples}"));
    }
    crate::attributes::note_absent_gold(gold, &mut position);

    let scores: Vec<Vec<Vec<Option<f64>>>> = (0..params.subject.attribute.len())
        .map(|of| figures::mean_scores(&cells, of, ComparisonCell::scores))
        .collect();
    figures::write_scores(params, samples, &cells, &scores, run)?;
    let mut systems = gold::systems_table(rank.name());
    for (attribute, scores) in params.subject.attribute.iter().zip(&scores) {
        gold::push_systems(samples, attribute, scores, &mut systems);
    }
    let (mut headline, averages, agreement, with_gold) =
        against_gold(params, samples, gold, &cells, &cell_figures, &scores);
    let verdict = (0..params.subject.attribute.len())
        .map(|attribute| {
            conclusion(params, samples, attribute, &cell_figures, &scores[attribute], &with_gold[attribute])
        })
        .collect();
    let preference = preference::figures(params, samples, &cells);
    headline.extend(preference::headline(&preference));
    let analyses = params.analyses.then(|| analyses::analyse(params, samples, gold, &cells));

    let mut values = json!({
        "items": samples.len(),
        "one_candidate": one_candidate,
        "comparisons": judged.comparisons.len(),
        "unparsed_samples": unparsed_samples,
        "prompts": cell_figures,
        "gold": averages,
        "preference": preference,
        "analyses": analyses,
    });
    let mut others = vec![preference::table(&preference, rank), position];
    if let Some(budget) = &judged.budget {
        budget.write(run)?;
        values["budget"] = json!(budget);
        others.push(budget.table());
    }
    others.extend(agreement);
    others.extend(analyses.iter().flat_map(analyses::Analyses::tables));
    let tables = gold::main_first(systems, others);
    let mut of_run = RunScores::default();
    for (name, scores) in params.subject.attribute.iter().zip(scores) {
        of_run.push(Some(name), scores);
    }
    Ok(MethodReport { values, tables, outcomes, headline, verdict, scores: of_run, ..MethodReport::new(signature) })
}

/// The conclusion about one attribute over all templates.
fn conclusion(
    params: &ComparativeParams,
    samples: &[Sample],
    attribute: usize,
    figures: &[CellFigures],
    scores: &[Vec<Option<f64>>],
    gold: &AttributeGold,
) -> Conclusion {
    let name = &params.subject.attribute[attribute];
    let of_attribute: Vec<&CellFigures> = figures.iter().filter(|cell| cell.attribute == *name).collect();
    let in_both: usize = of_attribute.iter().map(|cell| cell.pairs_in_both_orders).sum();
    let turns = |cell: &&CellFigures| Some((1.0 - cell.order_agreement?) * cell.pairs_in_both_orders as f64);
    let turning: f64 = of_attribute.iter().filter_map(turns).sum();
    let case = ConclusionCase {
        about: (params.subject.attribute.len() > 1).then(|| name.clone()),
        samples,
        scores,
        gold: gold.in_force.as_ref(),
        attribute: Some(name),
        as_judged: gold.as_judged.as_ref(),
        debiased: of_attribute.iter().copied().any(CellFigures::is_debiased),
        preferences: !params.subject.no_gold,
        answers: AnswerDoubts {
            turned: (in_both > 0).then(|| (turning / in_both as f64, in_both)),
            // A fallback: with both orders, `turned` separates a position preference from better candidates being shown
            // first.
            first_wins: figures::first_wins(&of_attribute).filter(|_| in_both == 0),
            low_mass: Mass::flagged(of_attribute.iter().map(|cell| cell.mass)).and_then(|mass| mass.low_share),
        },
        ..ConclusionCase::default()
    };
    case.conclusion()
}

/// How scores averaged over templates agree with gold.
#[derive(Clone, Default)]
struct AttributeGold {
    /// Absent if the attribute has no gold.
    in_force: Option<AgreementFigures>,
    /// Before debiasing, if any template is debiased.
    as_judged: Option<AgreementFigures>,
}

/// The agreement with gold: of each template's scores, of their mean as in the paper (the headline), and of the
/// averaged scores.
fn against_gold(
    params: &ComparativeParams,
    samples: &[Sample],
    gold: &[GoldUse<'_>],
    all_cells: &[ComparisonCell],
    cells: &[CellFigures],
    scores: &[Vec<Vec<Option<f64>>>],
) -> (Vec<Headline>, Vec<serde_json::Value>, [Table; 2], Vec<AttributeGold>) {
    let mut table = gold::table();
    let columns = ["attribute", "template", "accuracy as judged", "debiased", "comparisons"];
    let mut accuracy = Table::new("Agreement of single comparisons with gold", columns);
    let (mut headline, mut values) = (Vec::new(), Vec::new());
    let mut of_all = vec![AttributeGold::default(); gold.len()];
    for (number_of, one) in gold.iter().enumerate().filter(|(_, one)| one.present) {
        let of_attribute: Vec<&CellFigures> = cells.iter().filter(|cell| cell.attribute == one.attribute).collect();
        for cell in &of_attribute {
            let Some(of_gold) = &cell.gold else { continue };
            let name = format!("template {}, as judged", cell.template);
            gold::push(&of_gold.as_judged, one.attribute, &name, &mut table);
            if let Some(debiased) = &of_gold.debiased {
                gold::push(debiased, one.attribute, &format!("template {}, debiased", cell.template), &mut table);
            }
            let (before, after) = (&of_gold.comparisons_as_judged, &of_gold.comparisons_debiased);
            let after = number(after.and_then(|after| after.accuracy));
            let count = before.correct + before.wrong + before.tied;
            accuracy.push(cells![one.attribute, &cell.template, number(before.accuracy), after, count]);
        }
        let averaged = gold::against(samples, one.attribute, &scores[number_of]);
        let pooled = figures::scores_of_mean_probabilities(samples, all_cells, number_of);
        let pooled = gold::against(samples, one.attribute, &pooled);
        let spearman =
            of_attribute.iter().filter_map(|cell| cell.gold.as_ref()?.in_force().spearman.per_context.figure.mean);
        let mean_of_templates = crate::figures::mean(spearman);
        // With one template the means would repeat its rows.
        if params.template.len() > 1 {
            gold::push(&averaged, one.attribute, "mean of templates' scores", &mut table);
            gold::push(&pooled, one.attribute, "mean of templates' probabilities", &mut table);
            table.note(format!("{}: Spearman {}, mean over templates", one.attribute, number(mean_of_templates)));
        }
        headline.push(Headline::new("Spearman", Some(one.attribute), mean_of_templates));
        values.push(json!({
            "attribute": one.attribute,
            "scores": averaged,
            "scores_of_mean_probabilities": pooled,
            "mean_spearman_of_templates": mean_of_templates,
        }));
        let is_debiased = |cell: &&CellFigures| cell.gold.as_ref().is_some_and(|gold| gold.debiased.is_some());
        let as_judged = of_attribute.iter().any(is_debiased).then(|| {
            let scores = figures::mean_scores(all_cells, number_of, ComparisonCell::scores_as_judged);
            gold::against(samples, one.attribute, &scores)
        });
        of_all[number_of] = AttributeGold { in_force: Some(averaged), as_judged };
    }
    (headline, values, [table, accuracy], of_all)
}
