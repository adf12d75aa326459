//! Correlation, ranking and agreement statistics
