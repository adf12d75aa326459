//! Errors of comparing scores with gold.

use probity_data::DataError;
use probity_store::StoreError;

/// Why scores cannot be compared with gold. Names in it are escaped for messages.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum AnalysisError {
    /// No gold was provided, and no run kept its samples.
    #[error("there is no gold to compare with")]
    #[diagnostic(help("give the samples with the people's scores, or a table of them: --gold FILE"))]
    NoGold,
    /// Gold has no scores or preferences.
    #[error("{file} has neither gold scores nor preferences")]
    #[diagnostic(help(
        "candidates of samples have them in \"scores\", a table in its columns; --map score.ATTRIBUTE=COLUMN reads \
         them from a table of samples"
    ))]
    NothingInGold {
        /// The file.
        file: String,
    },
    /// A label names an item or candidate that gold does not have.
    #[error("{place}: candidate `{candidate}` of item `{item}` is not in {gold}")]
    #[diagnostic(help("give the samples that were labelled as --gold, or labels of those that were scored"))]
    UnknownLabel {
        /// File and line.
        place: String,
        /// Item id.
        item: String,
        /// Candidate id.
        candidate: String,
        /// Source of gold.
        gold: String,
    },
    /// A label is outside the range of gold, so their scales must differ.
    #[error("{place}: a score of {score} for `{attribute}`, of which {gold} has {low} to {high}")]
    #[diagnostic(help(
        "labels and gold must be of one scale: ask with probity label --scale LOW-HIGH, or give the labels alone"
    ))]
    OtherScale {
        /// File and line.
        place: String,
        /// Score of the label.
        score: f64,
        /// Attribute.
        attribute: String,
        /// Source of gold.
        gold: String,
        /// Lowest gold score.
        low: f64,
        /// Highest gold score.
        high: f64,
    },
    /// A file or run of scores is passed twice.
    #[error("--scores {path} is given twice")]
    #[diagnostic(help("name each file and run once"))]
    ScoresTwice {
        /// Path as passed.
        path: String,
    },
    /// A file of labels is unreadable.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Labels(DataError),
    /// A run folder has no table of scores.
    #[error("{path} holds no {name}")]
    #[diagnostic(help("give the folder of a finished run of `probity metrics` or of a method that scores"))]
    NoScores {
        /// The folder.
        path: String,
        /// File name of the table.
        name: &'static str,
    },
    /// The value of the option is not two metrics.
    #[error("--compare: expected two metrics, such as bleu,rouge-l")]
    #[diagnostic(help("there are {known}"))]
    NoPair {
        /// Known names.
        known: String,
    },
    /// An unknown metric or attribute.
    #[error("--{option}: there is no {what} `{name}`")]
    #[diagnostic(help("{near}there are {known}"))]
    Unknown {
        /// Option that named it.
        option: &'static str,
        /// `metric` or `gold attribute`.
        what: &'static str,
        /// The name.
        name: String,
        /// `did you mean …? ` if a name is similar.
        near: String,
        /// Known names.
        known: String,
    },
    /// A gate without a baseline, or with two.
    #[error("there is nothing, or more than one thing, to hold the run against")]
    #[diagnostic(help("--baseline DIR gives another run, --candidates NEW,OLD two candidates of this one"))]
    NoBaseline,
    /// Two runs have no item in common.
    #[error("{run} and its baseline have no item with scores by the same name")]
    #[diagnostic(help("judge the same items by the same attributes or metrics in both"))]
    NothingPaired {
        /// The run.
        run: String,
    },
    /// A run has no score, and its baseline has some.
    #[error("no item of {run} has a score now; {before} of its baseline have one")]
    #[diagnostic(help("the `outcome` of a row of the run says why it has no score"))]
    NoScoreNow {
        /// The run.
        run: String,
        /// Number of baseline items with a score.
        before: String,
    },
    /// Two runs have different judges.
    #[error("{run} and {baseline} were not judged alike: {what}")]
    #[diagnostic(help("{hint}"))]
    Unlike {
        /// The run.
        run: String,
        /// The baseline.
        baseline: String,
        /// Settings that differ.
        what: String,
        /// How to fix it.
        hint: &'static str,
    },
    /// Scores that cannot be compared across runs.
    #[error(
        "`{name}` of {run}: the texts of an item divide these scores among themselves, so their mean is the same \
         whatever the texts are"
    )]
    #[diagnostic(help(
        "let the samples have a candidate of each version, and hold these against each other: --candidates NEW,OLD"
    ))]
    Shares {
        /// The run.
        run: String,
        /// The attribute.
        name: String,
    },
    /// A run is unfinished.
    #[error("{run} is {status}: a part of its scores says nothing of the others")]
    #[diagnostic(help(
        "go on with it (--resume); --allow-unlike holds it against the other all the same, and says so"
    ))]
    Unfinished {
        /// The run.
        run: String,
        /// Its status.
        status: &'static str,
    },
    /// Scores whose sum is not finite.
    #[error("the scores of `{name}` are too large to be added up")]
    #[diagnostic(help("give them in another unit"))]
    TooLarge {
        /// The attribute.
        name: String,
    },
    /// A malformed row of a run's table.
    #[error("{place}: {why}")]
    #[diagnostic(help("`probity check` says whether the run is as it was written"))]
    Row {
        /// Line and file.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// No row of a metric matches gold.
    #[error(transparent)]
    #[diagnostic(transparent)]
    NoOverlap(Box<NoOverlap>),
    /// Two rows score the same candidate.
    #[error("{place}: {what} was already on {first}")]
    #[diagnostic(help(
        "each candidate has one score of a metric or attribute; where an item has several candidates, both files name \
         them"
    ))]
    Twice {
        /// `scores` or `gold`.
        option: &'static str,
        /// The second row: its line, file, item and candidate.
        place: String,
        /// What is repeated.
        what: String,
        /// Line of the first row.
        first: String,
    },
    /// Two metrics have no candidate in common.
    #[error("--compare: no candidate has a gold score and scores of both {first} and {second}")]
    #[diagnostic(help(
        "score the same samples with both; preferences are no gold scores, and two metrics are not compared by them"
    ))]
    NothingToCompare {
        /// First metric.
        first: String,
        /// Second metric.
        second: String,
    },
    /// A file of scores is unreadable.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Scores(DataError),
    /// A run's files do not match its manifest.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Run(#[from] StoreError),
    /// Gold is unreadable.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Gold(DataError),
}

