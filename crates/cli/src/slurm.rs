//! `probity slurm`: runs a recipe as an array job on a cluster, with a second job that merges it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use probity_session::{Plan, Shard};

use crate::error::FileError;
use crate::exit::Completed;
use crate::output::write_text;
use crate::terminal::{counted, print, quoted, visible_line};

pub(crate) const LONG_ABOUT: &str = "\
Write Slurm scripts that run a recipe in parts: an array of tasks, and a job that merges their results.

Each task does its part of every run that judges samples of its own (`probity run RECIPE --shard I/N --resume`), with \
one model in memory at a time. A killed or preempted task is requeued, at most five times, and continues where it \
stopped. The second job waits for all tasks, merges the parts of each run into the folder that the recipe names, and \
does the rest of the recipe (`meta`, the report). Everything is checked first, as by `probity recipe check`.

Binary, recipe, data and models must be visible to every node under the same paths. Only Slurm itself uses the \
network.";

/// Options of `slurm`.
#[derive(Debug, Args)]
pub(crate) struct SlurmArgs {
    /// Recipe file (TOML)
    #[arg(value_name = "RECIPE")]
    pub(crate) recipe: PathBuf,
    /// Number of parts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    shards: u32,
    /// Folder for scripts and logs, created if missing
    #[arg(long, value_name = "DIR", default_value = "slurm")]
    dir: PathBuf,
    /// Slurm partition
    #[arg(long, value_name = "NAME", value_parser = word)]
    partition: Option<String>,
    /// Slurm account
    #[arg(long, value_name = "NAME", value_parser = word)]
    account: Option<String>,
    /// Time limit of a task, such as 04:00:00
    #[arg(long, value_name = "TIME", value_parser = time)]
    time: Option<String>,
    /// Memory of a task, such as 16G
    #[arg(long, value_name = "SIZE", value_parser = size)]
    mem: Option<String>,
    /// GPUs of a task, such as 1
    #[arg(long, value_name = "GPUS", value_parser = word)]
    gpus: Option<String>,
    /// CPUs of a task
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    cpus: u32,
    /// Submit both jobs
    #[arg(long)]
    submit: bool,
}

/// Values of Slurm options are in `#SBATCH` lines, where each must be one word.
fn word(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:@+=/".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        Ok(text.to_owned())
    } else {
        Err("expected letters, digits and -_.,:@+=/".to_owned())
    }
}

/// A time in Slurm's format: minutes, or hours and minutes and so on, optionally with days.
fn time(text: &str) -> Result<String, String> {
    let (days, rest) = text.split_once('-').map_or((None, text), |(days, rest)| (Some(days), rest));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = rest.split(':').collect();
    if days.is_none_or(is_number) && parts.len() <= 3 && parts.into_iter().all(is_number) {
        return Ok(text.to_owned());
    }
    Err("expected a time such as 90 (minutes), 04:00:00 or 2-12:00:00".to_owned())
}

/// Megabytes, or a number with a unit.
fn size(text: &str) -> Result<String, String> {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
    if text.len() <= digits.len() + 1 && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(text.to_owned());
    }
    Err("expected a size such as 16G or 16384 (megabytes)".to_owned())
}

/// The command as called if that is a file; otherwise the current executable, as when called from Python.
fn binary(called: &OsStr) -> miette::Result<PathBuf> {
    let called = PathBuf::from(called);
    if called.is_absolute() && called.is_file() {
        return Ok(called);
    }
    Ok(std::env::current_exe().map_err(FileError::context("cannot determine the path of the binary"))?)
}

/// A recipe that cannot be divided into this many shards.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("{why}")]
#[diagnostic(help("{hint}"))]
struct NoParts {
    why: String,
    hint: &'static str,
}

/// The output of `sbatch` instead of a job number.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("sbatch {} failed: {said}", script.display())]
#[diagnostic(help("submit the scripts by hand; they were written"))]
struct NotSubmitted {
    script: PathBuf,
    said: String,
}

