//! Hub models commonly used as judges. Data from their public pages; we have run none of them.

/// A repository with a judge's weights in one format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JudgeVariant {
    /// Name for `probity model get` and `--model`.
    pub name: &'static str,
    /// Weight format.
    pub weights: StoredWeights,
}

/// Storage format of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredWeights {
    /// GGUF, mostly 4 bits with scales, partly 6 bits.
    Q4KM,
    /// GGUF, 8 bits with a 16-bit scale per 32 weights.
    Q80,
    /// safetensors.
    Bf16,
    /// safetensors.
    F32,
}

impl StoredWeights {
    /// Common name.
    pub fn label(self) -> &'static str {
        match self {
            Self::Q4KM => "Q4_K_M",
            Self::Q80 => "Q8_0",
            Self::Bf16 => "BF16",
            Self::F32 => "F32",
        }
    }

    /// Bits per weight including scales. Approximate for `Q4_K_M`, where the share of 6-bit tensors depends on the
    /// model.
    pub fn bits(self) -> f64 {
        match self {
            Self::Q4KM => 5.0,
            Self::Q80 => 8.5,
            Self::Bf16 => 16.0,
            Self::F32 => 32.0,
        }
    }
}

/// A judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownJudge {
    /// Common name.
    pub title: &'static str,
    /// Number of parameters.
    pub parameters: u64,
    /// Licence of the weights.
    pub licence: &'static str,
    /// Whether its own repository requires accepting terms.
    pub gated: bool,
    /// Description of its purpose.
    pub about: &'static str,
    /// Available weights, smallest first.
    pub variants: &'static [JudgeVariant],
}

/// Rule of thumb for memory besides the weights: 10% of them, plus half a gigabyte for keys, values and activations.
const EXTRA_BYTES: f64 = 0.5e9;

impl KnownJudge {
    /// Estimated bytes of the weights: parameters × bits / 8.
    pub fn weight_bytes(&self, stored: StoredWeights) -> u64 {
        (self.parameters as f64 * stored.bits() / 8.0) as u64
    }

    /// The repositories with its weights.
    #[cfg(feature = "hub")]
    pub(super) fn repositories(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.variants.iter().map(|variant| variant.name.split(':').next().unwrap_or(variant.name))
    }

    /// The most precise weights that fit into this much memory.
    pub fn that_fits(&self, memory: u64) -> Option<&'static JudgeVariant> {
        self.variants.iter().rev().find(|variant| memory_needed(self.weight_bytes(variant.weights)) <= memory)
    }
}

/// Estimated memory to run weights of this size: 10% and half a gigabyte more.
pub fn memory_needed(weight_bytes: u64) -> u64 {
    (weight_bytes as f64).mul_add(1.1, EXTRA_BYTES) as u64
}

/// Description of the rule of [`memory_needed`] and [`KnownJudge::weight_bytes`].
pub const MEMORY_RULE: &str = "memory is computed: parameters x bits / 8, plus 10%, plus 0.5 GB (Q4_K_M counts 5 bits, \
                               Q8_0 8.5, BF16 16, F32 32)";

/// All judges, by family, smallest first.
pub fn judges() -> &'static [KnownJudge] {
    &JUDGES
}

const fn q4(name: &'static str) -> JudgeVariant {
    JudgeVariant { name, weights: StoredWeights::Q4KM }
}

const fn q8(name: &'static str) -> JudgeVariant {
    JudgeVariant { name, weights: StoredWeights::Q80 }
}

const fn bf16(name: &'static str) -> JudgeVariant {
    JudgeVariant { name, weights: StoredWeights::Bf16 }
}

const fn f32(name: &'static str) -> JudgeVariant {
    JudgeVariant { name, weights: StoredWeights::F32 }
}

const FLAN: &str =
    "encoder-decoder, 512 tokens in training: label probabilities, likelihoods of texts, pairwise questions";
const SMALL: &str = "small: likelihoods and fluency; weak as a pairwise judge";
const RATHER_SMALL: &str = "rather small: comparisons, with position bias";
const GENERAL: &str = "judge: comparisons, ratings, revised references; 128k tokens of context";
const QWEN: &str = "judge: comparisons, ratings, revised references; 32k tokens of context";

