//! The files of a known model from the hub.

use std::fs;

use super::TransferProgress;
use super::client::{HubClient, RequestError, encode_path};
use super::fetch::{FetchError, FetchFolder};
use super::known::KnownFile;
use super::transfer::{TransferError, WantedFile, download};

/// Downloads every file of the model into the workshop; a file that stopped half-way goes on from there.
pub(super) fn stage(
    client: &HubClient,
    workshop: &FetchFolder<'_>,
    progress: &mut dyn TransferProgress,
) -> Result<(), FetchError> {
    let model = workshop.model;
    let repo = client.repo(model.hub.repo, model.hub.revision);
    for file in model.files {
        let staged = workshop.staged(file.path);
        if fs::metadata(&staged).is_ok_and(|found| found.len() == file.bytes) {
            continue;
        }
        let part = workshop.partial.join("hub").join(file.sha256);
        let wanted = WantedFile {
            what: format!("downloading {} from {}", file.path, model.hub.repo),
            address: repo.url(&encode_path(file.path)),
            bytes: file.bytes,
        };
        download(client, &wanted, &part, progress).map_err(|error| fetch_error(client, workshop, file, error))?;
        let place = || {
            fs::create_dir_all(staged.parent().expect("a file below the folder"))?;
            fs::rename(&part, &staged)
        };
        place().map_err(|source| workshop.io_error(&staged, source))?;
    }
    Ok(())
}

fn fetch_error(client: &HubClient, workshop: &FetchFolder<'_>, file: &KnownFile, error: TransferError) -> FetchError {
    let model = workshop.model;
    match error {
        TransferError::Request { source: RequestError::Unreachable(why), .. } => {
            FetchError::Unreachable { name: model.name.to_owned(), endpoint: client.endpoint().to_owned(), why }
        }
        TransferError::Request { source, .. } => {
            FetchError::Hub { repo: model.hub.repo.to_owned(), file: file.path.to_owned(), why: source.to_string() }
        }
        TransferError::Io { path, source } => workshop.io_error(&path, source),
    }
}
