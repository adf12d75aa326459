//! The options of `revise`, including those shared with `reviseval`.

use std::fmt;
use std::str::FromStr;

use probity_options::written_as_text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::MethodError;
use crate::attributes::{self, AttributeWords, attribute_words};
use crate::judge::Mode;
use crate::question::{LayoutOptions, criteria, first_duplicate, text_or_file};

/// How a reference is generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RevisionKind {
    /// Revision of a text; in a pair the other is guidance
    Adapted,
    /// The model's own answer, without seeing the candidates
    Direct,
    /// A revision for each --aspect, as in adapted
    Aspects,
    /// One revision of both texts of a pair
    Both,
    /// Two revisions, each of one text of a pair alone
    Each,
    /// Paraphrases of the references in the data
    Diversified,
}

impl RevisionKind {
    const ALL: [Self; 6] = [Self::Adapted, Self::Direct, Self::Aspects, Self::Both, Self::Each, Self::Diversified];

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The name on the command line.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Adapted => "adapted",
            Self::Direct => "direct",
            Self::Aspects => "aspects",
            Self::Both => "both",
            Self::Each => "each",
            Self::Diversified => "diversified",
        }
    }
}

impl fmt::Display for RevisionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An attribute to revise for, with its meaning: `NAME` or `NAME=MEANING`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Aspect {
    name: String,
    meaning: Option<String>,
}

/// A text that is not an [`Aspect`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("expected NAME or NAME=MEANING")]
pub(crate) struct AspectError;

impl FromStr for Aspect {
    type Err = AspectError;

    fn from_str(text: &str) -> Result<Self, AspectError> {
        let (name, meaning) =
            text.split_once('=').map_or((text, None), |(name, meaning)| (name, Some(meaning.trim().to_owned())));
        if name.trim().is_empty() || meaning.as_ref().is_some_and(String::is_empty) {
            return Err(AspectError);
        }
        Ok(Self { name: name.trim().to_owned(), meaning })
    }
}

impl fmt::Display for Aspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.meaning.as_ref().map_or(Ok(()), |meaning| write!(f, "={meaning}"))
    }
}

written_as_text!(Aspect);

/// The aspects of the paper's appendix L, for answers to instructions.
const ASPECTS: [(&str, &str, &str); 5] = [
    (
        "helpfulness",
        "more helpful",
        "Whether it gives the one who asked what they need, all of it, and in a form that they can use.",
    ),
    ("relevance", "more relevant", "Whether it answers what was asked and does not stray from it."),
    ("accuracy", "more accurate", "Whether what it says is true, and its reasoning, figures and code are right."),
    ("depth", "more thorough", "Whether it goes to the bottom of the matter, or stays on its surface."),
    ("creativity", "more original", "Whether it has ideas of its own where the task leaves room for them."),
];

/// The default criteria of revisions.
const CRITERIA: &str = "how helpful it is to the one who asked, how far it keeps to the task, whether it is correct, \
                        how deep it goes, how original it is, and whether it is as detailed as it should be.";

/// The attribute that a revision should improve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RevisionFocus {
    /// The attribute or aspect; absent for the text as a whole.
    pub(crate) name: Option<String>,
    /// The goal of the revision, such as `more coherent`.
    pub(crate) comparative: String,
    /// The criteria.
    pub(crate) criteria: String,
}

impl RevisionFocus {
    /// The text as a whole.
    pub(crate) fn whole(criteria: Option<&str>) -> Result<Self, MethodError> {
        let criteria = criteria.map_or_else(|| Ok(CRITERIA.to_owned()), |text| text_or_file("--criteria", text))?;
        Ok(Self { name: None, comparative: "better".to_owned(), criteria })
    }

    /// One of several attributes, with its built-in or user-defined meaning.
    pub(crate) fn attribute(
        words: &AttributeWords,
        given: Option<&str>,
        attributes: usize,
    ) -> Result<Self, MethodError> {
        let criteria = criteria(given, words, attributes)?;
        Ok(Self { name: Some(words.attribute.clone()), comparative: words.comparative.clone(), criteria })
    }

