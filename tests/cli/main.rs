//! Tests of the binary: the user's input and its output.

mod harness;
#[cfg(feature = "hub")]
#[path = "../../crates/runtime/src/hub/test_hub.rs"]
mod hub;

mod attack;
mod critiques;
mod data;
mod determinism;
mod dry_run;
mod encoder_decoder;
mod first_impressions;
mod gate;
mod generate;
mod hardened;
#[cfg(all(unix, feature = "serve"))]
mod http;
mod inspection;
mod judge;
#[cfg(all(unix, feature = "serve"))]
mod label;
mod learned;
mod links;
mod logprobs;
mod memory;
mod merge;
mod meta;
mod methods;
mod metrics;
mod models;
mod readme;
mod recipe;
mod report;
mod resume;
mod reviseval;
#[path = "../roster/methods.rs"]
mod roster;
#[cfg(unix)]
mod scripts;
#[cfg(all(unix, feature = "serve"))]
mod serve;
mod slurm;
mod snapshots;
mod stages;
mod surface;
mod thinking;
mod toy_method;
