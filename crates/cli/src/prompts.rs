//! `probity prompts`: shows and exports the built-in prompts.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use probity_lm::{did_you_mean, nearest};
use probity_methods::Builtin;
use probity_studies::methods;
use serde_json::{Value, json};

use crate::error::FileError;
use crate::exit::Completed;
use crate::global::Global;
use crate::progress::Reporter;
use crate::terminal::{print, wrapped};

/// The long help.
pub(crate) const LONG_ABOUT: &str = "\
List, show and export the prompts that ship with probity

A prompt is a Jinja template. Its slots are settings (noun, attribute …) from the command line, or data (context, \
candidates …) from the samples. Its id is the name of its method and its own, such as judge/pairwise. Its hash is \
part of the signature of every score.

To use your own prompt, export one, edit the copy and pass its path instead of the name: --template \
my/judge/pairwise.j2. Lines of data that look like lines of a prompt are quoted in every prompt.";

#[derive(Debug, Subcommand)]
pub(crate) enum PromptsCommand {
    /// List all prompts with their slots and hashes
    List(PromptListArgs),
    /// Print a prompt
    Show(PromptShowArgs),
    /// Write all prompts into a folder, one subfolder per method
    Export(ExportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PromptListArgs {
    /// Only prompts of this method
    #[arg(long, value_name = "NAME")]
    method: Option<String>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PromptShowArgs {
    /// Name from `probity prompts list`: METHOD/NAME
    #[arg(value_name = "NAME")]
    name: String,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Target folder, created if missing
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Only prompts of this method
    #[arg(long, value_name = "NAME")]
    method: Option<String>,
    /// Replace existing files
    #[arg(long)]
    overwrite: bool,
}

impl PromptsCommand {
    pub(crate) fn run(self, global: Global) -> miette::Result<Completed> {
        match self {
            Self::List(args) => {
                for shipped in shipped_prompts(args.method.as_deref())? {
                    print(&if args.json { shipped.json().to_string() } else { shipped.text() })?;
                }
            }
            Self::Show(args) => print(known(&args.name)?.prompt.source().trim_end_matches('\n'))?,
            Self::Export(args) => args.run(global)?,
        }
        Ok(Completed::Success)
    }
}

/// A prompt and its method.
struct Shipped {
    method: &'static str,
    prompt: &'static Builtin,
}

impl Shipped {
    /// `judge/pairwise`.
    fn id(&self) -> String {
        format!("{}/{}", self.method, self.prompt.name())
    }

    fn json(&self) -> Value {
        let Self { method, prompt } = self;
        json!({
            "id": self.id(), "method": method, "name": prompt.name(), "about": prompt.about(), "settings": prompt.settings(),
            "data": prompt.data_slots(), "sha256": prompt.sha256(),
        })
    }

    fn text(&self) -> String {
        let listed = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let data: Vec<String> = self.prompt.data_slots().into_iter().map(str::to_owned).collect();
        let about = self.prompt.about();
        let (settings, about) = (listed(&self.prompt.settings()), about.lines().next().unwrap_or_default());
        let lines = [
            self.id(),
            wrapped(&format!("  {about}"), 0),
            wrapped(&format!("  settings  {settings}"), 10),
            wrapped(&format!("  data      {}", listed(&data)), 10),
            format!("  sha256    {}\n", self.prompt.sha256()),
        ];
        lines.join("\n")
    }
}

fn all() -> Vec<Shipped> {
    let of_method = |method: &'static dyn probity_methods::DynMethod| {
        let name = method.name();
        method.prompts().iter().map(move |prompt| Shipped { method: name, prompt })
    };
    methods().flat_map(of_method).collect()
}

fn shipped_prompts(method: Option<&str>) -> miette::Result<Vec<Shipped>> {
    let Some(method) = method else { return Ok(all()) };
    let of_method: Vec<Shipped> = all().into_iter().filter(|shipped| shipped.method == method).collect();
    if of_method.is_empty() {
        let mut names: Vec<&str> = all().iter().map(|shipped| shipped.method).collect();
        names.dedup();
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        return Err(PromptError::unknown("method with prompts", method, &names).into());
    }
    Ok(of_method)
}

/// The prompt with this name; the method may be omitted if the name is unique.
fn known(name: &str) -> miette::Result<Shipped> {
    let mut named: Vec<Shipped> =
        all().into_iter().filter(|shipped| shipped.id() == name || shipped.prompt.name() == name).collect();
    match (named.pop(), named.is_empty()) {
        (Some(shipped), true) => Ok(shipped),
        (Some(last), false) => {
            let ids: Vec<String> = named.iter().chain([&last]).map(Shipped::id).collect();
            Err(PromptError::Several { name: name.to_owned(), ids: ids.join(", "), first: ids[0].clone() }.into())
        }
        (None, _) => {
            let ids: Vec<String> = all().iter().map(Shipped::id).collect();
            Err(PromptError::unknown("prompt", name, &ids).into())
        }
    }
}

/// Why a prompt cannot be shown or written.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
enum PromptError {
    #[error("unknown {what} `{name}`{near}\n  known: {known}")]
    #[diagnostic(help("probity prompts list"))]
    Unknown { what: &'static str, name: String, near: String, known: String },
    #[error("several methods have a prompt `{name}`: {ids}")]
    #[diagnostic(help("probity prompts show {first}"))]
    Several { name: String, ids: String, first: String },
    #[error("{} already exists", path.display())]
    #[diagnostic(help("choose another folder, or replace existing files with --overwrite"))]
    InTheWay { path: PathBuf },
}

impl PromptError {
    fn unknown(what: &'static str, name: &str, known: &[String]) -> Self {
        let near = did_you_mean(nearest(name, known.iter().map(String::as_str)));
        Self::Unknown { what, name: name.to_owned(), near, known: known.join(", ") }
    }
}

impl ExportArgs {
    fn run(&self, global: Global) -> miette::Result<()> {
        let files: Vec<(PathBuf, Shipped)> = shipped_prompts(self.method.as_deref())?
            .into_iter()
            .map(|shipped| (self.folder.join(shipped.method).join(format!("{}.j2", shipped.prompt.name())), shipped))
            .collect();
        // Writes nothing if one of the files exists. Broken links count as well: `create_new` would fail on one after
        // writing half of the files.
        let in_the_way =
            files.iter().map(|(path, _)| path).find(|path| !self.overwrite && path.symlink_metadata().is_ok());
        if let Some(path) = in_the_way {
            return Err(PromptError::InTheWay { path: path.clone() }.into());
        }
        for (path, shipped) in &files {
            write(path, shipped.prompt.source(), self.overwrite)
                .map_err(FileError::context(format!("cannot write {}", path.display())))?;
            print(&path.display().to_string())?;
        }
        let reporter = Reporter::new(global);
        reporter.say("edit a copy and pass its path instead of the prompt's name, such as --template FILE");
        Ok(())
    }
}

fn write(path: &Path, text: &str, overwrite: bool) -> std::io::Result<()> {
    std::fs::create_dir_all(path.parent().ok_or(ErrorKind::InvalidInput)?)?;
    let mut options = OpenOptions::new();
    options.write(true);
    let mut file = if overwrite {
        options.create(true).truncate(true).open(path)?
    } else {
        // The file may have been created in the meantime.
        options.create_new(true).open(path)?
    };
    file.write_all(text.as_bytes())
}
