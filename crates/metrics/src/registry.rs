//! All metrics, one line each.

use crate::metric::{DynDefinition, entry};

const METRICS: &[&dyn DynDefinition] = &[
    entry::<crate::bleu::Bleu>(),
    entry::<crate::chrf::Chrf>(),
    entry::<crate::ter::Ter>(),
    entry::<crate::rouge::Rouge1>(),
    entry::<crate::rouge::Rouge2>(),
    entry::<crate::rouge::RougeL>(),
    entry::<crate::rouge::RougeLsum>(),
    entry::<crate::token_f1::TokenF1>(),
    entry::<crate::meteor::Meteor>(),
    entry::<crate::gleu_google::GleuGoogle>(),
    entry::<crate::gleu_napoles::GleuNapoles>(),
    entry::<crate::sari::SariEasse>(),
    entry::<crate::sari::SariXu>(),
    entry::<crate::sari::SariHf>(),
    entry::<crate::levenshtein::Levenshtein>(),
    entry::<crate::levenshtein::LevenshteinSource>(),
    entry::<crate::bert_score::BertScore>(),
    entry::<crate::mover_score::MoverScore>(),
    entry::<crate::bart_score::BartScore>(),
    entry::<crate::bart_score::BartScoreSource>(),
    entry::<crate::blanc::Blanc>(),
    entry::<crate::bets::Bets>(),
];

/// All metrics, in listing order.
pub fn metrics() -> &'static [&'static dyn DynDefinition] {
    METRICS
}

/// The metric with this name.
pub fn metric(name: &str) -> Option<&'static dyn DynDefinition> {
    METRICS.iter().copied().find(|metric| metric.name() == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Direction::{self, HigherIsBetter as Higher, LowerIsBetter as Lower};
    use crate::{MetricItem, choose, fixture};

    #[test]
    fn names_are_unique_and_fit_for_a_command_line() {
        let names: BTreeSet<&str> = metrics().iter().map(|m| m.name()).collect();
        assert_eq!(names.len(), metrics().len());
        let fits = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        assert!(names.iter().all(|name| fits(name)));
        assert!(metrics().iter().flat_map(|m| m.parts()).all(|part| fits(part)));
    }

    #[test]
    fn every_metric_and_each_of_its_options_is_documented() {
        for metric in metrics() {
            assert!(
                !metric.about().is_empty() && !metric.about().ends_with('.') && !metric.about().contains('\n'),
                "{}",
                metric.name()
            );
            assert!(metric.long_about().starts_with(metric.about()), "{}", metric.name());
            for option in metric.options() {
                assert!(!option.help.is_empty(), "{} {}", metric.name(), option.name());
            }
        }
    }

    /// One golden case per metric: the better direction, and the tool's scores of the second item and of both items
    /// together.
    #[test]
    fn golden_cases() {
        let golden = [
            // sacrebleu 2.6.0
            ("bleu", Higher, 44.179_182_268_315_76, 72.214_161_744_468_1),
            ("chrf", Higher, 67.407_489_717_850_14, 84.382_700_323_118_64),
            ("ter", Lower, 25.0, 15.384_615_384_615_385),
            // rouge_score 0.1.2
            ("rouge-1", Higher, 0.823_529_411_764_705_8, 0.911_764_705_882_352_9),
            ("rouge-2", Higher, 0.4, 0.7),
            ("rouge-l", Higher, 0.769_230_769_230_769_2, 0.884_615_384_615_384_6),
            ("rouge-lsum", Higher, 0.769_230_769_230_769_2, 0.884_615_384_615_384_6),
            // The script of SQuAD 2.0, at the commit that `make_text_metrics.py` names
            ("token-f1", Higher, 0.833_333_333_333_333_4, 0.916_666_666_666_666_6),
            // nltk 3.10.4
            ("meteor", Higher, 0.974_417_936_188_56, 0.986_480_105_120_519),
            ("gleu-google", Higher, 0.461_538_461_538_461_56, 0.708_333_333_333_333_4),
            // The published scripts, at the commits that `make_text_metrics.py` names; rapidfuzz 3.14.6
            ("gleu-napoles", Higher, 0.255_630_692_185_538_47, 0.447_066_563_890_338_16),
            ("sari-easse", Higher, 59.466_254_755_086_59, 76.458_255_159_937_62),
            ("sari-xu", Higher, 59.166_666_666_666_664, 62.916_666_666_666_66),
            ("sari-hf", Higher, 60.866_910_866_910_864, 80.433_455_433_455_44),
            ("levenshtein", Lower, 9.0, 4.5),
            ("levenshtein-source", Lower, 22.0, 17.5),
            // By hand: a word is similar only to itself
            ("bert-score", Higher, 0.770_642_201_834_862_4, 0.885_321_100_917_431_2),
            // moverscore 1.0.3 with exact transport (within its guards against division by nothing)
            ("mover-score", Higher, 0.172_415, 0.586_208),
            // By hand: the length of the condition; one of four masked words predicted, none of one
            ("bart-score", Higher, -27.5, -26.25),
            ("bart-score-source", Higher, -51.0, -31.5),
            ("blanc", Higher, 0.25, 0.125),
            // The candidate contains seven of thirteen tokens of the source, including the special tokens; three of
            // five
            ("bets", Higher, 7.0 / 13.0, 0.569_230_769_230_769_2),
        ];
        let rows: BTreeSet<&str> = golden.iter().map(|(name, ..)| *name).collect();
        let missing: Vec<&str> = metrics().iter().map(|m| m.name()).filter(|name| !rows.contains(name)).collect();
        assert!(missing.is_empty(), "add rows for {missing:?} to `golden`, with the scores of the tool");
        let items = [
            MetricItem {
                candidate: "It rained all day, again.",
                references: vec!["It rained all day, again."],
                source: Some("rain all day"),
            },
            MetricItem {
                candidate: "The cats sat quietly on the mat.",
                references: vec!["The cat sat on the mat.", "The cats quietly sat on the mat by the door."],
                source: Some("There sat the cats, quietly, and it was on the mat."),
            },
        ];
        let models = fixture::models(&items);
        for (name, better, second, corpus) in golden {
            assert_eq!(Direction::for_metric(name), better, "{name}");
            let choices = choose(name).expect("registered");
            let scores = choices[0].build(&models).expect("defaults suit").score(&items, &|_| Ok(())).expect("scored");
            let tolerance = if name == "mover-score" { 2e-6 } else { 1e-9 };
            let near = |score: crate::Score, expected: f64| {
                score.value().is_some_and(|value| (value - expected).abs() < tolerance)
            };
            assert!(near(scores.items[1][0], second) && near(scores.corpus[0], corpus), "{name}: {scores:?}");
            let mean = crate::Score::mean(scores.items.iter().map(|row| row[0]));
            assert!(!metric(name).expect("registered").is_mean() || mean == scores.corpus[0], "{name}: {scores:?}");
            assert!(
                scores
                    .items
                    .iter()
                    .chain([&scores.corpus])
                    .all(|row| row.len() == 1 + metric(name).expect("registered").parts().len())
            );
        }
    }
}
