//! Counters, clocks, histograms, the report.
