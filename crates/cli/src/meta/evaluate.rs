//! Every metric against every attribute, averages, preferences and differences.

use std::collections::BTreeMap;

use probity_methods::Headline;
use probity_stats::{Correlation, Figures, MetricDifference, Resampling, compare_metrics};
use serde::Serialize;

use super::align::{Aligned, Counts};
use super::error::MetaError;
use super::gold::Gold;
use super::metrics::Metrics;
use super::preference::{PreferenceFigures, preference};

/// Two metrics to be compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Compare {
    pub(super) first: String,
    pub(super) second: String,
}

/// A metric against an attribute.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Evaluated {
    pub(super) metric: String,
    pub(super) attribute: String,
    pub(super) counts: Counts,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

/// A metric's figures averaged over attributes; absent where one of them is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Averaged {
    pub(super) metric: String,
    pub(super) attributes: Vec<String>,
    pub(super) pearson: Levels,
    pub(super) spearman: Levels,
    pub(super) kendall: Levels,
    pub(super) pairwise: Option<f64>,
    pub(super) pairwise_with_ties: Option<f64>,
}

/// One correlation at three levels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Levels {
    pub(super) per_context: Option<f64>,
    pub(super) system: Option<f64>,
    pub(super) pooled: Option<f64>,
}

/// Two metrics against an attribute.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Compared {
    #[serde(flatten)]
    pub(super) metrics: Compare,
    pub(super) attribute: String,
    /// Candidates with both scores and gold.
    pub(super) scores: usize,
    pub(super) differences: Vec<MetricDifference>,
}

/// Everything that was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Evaluation {
    pub(super) gold: String,
    pub(super) metrics: Vec<Evaluated>,
    pub(super) averages: Vec<Averaged>,
    pub(super) preferences: Vec<PreferenceFigures>,
    pub(super) comparisons: Vec<Compared>,
    pub(super) notes: Vec<String>,
}

impl Evaluation {
    pub(super) fn of(
        metrics: &Metrics,
        gold: &Gold,
        compare: &[Compare],
        average: bool,
        resampling: &Resampling,
    ) -> miette::Result<Self> {
        let aligned: Vec<Aligned<'_>> =
            metrics.list.iter().map(|metric| Aligned::new(metric, gold)).collect::<Result<_, _>>()?;
        let mut evaluation = Self {
            gold: gold.file.clone(),
            metrics: Vec::new(),
            averages: Vec::new(),
            preferences: aligned.iter().filter_map(|one| preference(one, gold, resampling)).collect(),
            comparisons: Vec::new(),
            notes: aligned.iter().filter_map(Aligned::note).collect(),
        };
        for one in &aligned {
            for attribute in attributes(one, gold) {
                let figures = Figures::of(&one.contexts(gold, attribute), resampling);
                let (metric, attribute) = (one.metric.name.clone(), attribute.clone());
                evaluation.metrics.push(Evaluated { counts: one.counts(gold, &attribute), metric, attribute, figures });
            }
        }
        if average {
            evaluation.averages =
                metrics.names().iter().filter_map(|name| averaged(name, &evaluation.metrics)).collect();
        }
        for pair in compare {
            evaluation.comparisons.extend(compared(pair, &aligned, gold, resampling)?);
        }
        Ok(evaluation)
    }

    /// Gold scores and rows that no figure holds.
    pub(super) fn left_out(&self) -> usize {
        let counted =
            self.metrics.iter().map(|one| one.counts.undefined + one.counts.without_score + one.counts.without_gold);
        counted.sum::<usize>() + self.preferences.iter().map(|one| one.without_scores).sum::<usize>()
    }

