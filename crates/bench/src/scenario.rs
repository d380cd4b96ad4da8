//! The scenarios: which load, by how many clients, over which hosts.

use crate::args::BenchArgs;
use crate::get::Appetite;
use crate::herds;
use crate::put::Form;
use crate::source::Spread;

/// Shown below the options.
pub const HELP: &str = "Scenarios:
  put-1, put-4                    single URLs in (PutURLs, 1,024 in flight), over 1 and 4 streams
  put-batches-1, put-batches-4    batches of 100 in (PutDiscovered, 16 in flight), over 1 and 4 streams
  get-10x1-1, get-10x1-4          10 queues x 1 URL out, each completed and acknowledged, 1 and 4 clients
  get-100x10                      100 queues x 10 URLs out, 1 client
  many-hosts-put, many-hosts-get  in and out where every URL is on a host of its own
  mixed-in, mixed-out             4 streams in while one client takes URLs out: rate and latency of either side
  ingest-0, ingest-30, ingest-45  4 streams in with so many percent known
  native-put, native-cycle        HTTP: batches of 100 in; reservations taken and released, 4 clients
  chunks-cycle                    HTTP: chunks of 5 links claimed, reported and completed, 4 clients
  chunks-claim-1, chunks-claim-100  HTTP: chunks claimed, 1 and 100 per call, 4 clients
  matches-4, matches-16           HTTP: workers of a pool of 100 with 10 slots got and given back, 4 and 16 clients
  herds                           HTTP/2: idle callers of each kind of call that waits, beside one client that works; not
                                  among all. Or one kind: herds-reservations, -claims, -builds, -map, -matches, -roles,
                                  -finished

It fills the server it measures with URLs of crawls named bench-*: give it a server of its own.

Examples:
  wayleave bench --scenario put,get-10x1 --pid $(pgrep -x wayleave)
  wayleave bench --beside 127.0.0.1:7072 --json > result.json
  wayleave bench --null --listen 127.0.0.1:7073
  wayleave bench --address 127.0.0.1:7071,127.0.0.1:7072 --churn --seconds 60   while nodes come and go";

/// The load of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// URLs in.
    Put {
        /// The number of concurrent streams.
        streams: u64,
        /// Single or batches.
        form: Form,
        /// The percentage sent before; by default that of the arguments.
        known: Option<u8>,
    },
    /// URLs out and completed.
    Get {
        /// The number of concurrent clients.
        clients: u64,
        /// What each call requests.
        appetite: Appetite,
    },
    /// Both concurrently; `out` selects the side that is reported.
    Mixed {
        /// The hand-outs, not the ingest.
        out: bool,
    },
    /// URLs in through HTTP.
    NativePut,
    /// Reservations through HTTP.
    NativeCycle,
    /// Chunks through HTTP.
    Chunks {
        /// How many each claim asks for.
        batch: usize,
        /// Whether they are reported and completed.
        complete: bool,
    },
    /// Workers of a warm pool through HTTP.
    Matches {
        /// The number of concurrent clients.
        clients: usize,
    },
}

/// A named load.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// Its load.
    pub load: Load,
    /// Whether every URL is on a host of its own.
    pub many_hosts: bool,
}

const TEN_BY_ONE: Appetite = Appetite { queues: 10, urls: 1 };

const fn put(name: &'static str, streams: u64, form: Form, known: Option<u8>) -> Scenario {
    Scenario { name, load: Load::Put { streams, form, known }, many_hosts: false }
}

const fn get(name: &'static str, clients: u64, appetite: Appetite) -> Scenario {
    Scenario { name, load: Load::Get { clients, appetite }, many_hosts: false }
}

const fn chunks(name: &'static str, batch: usize, complete: bool) -> Scenario {
    Scenario { name, load: Load::Chunks { batch, complete }, many_hosts: true }
}

const fn matches(name: &'static str, clients: usize) -> Scenario {
    Scenario { name, load: Load::Matches { clients }, many_hosts: false }
}

