//! The results of URLs as options, for `release` and `chunks report`.

use wayleave_api::reservations::{Outcome, UrlResult};

/// URLs by what became of them.
#[derive(Clone, Debug, clap::Args)]
pub struct OutcomeArgs {
    /// A URL that was fetched; may be repeated
    #[arg(long, value_name = "URL")]
    fetched: Vec<String>,
    /// A URL to try again later; may be repeated
    #[arg(long, value_name = "URL")]
    retry: Vec<String>,
    /// A URL that no longer exists; may be repeated
    #[arg(long, value_name = "URL")]
    gone: Vec<String>,
    /// A URL that cannot be fetched; may be repeated
    #[arg(long, value_name = "URL")]
    failed: Vec<String>,
}

impl OutcomeArgs {
    /// The results, as a request has them.
    pub fn results(&self) -> Vec<UrlResult> {
        let kinds = [
            (&self.fetched, Outcome::Fetched),
            (&self.retry, Outcome::Retry),
            (&self.gone, Outcome::Gone),
            (&self.failed, Outcome::Failed),
        ];
        kinds.iter().flat_map(|(urls, outcome)| urls.iter().map(|url| UrlResult::new(url, *outcome))).collect()
    }
}
