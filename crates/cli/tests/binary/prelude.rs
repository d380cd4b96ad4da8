//! What most tests of this binary name.

pub use std::collections::{BTreeMap, BTreeSet, HashMap};
pub use std::io::{BufRead, BufReader, Read, Write};
pub use std::net::TcpStream;
pub use std::os::unix::fs::PermissionsExt;
pub use std::path::{Path, PathBuf};
pub use std::process::{Child, Command, Stdio};
pub use std::sync::atomic::{AtomicUsize, Ordering};
pub use std::sync::{Arc, Mutex};
pub use std::time::{Duration, Instant};

pub use rustix::process::{Pid, Signal, kill_process};
pub use serde_json::{Value, json};
pub use wayleave_api::map::Map;
pub use wayleave_api::urls::{AddUrlsRequest, UrlToAdd};
pub use wayleave_client::Client;
pub use wayleave_testbed::{Cluster, free_port};

pub use crate::support::{Ended, Server, binary, folder, run, wayleave};
