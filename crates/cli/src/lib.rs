//! The probity command line