static JUDGES: [KnownJudge; 17] = [
    KnownJudge {
        title: "Flan-T5 base",
        parameters: 247_577_856,
        licence: "Apache-2.0",
        gated: false,
        about: FLAN,
        variants: &[f32("google/flan-t5-base")],
    },
    KnownJudge {
        title: "Flan-T5 large",
        parameters: 783_150_080,
        licence: "Apache-2.0",
        gated: false,
        about: FLAN,
        variants: &[f32("google/flan-t5-large")],
    },
    KnownJudge {
        title: "Flan-T5 XL",
        parameters: 2_849_757_184,
        licence: "Apache-2.0",
        gated: false,
        about: FLAN,
        variants: &[f32("google/flan-t5-xl")],
    },
    KnownJudge {
        title: "Flan-T5 XXL",
        parameters: 11_135_332_352,
        licence: "Apache-2.0",
        gated: false,
        about: FLAN,
        variants: &[f32("google/flan-t5-xxl")],
    },
    KnownJudge {
        title: "Llama 3.2 1B Instruct",
        parameters: 1_235_814_400,
        licence: "Llama 3.2 Community",
        gated: true,
        about: SMALL,
        variants: &[
            q4("bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M"),
            q8("bartowski/Llama-3.2-1B-Instruct-GGUF:Q8_0"),
            bf16("meta-llama/Llama-3.2-1B-Instruct"),
        ],
    },
    KnownJudge {
        title: "Llama 3.2 3B Instruct",
        parameters: 3_212_749_824,
        licence: "Llama 3.2 Community",
        gated: true,
        about: RATHER_SMALL,
        variants: &[
            q4("bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M"),
            q8("bartowski/Llama-3.2-3B-Instruct-GGUF:Q8_0"),
            bf16("meta-llama/Llama-3.2-3B-Instruct"),
        ],
    },
    KnownJudge {
        title: "Llama 3.1 8B Instruct",
        parameters: 8_030_261_248,
        licence: "Llama 3.1 Community",
        gated: true,
        about: GENERAL,
        variants: &[
            q4("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_K_M"),
            q8("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q8_0"),
            bf16("meta-llama/Llama-3.1-8B-Instruct"),
        ],
    },
    KnownJudge {
        title: "Llama 3.1 70B Instruct",
        parameters: 70_553_706_496,
        licence: "Llama 3.1 Community",
        gated: true,
        about: GENERAL,
        variants: &[q4("bartowski/Meta-Llama-3.1-70B-Instruct-GGUF:Q4_K_M"), bf16("meta-llama/Llama-3.1-70B-Instruct")],
    },
    KnownJudge {
        title: "Mistral 7B Instruct v0.3",
        parameters: 7_248_023_552,
        licence: "Apache-2.0",
        gated: true,
        about: "judge: comparisons and ratings; 32k tokens of context",
        variants: &[
            q4("bartowski/Mistral-7B-Instruct-v0.3-GGUF:Q4_K_M"),
            q8("bartowski/Mistral-7B-Instruct-v0.3-GGUF:Q8_0"),
            bf16("mistralai/Mistral-7B-Instruct-v0.3"),
        ],
    },
    KnownJudge {
        title: "Prometheus 2 7B",
        parameters: 7_241_732_096,
        licence: "Apache-2.0",
        gated: false,
        about: "trained to judge: ratings with a rubric and a reference, and comparisons",
        variants: &[q4("prometheus-eval/prometheus-7b-v2.0-GGUF:Q4_K_M"), bf16("prometheus-eval/prometheus-7b-v2.0")],
    },
    KnownJudge {
        title: "Qwen2.5 0.5B Instruct",
        parameters: 494_032_768,
        licence: "Apache-2.0",
        gated: false,
        about: SMALL,
        variants: &[
            q4("Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M"),
            q8("Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q8_0"),
            bf16("Qwen/Qwen2.5-0.5B-Instruct"),
        ],
    },
    KnownJudge {
        title: "Qwen2.5 1.5B Instruct",
        parameters: 1_543_714_304,
        licence: "Apache-2.0",
        gated: false,
        about: RATHER_SMALL,
        variants: &[
            q4("Qwen/Qwen2.5-1.5B-Instruct-GGUF:Q4_K_M"),
            q8("Qwen/Qwen2.5-1.5B-Instruct-GGUF:Q8_0"),
            bf16("Qwen/Qwen2.5-1.5B-Instruct"),
        ],
    },
    KnownJudge {
        title: "Qwen2.5 3B Instruct",
        parameters: 3_085_938_688,
        licence: "Qwen Research (not commercial)",
        gated: false,
        about: QWEN,
        variants: &[
            q4("Qwen/Qwen2.5-3B-Instruct-GGUF:Q4_K_M"),
            q8("Qwen/Qwen2.5-3B-Instruct-GGUF:Q8_0"),
            bf16("Qwen/Qwen2.5-3B-Instruct"),
        ],
    },
    KnownJudge {
        title: "Qwen2.5 7B Instruct",
        parameters: 7_615_616_512,
        licence: "Apache-2.0",
        gated: false,
        about: QWEN,
        // Qwen's own GGUF files of this size and above are split.
        variants: &[
            q4("bartowski/Qwen2.5-7B-Instruct-GGUF:Q4_K_M"),
            q8("bartowski/Qwen2.5-7B-Instruct-GGUF:Q8_0"),
            bf16("Qwen/Qwen2.5-7B-Instruct"),
        ],
    },
    KnownJudge {
        title: "Qwen2.5 14B Instruct",
        parameters: 14_770_033_664,
        licence: "Apache-2.0",
        gated: false,
        about: QWEN,
        variants: &[
            q4("bartowski/Qwen2.5-14B-Instruct-GGUF:Q4_K_M"),
            q8("bartowski/Qwen2.5-14B-Instruct-GGUF:Q8_0"),
            bf16("Qwen/Qwen2.5-14B-Instruct"),
        ],
    },
    KnownJudge {
        title: "Qwen2.5 32B Instruct",
        parameters: 32_763_876_352,
        licence: "Apache-2.0",
        gated: false,
        about: QWEN,
        variants: &[
            q4("bartowski/Qwen2.5-32B-Instruct-GGUF:Q4_K_M"),
            q8("bartowski/Qwen2.5-32B-Instruct-GGUF:Q8_0"),
            bf16("Qwen/Qwen2.5-32B-Instruct"),
        ],
    },
    KnownJudge {
        title: "Qwen2.5 72B Instruct",
        parameters: 72_706_203_648,
        licence: "Qwen",
        gated: false,
        about: QWEN,
        variants: &[q4("bartowski/Qwen2.5-72B-Instruct-GGUF:Q4_K_M"), bf16("Qwen/Qwen2.5-72B-Instruct")],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::HubName;

    #[test]
    fn every_variant_is_a_name_that_can_be_fetched() {
        let mut seen = std::collections::BTreeSet::new();
        for judge in judges() {
            assert!(!judge.about.is_empty() && !judge.licence.is_empty() && !judge.variants.is_empty());
            assert!(
                judge.variants.windows(2).all(|pair| pair[0].weights.bits() < pair[1].weights.bits()),
                "{}",
                judge.title
            );
            for variant in judge.variants {
                let name = HubName::parse(variant.name).expect(variant.name);
                let is_gguf = matches!(variant.weights, StoredWeights::Q4KM | StoredWeights::Q80);
                assert_eq!(name.file.as_deref(), is_gguf.then_some(variant.weights.label()), "{}", variant.name);
                assert!(seen.insert(variant.name), "{} twice", variant.name);
            }
        }
    }

    #[test]
    fn sizes_are_near_those_of_files_that_are_known() {
        let size = |title: &str, stored| {
            let judge = judges().iter().find(|judge| judge.title == title).expect(title);
            judge.weight_bytes(stored) as f64 / 1e9
        };
        // From the repositories' pages, in GB.
        for (title, stored, gigabytes) in [
            ("Flan-T5 base", StoredWeights::F32, 0.99),
            ("Llama 3.1 8B Instruct", StoredWeights::Q4KM, 4.92),
            ("Llama 3.1 8B Instruct", StoredWeights::Q80, 8.54),
            ("Mistral 7B Instruct v0.3", StoredWeights::Q4KM, 4.37),
            ("Qwen2.5 7B Instruct", StoredWeights::Bf16, 15.2),
            ("Qwen2.5 14B Instruct", StoredWeights::Q4KM, 8.99),
        ] {
            let ratio = size(title, stored) / gigabytes;
            assert!((0.95..1.06).contains(&ratio), "{title}: {ratio}");
        }
        assert_eq!(memory_needed(10_000_000_000), 11_500_000_000);
        let judge = judges().iter().find(|judge| judge.title == "Qwen2.5 7B Instruct").expect("there");
        let fits = |gigabytes: u64| judge.that_fits(gigabytes * 1_000_000_000).map(|variant| variant.weights);
        assert_eq!(
            (fits(4), fits(8), fits(12), fits(24)),
            (None, Some(StoredWeights::Q4KM), Some(StoredWeights::Q80), Some(StoredWeights::Bf16))
        );
    }
}
