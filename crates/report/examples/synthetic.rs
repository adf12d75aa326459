//! Writes a synthetic run folder, to try reports with many samples or hostile texts: `cargo run -p probity-report
//! --example synthetic -- FOLDER --samples 10000 --candidates 4 [--hostile] [--no-answers]`

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let mut shape = synthetic::Shape { samples: 100, candidates: 4, hostile: false, words: 60, answers: true };
    let mut folder = None;
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || -> Result<usize, Box<dyn Error>> {
            Ok(arguments.next().and_then(|n| n.into_string().ok()).ok_or("a number is missing")?.parse()?)
        };
        match argument.to_str() {
            Some("--samples") => shape.samples = number()?,
            Some("--candidates") => shape.candidates = number()?,
            Some("--words") => shape.words = number()?,
            Some("--hostile") => shape.hostile = true,
            Some("--no-answers") => shape.answers = false,
            _ => folder = Some(PathBuf::from(argument)),
        }
    }
    shape.write(
        &folder
            .ok_or("usage: synthetic FOLDER [--samples N] [--candidates N] [--words N] [--hostile] [--no-answers]")?,
    )
}