    fn aspect(aspect: &Aspect) -> Result<Self, MethodError> {
        let Aspect { name, meaning } = aspect;
        let known = ASPECTS.iter().find(|(known, ..)| known == name);
        let of_list = attribute_words(name, None);
        let comparative = known.map_or(of_list.comparative, |(_, comparative, _)| (*comparative).to_owned());
        let built_in = known.map(|(.., text)| *text).or_else(|| Some(&attributes::lookup(name)?.definition));
        let Some(criteria) = meaning.clone().or_else(|| built_in.map(str::to_owned)) else {
            let known =
                ASPECTS.iter().map(|(name, ..)| *name).chain(attributes::KNOWN.iter().map(|known| &*known.name));
            let known: Vec<&str> = known.collect();
            let near = probity_lm::did_you_mean(probity_lm::nearest(name, known.iter().copied()));
            let known = known.join(", ");
            let why = format!("no built-in meaning of `{name}`{near}");
            let hint = format!("define it with --aspect '{name}=MEANING', or use one of {known}");
            return MethodError::refuse(format!("--aspect {name}"), why, hint);
        };
        Ok(Self { name: Some(name.clone()), comparative, criteria })
    }
}

/// A user's template for the reviser: `KIND=FILE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnTemplate {
    pub(crate) kind: RevisionKind,
    pub(crate) file: String,
}

/// A text that is not an [`OwnTemplate`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub(crate) enum OwnTemplateError {
    /// The file is missing.
    #[error("expected KIND=FILE, such as adapted=mine.j2")]
    Form,
    /// An unknown kind of reference.
    #[error("`{}` is not one of {}", .0.escape_debug(), RevisionKind::ALL.map(RevisionKind::as_str).join(", "))]
    Kind(String),
}

impl FromStr for OwnTemplate {
    type Err = OwnTemplateError;

    fn from_str(text: &str) -> Result<Self, OwnTemplateError> {
        let (kind, file) = text.split_once('=').ok_or(OwnTemplateError::Form)?;
        let kind = RevisionKind::named(kind).ok_or_else(|| OwnTemplateError::Kind(kind.to_owned()))?;
        Ok(Self { kind, file: file.to_owned() })
    }
}

impl fmt::Display for OwnTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind, self.file)
    }
}

written_as_text!(OwnTemplate);

/// The treatment of a draft that is already good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum GoodDraft {
    /// The model may return it unchanged, as in the paper
    #[default]
    Keep,
    /// The model must change it
    Improve,
}

impl GoodDraft {
    /// The sentence in the prompt.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Self::Keep => "Where nothing about the draft needs to change, repeat it word for word.",
            Self::Improve => "The draft can be improved, so do not hand it back as it is.",
        }
    }
}

/// Generation of references: shared options of all methods that generate some.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ReviserOptions {
    /// Aspect of kind `aspects`; repeatable
    ///
    /// An aspect that is not built in needs its meaning. Omitted: helpfulness, relevance, accuracy, depth and
    /// creativity.
    #[schemars(extend("form" = "NAME[=MEANING]", "signed" = "method"))]
    pub aspect: Vec<Aspect>,
    /// Paraphrases per reference of kind `diversified`
    ///
    /// They are sampled at temperature 1.
    #[schemars(range(min = 1), extend("form" = "N", "signed_if" = ["kind=diversified", "reference=diversified"]))]
    #[default(10)]
    pub diversify: u16,
    /// What to do with a draft that is already good
    pub good_draft: GoodDraft,
    /// Your own template for a kind; repeatable
    #[schemars(extend("form" = "KIND=FILE", "signed" = "method"))]
    pub reviser_template: Vec<OwnTemplate>,
    /// Use references that were cut off at the limit
    ///
    /// Otherwise they are kept in the table of revisions but are not references.
    pub use_truncated: bool,
    /// Write chats for training to the run folder
    ///
    /// The chats have the prompts and their answers.
    #[schemars(extend("scores" = false))]
    pub export_sets: bool,
}

