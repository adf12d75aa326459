//! Samples, readers and importers of public data sets