impl SlurmArgs {
    /// `plan` is the recipe's, `called` the name of the command as called.
    pub(crate) fn run(&self, mut plan: Plan, called: &OsStr) -> miette::Result<Completed> {
        // The folders of the merged runs. Later the plan has those of the shards, which may already exist.
        let merged: Vec<PathBuf> = plan.parted().filter_map(|stage| stage.run.output.out.clone()).collect();
        if merged.is_empty() {
            // Problems of the recipe take precedence over this one.
            plan.check()?;
            let why = format!("no run of {} judges samples of its own", self.recipe.display());
            return Err(NoParts { why, hint: "run it on one machine: probity run" }.into());
        }
        let of = self.shards as usize;
        // The last shard has the fewest samples.
        plan.part(Shard { number: of, of });
        for ready in plan.check()? {
            if ready.samples.is_empty() {
                let why = format!("run `{}` has no samples", ready.stage.name());
                return Err(NoParts { why, hint: "add samples to its data" }.into());
            }
        }
        let here = std::env::current_dir().map_err(FileError::context("cannot determine the working folder"))?;
        let binary = binary(called)?;
        for (what, path) in [("the working folder", &here), ("--dir", &self.dir)] {
            let shown = path.display().to_string();
            // The paths are in lines that both the shell and Slurm parse, without a common way of quoting.
            if shown.chars().any(|c| c.is_control() || "\"\\%$`".contains(c)) {
                let why = format!("{what} is {}, which cannot be used in a Slurm script", shown.escape_debug());
                return Err(NoParts {
                    why,
                    hint: "choose a folder without \", \\, %, $, ` and line breaks in its name",
                }
                .into());
            }
        }
        let dir = std::path::absolute(&self.dir).map_err(FileError::context("cannot determine the working folder"))?;
        std::fs::create_dir_all(&dir).map_err(FileError::context(format!("cannot create {}", dir.display())))?;
        let (parts, merge) = (dir.join("parts.sbatch"), dir.join("merge.sbatch"));
        write_text(&parts, &self.parts(&here, &binary, &dir))?;
        write_text(&merge, &self.merge(&here, &binary, &dir, &merged))?;
        let what = format!("{} in {}", counted(merged.len(), "run"), counted(of, "part"));
        if !self.submit {
            let by = format!(
                "id=$(sbatch --parsable {})\nsbatch --dependency=afterok:\"$id\" {}",
                shell_path(&parts),
                shell_path(&merge)
            );
            print(&format!(
                "{what}: the scripts are in {}; submit them with\n\n{by}",
                visible_line(&dir.display().to_string())
            ))?;
            return Ok(Completed::Success);
        }
        let first = submit(&parts, None)?;
        let second = submit(&merge, Some(&first))?;
        print(&format!("{what}: job {first}, merged by job {second} when all parts are done"))?;
        Ok(Completed::Success)
    }

    /// The first lines of both scripts.
    fn head(&self, here: &Path, name: &str, more: &[String]) -> String {
        let options =
            [("partition", &self.partition), ("account", &self.account), ("time", &self.time), ("mem", &self.mem)];
        let given = options.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value.as_ref()?)));
        let fixed = [format!("--job-name=probity-{name}"), "--open-mode=append".to_owned(), "--requeue".to_owned()];
        let options: Vec<String> = fixed.into_iter().chain(given).chain(more.iter().cloned()).collect();
        let lines = options.join("\n#SBATCH ");
        format!("#!/bin/bash\n#SBATCH {lines}\nset -u\ncd {} || exit 2\n", shell_path(here))
    }

    fn parts(&self, here: &Path, binary: &Path, dir: &Path) -> String {
        let of = self.shards;
        let mut options = vec![
            format!("--array=1-{of}"),
            format!("--output=\"{}\"", dir.join("part-%a.log").display()),
            format!("--cpus-per-task={}", self.cpus),
        ];
        options.extend(self.gpus.as_ref().map(|gpus| format!("--gpus={gpus}")));
        let head = self.head(here, "parts", &options);
        let (binary, recipe) = (shell_path(binary), shell_path(&self.recipe));
        format!(
            "{head}\
             srun {binary} run {recipe} --shard \"$SLURM_ARRAY_TASK_ID/{of}\" --resume --progress lines\n\
             status=$?\n\
             # Ended by a signal: finished work is kept, and the task continues from there.\n\
             if [ \"$status\" -ge 128 ] && [ \"${{SLURM_RESTART_COUNT:-0}}\" -lt 5 ]; then\n    \
             scontrol requeue \"${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}\" && exit 0\n\
             fi\n\
             exit \"$status\"\n"
        )
    }

    fn merge(&self, here: &Path, binary: &Path, dir: &Path, merged: &[PathBuf]) -> String {
        let of = self.shards as usize;
        let options = [format!("--output=\"{}\"", dir.join("merge.log").display())];
        let mut script = self.head(here, "merge", &options);
        for out in merged {
            let parts: Vec<String> = (1..=of).map(|number| shell_path(&Shard { number, of }.folder(out))).collect();
            let line = format!(
                "{} merge {} --out {} --resume --progress lines || exit $?\n",
                shell_path(binary),
                parts.join(" "),
                shell_path(out)
            );
            script.push_str(&line);
        }
        let rest = format!("{} run {} --resume --progress lines\n", shell_path(binary), shell_path(&self.recipe));
        script.push_str(&rest);
        script
    }
}

/// A path as a shell word that is never taken for an option.
fn shell_path(path: &Path) -> String {
    let shown = path.display().to_string();
    quoted(&if shown.starts_with('-') { format!("./{shown}") } else { shown })
}

/// Submits a script; returns its job number.
fn submit(script: &Path, after: Option<&str>) -> miette::Result<String> {
    let mut command = Command::new("sbatch");
    command.arg("--parsable").args(after.map(|id| format!("--dependency=afterok:{id}"))).arg(script);
    let output = command.stdin(Stdio::null()).output().map_err(|error| {
        FileError::context("cannot start sbatch")(error).with_hint("submit the scripts where Slurm is installed")
    })?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() {
        // The number may be followed by a cluster's name.
        return Ok(said.split(';').next().unwrap_or_default().to_owned());
    }
    let said = visible_line(String::from_utf8_lossy(&output.stderr).trim());
    Err(NotSubmitted { script: script.to_owned(), said }.into())
}