    /// How many scores there were with gold, and how many of them are undefined.
    pub(super) fn outcomes(&self) -> BTreeMap<&'static str, usize> {
        let sum = |of: fn(&Counts) -> usize| self.metrics.iter().map(|one| of(&one.counts)).sum::<usize>();
        let counts = [
            ("scored", sum(|c| c.compared)),
            ("undefined", sum(|c| c.undefined)),
            ("missing", sum(|c| c.without_score)),
        ];
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Spearman per context; over all scores where no item has several candidates.
    pub(super) fn headline(&self) -> Vec<Headline> {
        let of = |one: &Evaluated| {
            let spearman = &one.figures.spearman;
            let single = spearman.per_context.figure.contexts == 0;
            let (figure, value) = if single {
                ("pooled Spearman", spearman.pooled.figure.coefficient)
            } else {
                ("Spearman", spearman.per_context.figure.mean)
            };
            Headline {
                figure: format!("{figure} of {}", one.metric).into(),
                attribute: Some(one.attribute.clone()),
                value,
            }
        };
        let accuracy = |one: &PreferenceFigures| Headline {
            figure: format!("accuracy of {}", one.metric).into(),
            attribute: one.attribute.clone(),
            value: one.accuracy,
        };
        self.metrics.iter().map(of).chain(self.preferences.iter().map(accuracy)).collect()
    }
}

/// Scores that say what they judge are held against gold of that name where there is any, others against all gold.
fn attributes<'g>(aligned: &Aligned<'_>, gold: &'g Gold) -> Vec<&'g String> {
    let own = aligned.metric.attribute.as_ref().and_then(|own| gold.attributes.iter().find(|name| *name == own));
    own.map_or_else(|| gold.attributes.iter().collect(), |own| vec![own])
}

fn averaged(metric: &str, all: &[Evaluated]) -> Option<Averaged> {
    let of_metric: Vec<&Evaluated> = all.iter().filter(|one| one.metric == metric).collect();
    let mean = |value: &dyn Fn(&Figures) -> Option<f64>| {
        // All or none: a mean over fewer attributes would not compare with the other metrics'.
        let values: Option<Vec<f64>> = of_metric.iter().map(|one| value(&one.figures)).collect();
        values.map(|values| values.iter().sum::<f64>() / values.len() as f64)
    };
    let levels = |of: Correlation| Levels {
        per_context: mean(&|figures| figures.correlation(of).per_context.figure.mean),
        system: mean(&|figures| figures.correlation(of).system.and_then(|system| system.figure.coefficient)),
        pooled: mean(&|figures| figures.correlation(of).pooled.figure.coefficient),
    };
    (of_metric.len() > 1).then(|| Averaged {
        metric: metric.to_owned(),
        attributes: of_metric.iter().map(|one| one.attribute.clone()).collect(),
        pearson: levels(Correlation::Pearson),
        spearman: levels(Correlation::Spearman),
        kendall: levels(Correlation::Kendall),
        pairwise: mean(&|figures| figures.pairwise.accuracy),
        pairwise_with_ties: mean(&|figures| figures.pairwise_with_ties.map(|ties| ties.accuracy)),
    })
}

/// A pair against each attribute that both are held against.
fn compared(
    pair: &Compare,
    aligned: &[Aligned<'_>],
    gold: &Gold,
    resampling: &Resampling,
) -> miette::Result<Vec<Compared>> {
    let mut found = Vec::new();
    for first in aligned.iter().filter(|one| one.metric.name == pair.first) {
        for second in aligned.iter().filter(|one| one.metric.name == pair.second) {
            let of_second = attributes(second, gold);
            for attribute in attributes(first, gold).into_iter().filter(|name| of_second.contains(name)) {
                let contexts = first.against(second, gold, attribute);
                let scores = contexts.iter().map(Vec::len).sum();
                let differences = compare_metrics(&contexts, resampling);
                found.push(Compared { metrics: pair.clone(), attribute: attribute.clone(), scores, differences });
            }
        }
    }
    if found.iter().all(|one| one.scores == 0) {
        let [first, second] = pair.names().map(|name| name.escape_debug().to_string());
        return Err(MetaError::NothingToCompare { first, second }.into());
    }
    Ok(found)
}

impl Compare {
    /// Both names, for tables.
    pub(super) fn names(&self) -> [&str; 2] {
        [&self.first, &self.second]
    }
}
