//! Downloads the files of a known model from the hub.

use std::fs;

use super::TransferProgress;
use super::client::{HubClient, RequestError, encode_path};
use super::fetch::{FetchError, FetchFolder};
use super::transfer::{TransferError, WantedFile, download};

/// Downloads every file of the model to the temporary folder; resumes partial files.
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
        let folder = workshop.partial.join("hub");
        fs::create_dir_all(&folder).map_err(|source| workshop.io_error(&folder, source))?;
        let part = folder.join(file.sha256);
        let wanted = WantedFile {
            what: format!("downloading {} from {}", file.path, model.hub.repo),
            address: repo.url(&encode_path(file.path)),
            bytes: file.bytes,
        };
        download(client, &wanted, &part, progress).map_err(|error| match error {
            TransferError::Hub(RequestError::Connection(why)) => {
                FetchError::Unreachable { name: model.name.to_owned(), endpoint: client.endpoint().to_owned(), why }
            }
            TransferError::Hub(error) => {
                let (repo, file) = (model.hub.repo.to_owned(), file.path.to_owned());
                FetchError::Hub { repo, file, why: error.to_string() }
            }
            TransferError::Io(source) => workshop.io_error(&part, source),
        })?;
        let place = || {
            fs::create_dir_all(staged.parent().expect("a file below the folder"))?;
            fs::rename(&part, &staged)
        };
        place().map_err(|source| workshop.io_error(&staged, source))?;
    }
    Ok(())
}