const ALL: [Scenario; 21] = [
    put("put-1", 1, Form::Single, None),
    put("put-4", 4, Form::Single, None),
    put("put-batches-1", 1, Form::Batch(100), None),
    put("put-batches-4", 4, Form::Batch(100), None),
    get("get-10x1-1", 1, TEN_BY_ONE),
    get("get-10x1-4", 4, TEN_BY_ONE),
    get("get-100x10", 1, Appetite { queues: 100, urls: 10 }),
    Scenario { many_hosts: true, ..put("many-hosts-put", 4, Form::Single, Some(0)) },
    Scenario { many_hosts: true, ..get("many-hosts-get", 4, TEN_BY_ONE) },
    Scenario { name: "mixed-in", load: Load::Mixed { out: false }, many_hosts: false },
    Scenario { name: "mixed-out", load: Load::Mixed { out: true }, many_hosts: false },
    put("ingest-0", 4, Form::Single, Some(0)),
    put("ingest-30", 4, Form::Single, Some(30)),
    put("ingest-45", 4, Form::Single, Some(45)),
    Scenario { name: "native-put", load: Load::NativePut, many_hosts: false },
    Scenario { name: "native-cycle", load: Load::NativeCycle, many_hosts: false },
    // Before the claims, whose chunks keep their hosts.
    chunks("chunks-cycle", 1, true),
    chunks("chunks-claim-1", 1, false),
    chunks("chunks-claim-100", 100, false),
    matches("matches-4", 4),
    matches("matches-16", 16),
];

/// Checks a name or a prefix of a scenario.
pub(crate) fn named(name: &str) -> Result<String, String> {
    if herds::is_called(name) || ALL.iter().any(|scenario| scenario.is_called(name)) {
        return Ok(name.to_owned());
    }
    let all: Vec<&str> = ALL.iter().map(|scenario| scenario.name).chain([herds::NAMES]).collect();
    Err(format!("there is no such scenario; there are {}", all.join(", ")))
}

impl Scenario {
    /// The scenarios chosen by name or prefix; all by default.
    pub fn chosen(names: &[String]) -> Vec<Self> {
        let wanted = |scenario: &Self| names.is_empty() || names.iter().any(|name| scenario.is_called(name));
        ALL.into_iter().filter(wanted).collect()
    }

    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))
    }

    /// The crawl of its URLs, so that scenarios do not interfere.
    pub fn crawl(&self) -> String {
        format!("bench-{}", self.name)
    }

    /// How its URLs are distributed over hosts.
    pub const fn spread(&self, args: &BenchArgs) -> Spread {
        if self.many_hosts { Spread::Sequential(args.many_hosts) } else { Spread::Random(args.hosts) }
    }

    /// Whether it takes URLs out.
    pub const fn takes_out(&self) -> bool {
        matches!(self.load, Load::Get { .. } | Load::Mixed { .. } | Load::NativeCycle | Load::Chunks { .. })
    }

    /// Whether it uses HTTP.
    pub const fn is_native(&self) -> bool {
        matches!(self.load, Load::NativePut | Load::NativeCycle | Load::Chunks { .. } | Load::Matches { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(asked: &[&str]) -> Vec<&'static str> {
        let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
        Scenario::chosen(&asked).iter().map(|scenario| scenario.name).collect()
    }

    #[test]
    fn a_beginning_chooses_all_that_begin_so() {
        assert_eq!(names(&["get-10x1"]), ["get-10x1-1", "get-10x1-4"]);
        assert_eq!(names(&["put-1", "native"]), ["put-1", "native-put", "native-cycle"]);
        assert_eq!(names(&[]).len(), ALL.len());
        let error = named("nope").unwrap_err();
        assert!(error.contains("put-1"), "{error}");
    }

    #[test]
    fn the_help_names_every_scenario() {
        for scenario in ALL {
            assert!(HELP.contains(scenario.name), "{}", scenario.name);
        }
    }
}