impl ReviserOptions {
    /// The distinct aspects.
    pub(crate) fn aspects(&self) -> Result<Vec<RevisionFocus>, MethodError> {
        let names: Vec<&str> = self.aspect.iter().map(|aspect| aspect.name.as_str()).collect();
        if let Some(twice) = first_duplicate(&names) {
            return MethodError::refuse(format!("--aspect {twice}"), "repeated", "name each aspect once");
        }
        let built_in = || ASPECTS.iter().map(|(name, ..)| Aspect { name: (*name).to_owned(), meaning: None }).collect();
        let aspects: Vec<Aspect> = if self.aspect.is_empty() { built_in() } else { self.aspect.clone() };
        aspects.iter().map(RevisionFocus::aspect).collect()
    }

    /// Refuses options that do not apply to any of `kinds`.
    pub(crate) fn check(&self, kinds: &[RevisionKind], option: &str) -> Result<(), MethodError> {
        if !self.aspect.is_empty() && !kinds.contains(&RevisionKind::Aspects) {
            let hint = format!("use {option} aspects, or omit --aspect");
            return MethodError::refuse("--aspect", format!("requires {option} aspects"), hint);
        }
        if let Some(own) = self.reviser_template.iter().find(|own| !kinds.contains(&own.kind)) {
            let why = format!("references of kind {} are not requested", own.kind);
            let hint = format!("use {option} {}, or omit it", own.kind);
            return MethodError::refuse(format!("--reviser-template {}={}", own.kind, own.file), why, hint);
        }
        Ok(())
    }

    /// Refuses kinds that do not apply to the mode.
    pub(crate) fn check_mode(kinds: &[RevisionKind], mode: Mode, option: &str) -> Result<(), MethodError> {
        let only_pairs = kinds.iter().find(|kind| matches!(kind, RevisionKind::Both | RevisionKind::Each));
        only_pairs.filter(|_| mode == Mode::Pointwise).map_or(Ok(()), |kind| {
            let why = "it is a reference for pairs, but candidates are judged individually";
            let hint = format!("use {option} adapted, which revises each candidate, or --mode pairwise");
            MethodError::refuse(format!("{option} {kind}"), why, hint)
        })
    }
}

/// Options of `revise`.
#[derive(Debug, Clone, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ReviseParams {
    /// Kind of reference to generate
    #[default(RevisionKind::Adapted)]
    pub kind: RevisionKind,
    /// Attribute to revise for, such as coherence
    ///
    /// Omitted: all aspects of quality.
    #[schemars(length(min = 1), extend("form" = "NAME"))]
    pub attribute: Option<String>,
    /// Whether texts are judged in pairs or separately
    pub mode: Mode,
    /// Word for a candidate in prompts
    #[schemars(length(min = 1), extend("form" = "WORD"))]
    #[default("response".to_owned())]
    pub noun: String,
    /// Criteria for the revision, or @FILE
    ///
    /// Omitted: helpfulness, relevance, truth, depth, originality and detail; with --attribute, its built-in meaning.
    #[schemars(extend("form" = "TEXT|@FILE", "signed" = "method"))]
    pub criteria: Option<String>,
    /// How references are made in particular.
    #[serde(flatten)]
    pub reviser: ReviserOptions,
    /// Longest reference, in tokens
    #[schemars(range(min = 1), extend("form" = "N", "signed" = "revision-tokens"))]
    #[default(1024)]
    pub max_tokens: u32,
    /// How prompts and answers are laid out.
    #[serde(flatten)]
    pub layout: LayoutOptions,
    /// Random seed
    ///
    /// It selects the text of a pair to revise, and everything else that is random.
    #[default(0)]
    pub seed: u64,
}
