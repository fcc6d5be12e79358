//! The suite that has TLC check the models: a test for each configuration.

use anyhow::Result;

use super::outcome::Report;
use crate::model;
use crate::setup;

/// Checks all configurations of the small size.
pub fn check() -> Result<Report> {
    // In CI everything must run; a person may be without a network.
    if let Err(error) = setup::tlc()
        && std::env::var_os("CI").is_none()
    {
        return Ok(Report::skip("model", format!("no TLC: {error:#}")));
    }
    let mut report = Report::default();
    for outcome in model::check_small()? {
        report.add(match outcome.wrong {
            None => Report::pass(),
            Some(why) => Report::fail(outcome.name, why),
        });
    }
    Ok(report)
}
