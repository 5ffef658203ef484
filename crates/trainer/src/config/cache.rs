//! [`CacheConfig`]: the placement of graph and features on devices and hosts.

use girih_features::{CacheShares, HostReads, Hotness};
use serde::{Deserialize, Serialize};

use super::rules::is_default;
use super::text;

/// Features and rows of the adjacency that devices hold while they sample mini-batches. All others are in host
/// memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// Shares of the features on devices; `None`: every device has all.
    #[serde(with = "shares", skip_serializing_if = "Option::is_none")]
    pub features: Option<CacheShares>,
    /// Shares of the rows to sample from on devices; `None`: every device has all.
    #[serde(with = "shares", skip_serializing_if = "Option::is_none")]
    pub topology: Option<CacheShares>,
    /// Measure that orders nodes by hotness.
    #[serde(with = "text", skip_serializing_if = "is_default")]
    pub hotness: Hotness,
    /// Access to feature rows on the host. Devices read neighbors in place.
    #[serde(with = "text", skip_serializing_if = "is_default")]
    pub host_reads: HostReads,
}

impl CacheConfig {
    /// Configuration with all rows on the host, and none on devices.
    #[must_use]
    pub fn on_host() -> Self {
        let nothing = Some(CacheShares::default());
        Self { features: nothing, topology: nothing, ..Self::default() }
    }

    /// As this configuration, but with zero shares: it keeps what is placed, but not where.
    pub(crate) fn without_shares(&self) -> Self {
        let placed = |shares: Option<CacheShares>| shares.map(|_| CacheShares::default());
        Self { features: placed(self.features), topology: placed(self.topology), ..Self::default() }
    }

    /// Whether devices have all data.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// First invalid setting and its rule; `None` if all are valid.
    pub(crate) fn complaint(&self) -> Option<(&'static str, &'static str)> {
        const IDLE: (&str, &str) = (
            "tiers.hotness",
            "left out: without tiers.features and tiers.topology nothing is cached, so it has no effect",
        );
        const READS: (&str, &str) = (
            "tiers.host_reads",
            "left out: without tiers.features (--feature-cache) no features are read from host memory",
        );
        const SHARES: &str = "from 0 to 1: the share of the nodes that every device caches, or two shares, the second cached on one device each";
        let parts = [("tiers.features", self.features), ("tiers.topology", self.topology)];
        let wrong = parts.into_iter().find(|(_, shares)| shares.is_some_and(|shares| !shares.are_shares()));
        let is_idle = self.hotness != Hotness::default() && self.features.is_none() && self.topology.is_none();
        let reads_nothing = self.host_reads != HostReads::default() && self.features.is_none();
        wrong.map(|(name, _)| (name, SHARES)).or(is_idle.then_some(IDLE)).or(reads_nothing.then_some(READS))
    }
}

/// Shares in the text of a configuration: a number, or a string with two.
mod shares {
    use girih_features::CacheShares;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(f64),
        Text(String),
    }

    #[allow(clippy::ref_option)]
    pub(super) fn serialize<S: Serializer>(shares: &Option<CacheShares>, out: S) -> Result<S::Ok, S::Error> {
        match shares {
            None => out.serialize_none(),
            Some(shares) if shares.one_gpu > 0.0 => out.collect_str(shares),
            Some(shares) => out.serialize_f64(shares.every_gpu),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Option<CacheShares>, D::Error> {
        match Written::deserialize(input)? {
            Written::Number(every_gpu) => Ok(Some(CacheShares { every_gpu, one_gpu: 0.0 })),
            Written::Text(text) => text.parse().map(Some).map_err(D::Error::custom),
        }
    }
}
