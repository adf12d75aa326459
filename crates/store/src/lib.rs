//! Run folders: manifest, records, summary
