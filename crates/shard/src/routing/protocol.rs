//! The services that nodes call at each other, and the version of each one's messages. Versions are compared per
//! service: an upgrade that changes one service's messages does not cut off the others between nodes of both versions.

/// A service with messages between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Shards of the frontier: calls to their owners, and what they have ready.
    Frontier,
    /// Rows outside the shards: hints that one has changed.
    Registry,
    /// Chunks: calls to the owners of the shards that they belong to.
    Pipeline,
    /// Machines, placements and the map: calls to the owner of shard 0.
    Fleet,
    /// Pools, workers and matches: calls to the owners of the shards that pools belong to.
    Matches,
}

impl Service {
    const ALL: [Self; 5] = [Self::Frontier, Self::Registry, Self::Pipeline, Self::Fleet, Self::Matches];

    /// Its name in calls.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frontier => "frontier",
            Self::Registry => "registry",
            Self::Pipeline => "pipeline",
            Self::Fleet => "fleet",
            Self::Matches => "matches",
        }
    }

    /// The version of its messages, raised by every change of them. Nodes of different versions do not call each
    /// other's service.
    #[must_use]
    pub const fn version(self) -> u32 {
        match self {
            Self::Frontier | Self::Registry | Self::Pipeline | Self::Fleet | Self::Matches => 1,
        }
    }

    /// The service and version, as a call states them.
    #[must_use]
    pub fn stated(self) -> String {
        format!("{}/{}", self.name(), self.version())
    }

    /// The service that a caller has stated. Fails if this node does not have the service, or in another version. The
    /// text tells the caller.
    pub fn agree(stated: &str) -> Result<Self, String> {
        let (name, version) = stated.split_once('/').unwrap_or((stated, ""));
        let Some(service) = Self::ALL.into_iter().find(|service| service.name() == name) else {
            return Err(format!("this node has no service '{name}': finish the upgrade"));
        };
        if version == service.version().to_string() {
            return Ok(service);
        }
        let ours = service.version();
        Err(format!("this node speaks version {ours} of service '{name}', the caller {version}: finish the upgrade"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_is_agreed_on_by_itself() {
        for service in Service::ALL {
            assert_eq!(Service::agree(&service.stated()), Ok(service));
        }
        let older = format!("frontier/{}", Service::Frontier.version() - 1);
        assert!(Service::agree(&older).unwrap_err().contains("service 'frontier', the caller"));
        assert_eq!(Service::agree("registry/1"), Ok(Service::Registry), "whatever is said of another service");
        for unknown in ["", "7", "newer/1", "frontier", "frontier/", "frontier/07"] {
            assert!(Service::agree(unknown).is_err(), "{unknown}");
        }
    }
}
