//! Flags of batches that are sampled in time.

use clap::Args;
use girih_graph_format::file::ReadTimes;
use girih_sampling::{Bound, Strategy};
use girih_trainer::{TimeConfig, TimeSpan};

use super::choices::set;
use super::one_of;

/// Edges that a seed sees at its time.
#[derive(Debug, Args)]
#[command(next_help_heading = "Edges in time (edge lists with a column of times)")]
pub struct TimeSettings {
    /// Seeds see only edges before a time: seed, path or batch
    ///
    /// seed: the seed's time, in all hops. path: in later hops, the time of the edge just taken. batch: the earliest time
    /// of the batch's seeds, which then share their nodes. Seeds are the ends of edges, at the times of these.
    #[arg(long, value_name = "TIME", value_parser = one_of::<Bound>(Bound::ALL.map(Bound::name)), conflicts_with = "until")]
    pub before: Option<Bound>,
    /// As --before, but with the edges of that time
    ///
    /// An edge then sees itself, so that training refuses it.
    #[arg(long, value_name = "TIME", value_parser = one_of::<Bound>(Bound::ALL.map(Bound::name)))]
    pub until: Option<Bound>,
    /// Largest age of an edge that is seen, such as 30d, 12h or 90m; a number alone has the unit of the data
    #[arg(long, value_name = "SPAN")]
    pub window: Option<TimeSpan>,
    /// Choice among the edges that are seen: uniform or last, the latest [default: uniform]
    #[arg(long, value_name = "NAME", value_parser = one_of::<Strategy>(Strategy::ALL.map(Strategy::name)))]
    pub time_strategy: Option<Strategy>,
}

impl TimeSettings {
    /// Writes the given values into `config`.
    pub fn override_in(&self, config: &mut TimeConfig) {
        if self.before.is_some() || self.until.is_some() {
            (config.before, config.until) = (self.before, self.until);
        }
        set(&mut config.window, self.window.map(Some));
        set(&mut config.strategy, self.time_strategy);
    }
}

/// Whether loading reads times for these settings.
pub fn read_times(config: &TimeConfig) -> ReadTimes {
    if config.is_set() { ReadTimes::Required } else { ReadTimes::No }
}
