//! Syndrome decode, one dispatch table, a handler for each exception class.
