//! Why scores cannot be held against gold.

/// Names in it are fit for a message.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub(super) enum MetaError {
    #[error("there is no gold to compare with")]
    #[diagnostic(help("give the samples with the people's scores, or a table of them: --gold FILE"))]
    NoGold,
    #[error("{file} has neither gold scores nor preferences")]
    #[diagnostic(help(
        "candidates of samples have them in \"scores\", a table in its columns; --map score.ATTRIBUTE=COLUMN reads \
         them from a table of samples"
    ))]
    NothingInGold { file: String },
    #[error("{path} holds no {name}")]
    #[diagnostic(help("give the folder of a finished run of `probity metrics` or of a method that scores"))]
    NoScores { path: String, name: &'static str },
    #[error("--compare: expected two metrics, such as bleu,rouge-l")]
    #[diagnostic(help("there are {known}"))]
    NoPair { known: String },
    #[error("{option}: there is no {what} `{name}`")]
    #[diagnostic(help("{near}there are {known}"))]
    Unknown { option: String, what: String, name: String, near: String, known: String },
    #[error("no score of `{metric}` in {file} has gold in {gold}\n  {first}")]
    #[diagnostic(help("{what} in gold are {some}{near}; item and candidate must be the same in both files"))]
    NoOverlap {
        metric: String,
        file: String,
        gold: String,
        first: String,
        what: &'static str,
        some: String,
        near: String,
    },
    #[error("--compare: no candidate has gold and scores of both {first} and {second}")]
    #[diagnostic(help("score the same samples with both"))]
    NothingToCompare { first: String, second: String },
}
