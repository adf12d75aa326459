//! Evaluates each metric with each attribute: agreement, averages, preferences and differences.

use std::collections::BTreeSet;
use std::path::Path;

use probity_metrics::{Direction, whole};
use probity_stats::{AgreementFigures, Correlation, MetricDifference, Resampling, compare_metrics};
use serde::Serialize;

use super::align::{AlignedScores, AlignmentCounts};
use super::judged::judged_items;
use super::people::GoldScores;
use super::preference::{PreferenceFigures, preference};
use super::scores::MetricPair;
use crate::conclusion::{AgreementCase, Conclusion, agreement_with_gold, best_agreement};
use crate::error::AnalysisError;
use crate::headline::Headline;
use crate::trust::{Promise, ToLabel, Trusted};

/// Agreement of a metric with an attribute.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct EvaluatedMetric {
    pub(crate) metric: String,
    pub(crate) attribute: String,
    pub(crate) counts: AlignmentCounts,
    #[serde(flatten)]
    pub(crate) figures: AgreementFigures,
    /// Conclusion; `None` if no correlation is defined.
    #[serde(skip)]
    pub(crate) agreement: Option<Conclusion>,
}

/// Figures of a metric averaged over attributes; a mean is absent if any value is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct AveragedFigures {
    pub(crate) metric: String,
    pub(crate) attributes: Vec<String>,
    pub(crate) pearson: LevelFigures,
    pub(crate) spearman: LevelFigures,
    pub(crate) kendall: LevelFigures,
    pub(crate) pairwise: Option<f64>,
    pub(crate) pairwise_with_ties: Option<f64>,
}

/// A correlation at three levels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct LevelFigures {
    pub(crate) per_context: Option<f64>,
    pub(crate) system: Option<f64>,
    pub(crate) pooled: Option<f64>,
}

/// Comparison of two metrics for an attribute.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ComparedMetrics {
    #[serde(flatten)]
    pub(crate) metrics: MetricPair,
    pub(crate) attribute: String,
    /// Candidates with both scores and gold.
    pub(crate) scores: usize,
    pub(crate) differences: Vec<MetricDifference>,
}

/// All results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Evaluation {
    pub(crate) gold: String,
    pub(crate) metrics: Vec<EvaluatedMetric>,
    pub(crate) averages: Vec<AveragedFigures>,
    pub(crate) preferences: Vec<PreferenceFigures>,
    pub(crate) comparisons: Vec<ComparedMetrics>,
    /// Guarantees from the labels for each metric.
    pub(crate) trust: Vec<Trusted>,
    /// Conclusions from labelled pairs, parallel to [`trust`](Self::trust).
    #[serde(skip)]
    pub(crate) labelled: Vec<Option<Conclusion>>,
    /// Metrics with lower scores better, whose sign is flipped before the comparison with gold.
    pub(crate) lower_is_better: Vec<String>,
    pub(crate) notes: Vec<String>,
}

fn file_name(path: &str) -> String {
    Path::new(path).file_name().map_or_else(|| path.to_owned(), |name| name.to_string_lossy().into_owned())
}

