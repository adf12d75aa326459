//! Why scores cannot be held against gold.

use probity_data::DataError;
use probity_store::StoreError;

/// Why scores cannot be held against gold. Names in it are fit for a message.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum AnalysisError {
    /// None was given, and no run kept its samples.
    #[error("there is no gold to compare with")]
    #[diagnostic(help("give the samples with the people's scores, or a table of them: --gold FILE"))]
    NoGold,
    /// Gold has nothing that scores could be compared with.
    #[error("{file} has neither gold scores nor preferences")]
    #[diagnostic(help(
        "candidates of samples have them in \"scores\", a table in its columns; --map score.ATTRIBUTE=COLUMN reads \
         them from a table of samples"
    ))]
    NothingInGold {
        /// The file.
        file: String,
    },
    /// A label is of something that gold does not have.
    #[error("{place}: candidate `{candidate}` of item `{item}` is not in {gold}")]
    #[diagnostic(help("give the samples that were labelled as --gold, or labels of those that were scored"))]
    UnknownLabel {
        /// Its file and line.
        place: String,
        /// The item's id.
        item: String,
        /// The candidate's.
        candidate: String,
        /// Where gold is from.
        gold: String,
    },
    /// A label lies so far from what gold says that they cannot be of one scale.
    #[error("{place}: a score of {score} for `{attribute}`, of which {gold} has {low} to {high}")]
    #[diagnostic(help(
        "labels and gold must be of one scale: ask with probity label --scale LOW-HIGH, or give the labels alone"
    ))]
    OtherScale {
        /// Its file and line.
        place: String,
        /// The label.
        score: f64,
        /// What it is of.
        attribute: String,
        /// Where gold is from.
        gold: String,
        /// Gold's lowest score.
        low: f64,
        /// And its highest.
        high: f64,
    },
    /// A file or run of scores is named more than once.
    #[error("--scores {path} is given twice")]
    #[diagnostic(help("name each file and run once"))]
    ScoresTwice {
        /// As given.
        path: String,
    },
    /// A file of labels cannot be read.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Labels(DataError),
    /// The folder of a run has no table of scores.
    #[error("{path} holds no {name}")]
    #[diagnostic(help("give the folder of a finished run of `probity metrics` or of a method that scores"))]
    NoScores {
        /// The folder.
        path: String,
        /// The table's name.
        name: &'static str,
    },
    /// What is to be compared are not two metrics.
    #[error("--compare: expected two metrics, such as bleu,rouge-l")]
    #[diagnostic(help("there are {known}"))]
    NoPair {
        /// All names.
        known: String,
    },
    /// A metric or an attribute that is not there.
    #[error("--{option}: there is no {what} `{name}`")]
    #[diagnostic(help("{near}there are {known}"))]
    Unknown {
        /// The option by which it was named.
        option: &'static str,
        /// `metric` or `gold attribute`.
        what: &'static str,
        /// As it was named.
        name: String,
        /// `did you mean …? `, where a name is near enough.
        near: String,
        /// All names.
        known: String,
    },
    /// A gate without anything to hold a run against, or with two.
    #[error("there is nothing, or more than one thing, to hold the run against")]
    #[diagnostic(help("--baseline DIR gives another run, --candidates NEW,OLD two candidates of this one"))]
    NoBaseline,
    /// Two runs have no item in common.
    #[error("{run} and what it is held against have no item with scores by the same name")]
    #[diagnostic(help("judge the same items by the same attributes or metrics in both"))]
    NothingPaired {
        /// The run.
        run: String,
    },
    /// A run has no score, and its baseline has some.
    #[error("no item of {run} has a score now; {before} of what it is held against have one")]
    #[diagnostic(help("the `outcome` of a row of the run says why it has no score"))]
    NoScoreNow {
        /// The run.
        run: String,
        /// The items of the baseline with a score, counted.
        before: String,
    },
    /// Two runs are not of one judge.
    #[error("{run} and {baseline} were not judged alike: {what}")]
    #[diagnostic(help("{hint}"))]
    Unlike {
        /// The run.
        run: String,
        /// What it is held against.
        baseline: String,
        /// The settings.
        what: String,
        /// What to do.
        hint: &'static str,
    },
    /// Scores say nothing across runs.
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
    /// A run is not at its end.
    #[error("{run} is {status}: a part of its scores says nothing of the others")]
    #[diagnostic(help(
        "go on with it (--resume); --allow-unlike holds it against the other all the same, and says so"
    ))]
    Unfinished {
        /// The run.
        run: String,
        /// How it stands.
        status: &'static str,
    },
    /// Scores that cannot be added up.
    #[error("the scores of `{name}` are too large to be added up")]
    #[diagnostic(help("give them in another unit"))]
    TooLarge {
        /// The attribute.
        name: String,
    },
    /// A row of a run's table is none.
    #[error("{place}: {why}")]
    #[diagnostic(help("`probity check` says whether the run is as it was written"))]
    Row {
        /// Line and file.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// Nothing that a metric scored is known to gold.
    #[error(transparent)]
    #[diagnostic(transparent)]
    NoOverlap(Box<NoOverlap>),
    /// Two rows say how good one candidate is, and either could be meant.
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
        /// What it says again.
        what: String,
        /// The line of the first.
        first: String,
    },
    /// Two metrics to be compared have no candidate in common.
    #[error("--compare: no candidate has a gold score and scores of both {first} and {second}")]
    #[diagnostic(help(
        "score the same samples with both; preferences are no gold scores, and two metrics are not compared by them"
    ))]
    NothingToCompare {
        /// A metric.
        first: String,
        /// The other.
        second: String,
    },
    /// A file of scores cannot be read.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Scores(DataError),
    /// A run is not as it was written.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Run(#[from] StoreError),
    /// Gold cannot be read.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Gold(DataError),
}

/// Nothing that a metric scored is known to gold: figures over nothing would hide that names differ.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("no score of `{metric}` in {file} has gold in {gold}\n  {first}")]
#[diagnostic(help("{what} in gold are {some}{near}; item and candidate must be the same in both files"))]
pub struct NoOverlap {
    /// The metric's name.
    pub metric: String,
    /// The file of its scores.
    pub file: String,
    /// The file of gold.
    pub gold: String,
    /// Its first score.
    pub first: String,
    /// `items` or `candidates of that item`.
    pub what: &'static str,
    /// Some that gold has.
    pub some: String,
    /// `; the nearest is …`, where a name is near enough.
    pub near: String,
}

impl AnalysisError {
    /// The option whose value is to blame, by its long name.
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
    /// The attribute asked for.
    pub attribute: String,
    /// The attributes that the data have scores for.
    pub known: String,
    /// The nearest name, and how to go on without gold.
    pub hint: String,
}