/// No row of a metric matches gold. Empty figures would hide that the names differ.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("no score of `{metric}` in {file} has gold in {gold}\n  {first}")]
#[diagnostic(help("{what} in gold are {some}{near}; item and candidate must be the same in both files"))]
pub struct NoOverlap {
    /// Name of the metric.
    pub metric: String,
    /// File of its scores.
    pub file: String,
    /// File of gold.
    pub gold: String,
    /// First score.
    pub first: String,
    /// `items` or `candidates of that item`.
    pub what: &'static str,
    /// Some names that gold has.
    pub some: String,
    /// `; the nearest is …` if a name is similar.
    pub near: String,
}

impl AnalysisError {
    /// Long name of the option to blame.
    pub fn option(&self) -> &'static str {
        match self {
            Self::NoGold | Self::NothingInGold { .. } | Self::Gold(_) => "gold",
            Self::UnknownLabel { .. } | Self::OtherScale { .. } | Self::Labels(_) => "labels",
            Self::NoPair { .. } | Self::NothingToCompare { .. } => "compare",
            Self::Unknown { option, .. } | Self::Twice { option, .. } => option,
            Self::NoBaseline
            | Self::NothingPaired { .. }
            | Self::NoScoreNow { .. }
            | Self::Unlike { .. }
            | Self::Shares { .. }
            | Self::TooLarge { .. }
            | Self::Unfinished { .. } => "baseline",
            Self::NoScores { .. }
            | Self::ScoresTwice { .. }
            | Self::Row { .. }
            | Self::NoOverlap(_)
            | Self::Scores(_)
            | Self::Run(_) => "scores",
        }
    }
}

/// The data have gold scores, but none of this attribute.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("no candidate has a gold score for `{attribute}`; the data have: {known}")]
#[diagnostic(help("{hint}"))]
pub struct UnknownGold {
    /// Requested attribute.
    pub attribute: String,
    /// Attributes that have gold scores.
    pub known: String,
    /// The nearest name, and how to continue without gold.
    pub hint: String,
}
