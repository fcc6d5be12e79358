//! Reading the FIT that holds all guests.
