//! Evaluation methods on the language-model contract.
//!
//! A [`Method`] turns samples into prompts, asks a [`LanguageModel`](probity_lm::LanguageModel) about all of them at
//! once, writes each answer to an [`RunOutput`] as it comes, and concludes with a [`RunSummary`]. It knows nothing of
//! tensors, files or terminals. Methods are found through the registry, [`methods`]: the command line, its help and its
//! reference pages are made from there. A new method is one file and one line.

mod answer;
mod answer_text;
mod attack;
mod attributes;
mod builtin;
mod chats;
mod checklist;
mod comparative;
mod defence;
mod defended;
mod error;
mod flags;
mod g_eval;
mod gpt_score;
#[cfg(test)]
mod hostile;
mod judge;
mod learned;
mod listed;
mod meta;
mod metacritique;
mod method;
mod metrics;
#[cfg(test)]
mod order_tests;
mod pairs;
mod para_pluie;
mod pointwise;
mod prompt_scoring;
mod prompt_set;
mod query;
mod question;
mod quote;
mod refeval;
mod registry;
mod revise;
mod reviseval;
mod revision;
mod reward;
mod run;
mod scale;
mod signing;
mod stage;
mod summary;
mod template;
#[cfg(test)]
mod testing;
mod written;
mod written_once;

pub use probity_analysis::conclusion::{Conclusion, Trust};
pub use probity_analysis::{Headline, RunScores, Section};
use probity_analysis::{conclusion, figures, gold, thresholds};

pub use attack::{Attack, AttackParams};
pub use attributes::near_known_attribute;
pub use builtin::Builtin;
pub use checklist::{Checklist, ChecklistParams};
pub use comparative::{
    Budget, BudgetError, Comparative, ComparativeParams, DebiasMode, Decide, LabelWords, PairOrder, StopAt,
};
pub use defence::{Defence, DefenceError};
pub use error::MethodError;
pub use g_eval::{GEval, GEvalParams};
pub use gpt_score::{GptScore, GptScoreParams, Reduce};
pub use judge::{Judge, JudgeParams, JudgingOptions, Mode, Orders, ReferenceUse, References, VerdictMode};
pub use learned::{FeatureBlock, Learn, LearnParams, Learned, LearnedParams};
pub use meta::Meta;
pub use metacritique::{Baseline, ClaimMode, MetaCritique, MetaCritiqueParams, Unread};
pub use method::{Configured, DynMethod, Input, LabelledFile, Method, ModelKind, Needs, RoleModel, entry};
pub use metrics::{MetricModelOptions, Metrics, MetricsParams};
pub use pairs::{PairSelection, rng_for};
pub use para_pluie::{Against, ParaPluie, ParaPluieParams};
pub use prompt_scoring::{PromptScoring, PromptScoringParams};
pub use question::{LayoutOptions, PromptFormat, SubjectOptions};
pub use refeval::{JudgementMode, JudgementRule, RefEval, RefEvalBaseline, RefEvalParams};
pub use registry::{method, methods};
pub use revise::{Aspect, OwnTemplate, Revise, ReviseParams, ReviserOptions, RevisionKind};
pub use reviseval::{Reference, RevisEval, RevisEvalParams};
pub use revision::{RevisionJudge, RevisionParams, RevisionStudy};
pub use reward::{Reward, RewardParams};
pub use run::{Cost, MemoryOutput, Run, RunOutput};
pub use scale::RatingScale;
pub use stage::{Artefact, GivenTable, KeepPart, MethodStage, RowError, StageDone, StageSpec, Staging, samples_key};
pub use summary::{MethodReport, Outcomes, RunSummary, Signature, TemplateMark};
pub use template::TemplateError;
