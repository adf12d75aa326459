//! The files of a known model from the hub.

use std::fs;

use super::TransferProgress;
use super::client::{HubClient, encode, encode_path};
use super::fetch::{FetchError, FetchFolder};
use super::known::KnownFile;
use super::transfer::{ContentHash, TransferError, WantedFile, download};

/// Downloads every file of the model into the workshop; a file that stopped half-way goes on from there.
pub(super) fn stage(
    client: &HubClient,
    workshop: &FetchFolder<'_>,
    progress: &mut dyn TransferProgress,
) -> Result<(), FetchError> {
    let (model, endpoint) = (workshop.model, client.endpoint().to_owned());
    client.knock().map_err(|why| FetchError::Unreachable {
        name: model.name.to_owned(),
        endpoint,
        why: why.to_string(),
    })?;
    for file in model.files {
        let staged = workshop.staged(file.path);
        if fs::metadata(&staged).is_ok_and(|found| found.len() == file.bytes) {
            continue;
        }
        let part = workshop.partial.join("hub").join(file.sha256);
        let wanted = WantedFile {
            what: format!("downloading {} from {}", file.path, model.hub.repo),
            path: format!(
                "/{}/resolve/{}/{}",
                encode_path(model.hub.repo),
                encode(model.hub.revision),
                encode_path(file.path)
            ),
            bytes: file.bytes,
            hash: &ContentHash::Sha256(file.sha256.to_owned()),
        };
        download(client, &wanted, &part, progress).map_err(|error| fetch_error(workshop, file, error))?;
        let place = || {
            fs::create_dir_all(staged.parent().expect("a file below the folder"))?;
            fs::rename(&part, &staged)
        };
        place().map_err(|source| workshop.io_error(&staged, source))?;
    }
    Ok(())
}

fn fetch_error(workshop: &FetchFolder<'_>, file: &KnownFile, error: TransferError) -> FetchError {
    let (model, path) = (workshop.model, file.path.to_owned());
    match error {
        TransferError::Request { source, .. } => {
            FetchError::Hub { repo: model.hub.repo.to_owned(), file: path, why: source.to_string() }
        }
        TransferError::WrongHash { found } => {
            FetchError::WrongHash { name: model.name.to_owned(), file: path, expected: file.sha256.to_owned(), found }
        }
        TransferError::Io { path, source } => workshop.io_error(&path, source),
    }
}