impl Evaluation {
    /// Evaluates each metric with each attribute. `going_on` is called before each of them, since many contexts take
    /// long.
    pub(crate) fn compute<E>(
        aligned: &[AlignedScores<'_>],
        gold: &GoldScores,
        resampling: &Resampling,
        going_on: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Self, E> {
        let lower = aligned.iter().filter(|one| one.metric.direction == Direction::LowerIsBetter);
        let mut evaluation = Self {
            // The folder is in the manifest; it does not affect the evaluation.
            gold: file_name(&gold.file),
            metrics: Vec::new(),
            averages: Vec::new(),
            preferences: aligned.iter().filter_map(|one| preference(one, gold, resampling)).collect(),
            comparisons: Vec::new(),
            trust: Vec::new(),
            labelled: Vec::new(),
            lower_is_better: lower.map(|one| one.metric.name.clone()).collect(),
            notes: aligned.iter().filter_map(AlignedScores::note).chain(gold.notes.iter().cloned()).collect(),
        };
        for one in aligned {
            for attribute in attributes(one, gold) {
                going_on()?;
                let contexts = one.contexts(gold, attribute);
                let figures = AgreementFigures::from_scores(&contexts, resampling);
                let counts = one.counts(gold, attribute);
                let (answers, confidence) = (one.metric.answers, resampling.confidence);
                let case = AgreementCase { unscored: counts.unscored(), answers, confidence };
                let agreement = agreement_with_gold(&figures, &contexts, case);
                let (metric, attribute) = (one.metric.name.clone(), attribute.clone());
                evaluation.metrics.push(EvaluatedMetric { metric, attribute, counts, figures, agreement });
            }
        }
        Ok(evaluation)
    }

    /// Averages the figures of each metric over the attributes.
    pub(crate) fn average(&mut self) {
        let mut names: Vec<&str> = Vec::new();
        for one in &self.metrics {
            if !names.contains(&one.metric.as_str()) {
                names.push(&one.metric);
            }
        }
        self.averages = names.into_iter().filter_map(|name| averaged(name, &self.metrics)).collect();
    }

    /// Tests the differences between metrics.
    pub(crate) fn compare(
        &mut self,
        pairs: &[MetricPair],
        aligned: &[AlignedScores<'_>],
        gold: &GoldScores,
        resampling: &Resampling,
    ) -> Result<(), AnalysisError> {
        for pair in pairs {
            self.comparisons.extend(compared(pair, aligned, gold, resampling)?);
        }
        Ok(())
    }

    /// Numbers of compared, undefined, missing and unmatched scores, and of preferences with an unscored candidate.
    pub(crate) fn outcomes(&self) -> [(&'static str, usize); 5] {
        let sum = |of: fn(&AlignmentCounts) -> usize| self.metrics.iter().map(|one| of(&one.counts)).sum::<usize>();
        [
            ("scored", sum(|c| c.compared)),
            ("undefined", sum(|c| c.undefined)),
            ("missing", sum(|c| c.without_score)),
            ("without_gold", sum(|c| c.without_gold)),
            ("without_choice", self.preferences.iter().map(|one| one.without_scores).sum()),
        ]
    }

    /// Best metrics for each attribute and for preferences. Secondary values of a metric are omitted if the metric
    /// itself is evaluated.
    pub(crate) fn conclusions(&self) -> Vec<Conclusion> {
        let names: BTreeSet<&str> = self
            .metrics
            .iter()
            .map(|one| one.metric.as_str())
            .chain(self.preferences.iter().map(|one| one.metric.as_str()))
            .collect();
        let stands = |name: &str| !is_part(name, &names);
        let mut attributes: Vec<&str> = Vec::new();
        for one in &self.metrics {
            if !attributes.contains(&one.attribute.as_str()) {
                attributes.push(&one.attribute);
            }
        }
        let named = |name: &str, found: Conclusion| Conclusion { about: Some(name.to_owned()), ..found };
        let of_attribute = |attribute: &str| {
            let held = self.metrics.iter().filter(|one| one.attribute == attribute && stands(&one.metric));
            let found = held.filter_map(|one| Some(named(&one.metric, one.agreement.clone()?)));
            best_agreement(Some(attribute), found.collect(), &self.parts(attribute, &names))
        };
        let mut conclusions: Vec<Conclusion> = attributes.into_iter().filter_map(of_attribute).collect();
        let held = self.preferences.iter().filter(|one| stands(&one.metric));
        let found = held.filter_map(|one| {
            let name = one.attribute.iter().fold(one.metric.clone(), |name, attribute| format!("{name}, {attribute}"));
            Some(named(&name, self.labelled_since(one).or(one.agreement.as_ref())?.clone()))
        });
        let found: Vec<Conclusion> = found.collect();
        let parts = self.preferences.iter().filter(|one| is_part(&one.metric, &names));
        let parts: Vec<_> = parts.filter_map(|one| Some((one.metric.clone(), one.accuracy?))).collect();
        conclusions.extend(best_agreement(None, found, &parts));
        if conclusions.is_empty() {
            // There are only labelled pairs.
            let held = self.trust.iter().zip(&self.labelled);
            let found = held.filter_map(|(one, agreement)| Some(named(&one.about(), agreement.clone()?)));
            conclusions.extend(best_agreement(None, found.collect(), &[]));
        }
        if conclusions.is_empty() {
            conclusions.push(Conclusion::without_agreement());
        }
        conclusions
    }

    /// Spearman of the secondary values of metrics.
    fn parts(&self, attribute: &str, names: &BTreeSet<&str>) -> Vec<(String, f64)> {
        let of_attribute = self.metrics.iter().filter(|one| one.attribute == attribute && is_part(&one.metric, names));
        let value = |one: &EvaluatedMetric| {
            let spearman = &one.figures.spearman;
            spearman.per_context.figure.mean.or(spearman.pooled.figure.coefficient)
        };
        of_attribute.filter_map(|one| Some((one.metric.clone(), value(one)?))).collect()
    }

    /// Conclusion from preferences and later labelled pairs; `None` without such pairs.
    pub(crate) fn labelled_since(&self, one: &PreferenceFigures) -> Option<&Conclusion> {
        let more = |trusted: &Trusted| trusted.preferences_of(&one.metric).is_some_and(|n| n > one.preferred());
        let (_, agreement) = self.trust.iter().zip(&self.labelled).find(|(trusted, _)| more(trusted))?;
        agreement.as_ref()
    }

    /// Computes the guarantees for each metric by attribute and preference. Returns what to label next.
    pub(crate) fn trust(&mut self, aligned: &[AlignedScores<'_>], gold: &GoldScores, promise: Promise) -> ToLabel {
        let mut back = ToLabel::default();
        let prefers = gold.items.iter().any(|item| item.preference.is_some());
        // Attributes with labelled pairs.
        let of_pairs: BTreeSet<Option<&str>> = gold.labelled.iter().map(|pair| pair.attribute.as_deref()).collect();
        for one in aligned {
            let attributes = attributes(one, gold).into_iter().map(|attribute| Some(attribute.as_str()));
            let mut all: Vec<Option<&str>> = attributes.chain(prefers.then_some(None)).collect();
            let own = one.metric.attribute.as_deref();
            for name in of_pairs.iter().copied().filter(|name| name.is_none() || own.is_none() || *name == own) {
                if !all.contains(&name) {
                    all.push(name);
                }
            }
            for attribute in all {
                let items = judged_items(one, gold, attribute);
                let (trusted, more) = Trusted::compute(&one.metric.name, attribute, &items, promise);
                let (answers, confidence) = (one.metric.answers, promise.confidence);
                self.labelled.push(trusted.agreement(AgreementCase { unscored: None, answers, confidence }));
                self.trust.push(trusted);
                back.extend(more);
            }
        }
        back
    }

    /// Mean Spearman over contexts; over all scores if no item has several candidates.
    pub(crate) fn headline(&self) -> Vec<Headline> {
        let of = |one: &EvaluatedMetric| {
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

/// Whether a metric is a secondary value of another evaluated metric.
pub(crate) fn is_part(name: &str, names: &BTreeSet<&str>) -> bool {
    whole(name).is_some_and(|whole| names.contains(whole))
}

/// Gold attributes to compare with: the one that the scores name, if gold has it, else all.
fn attributes<'g>(aligned: &AlignedScores<'_>, gold: &'g GoldScores) -> Vec<&'g String> {
    let own = aligned.metric.attribute.as_ref().and_then(|own| gold.attributes.iter().find(|name| *name == own));
    own.map_or_else(|| gold.attributes.iter().collect(), |own| vec![own])
}

fn averaged(metric: &str, all: &[EvaluatedMetric]) -> Option<AveragedFigures> {
    let of_metric: Vec<&EvaluatedMetric> = all.iter().filter(|one| one.metric == metric).collect();
    let mean = |value: &dyn Fn(&AgreementFigures) -> Option<f64>| {
        // All values or none: a mean over fewer attributes is not comparable between metrics.
        let values: Option<Vec<f64>> = of_metric.iter().map(|one| value(&one.figures)).collect();
        values.map(|values| values.iter().sum::<f64>() / values.len() as f64)
    };
    let levels = |of: Correlation| LevelFigures {
        per_context: mean(&|figures| figures.correlation(of).per_context.figure.mean),
        system: mean(&|figures| figures.correlation(of).system.and_then(|system| system.figure.coefficient)),
        pooled: mean(&|figures| figures.correlation(of).pooled.figure.coefficient),
    };
    (of_metric.len() > 1).then(|| AveragedFigures {
        metric: metric.to_owned(),
        attributes: of_metric.iter().map(|one| one.attribute.clone()).collect(),
        pearson: levels(Correlation::Pearson),
        spearman: levels(Correlation::Spearman),
        kendall: levels(Correlation::Kendall),
        pairwise: mean(&|figures| figures.pairwise.accuracy),
        pairwise_with_ties: mean(&|figures| figures.pairwise_with_ties.map(|ties| ties.accuracy)),
    })
}

/// Compares a pair of metrics on each attribute that both have.
fn compared(
    pair: &MetricPair,
    aligned: &[AlignedScores<'_>],
    gold: &GoldScores,
    resampling: &Resampling,
) -> Result<Vec<ComparedMetrics>, AnalysisError> {
    let mut found = Vec::new();
    for first in aligned.iter().filter(|one| one.metric.name == pair.first) {
        for second in aligned.iter().filter(|one| one.metric.name == pair.second) {
            let of_second = attributes(second, gold);
            for attribute in attributes(first, gold).into_iter().filter(|name| of_second.contains(name)) {
                let contexts = first.against(second, gold, attribute);
                let scores = contexts.iter().map(Vec::len).sum();
                let differences = compare_metrics(&contexts, resampling);
                found.push(ComparedMetrics {
                    metrics: pair.clone(),
                    attribute: attribute.clone(),
                    scores,
                    differences,
                });
            }
        }
    }
    if found.iter().all(|one| one.scores == 0) {
        let [first, second] = pair.names().map(|name| name.escape_debug().to_string());
        return Err(AnalysisError::NothingToCompare { first, second });
    }
    Ok(found)
}
