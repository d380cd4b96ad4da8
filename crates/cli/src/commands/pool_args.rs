//! The settings of a pool as flags and as a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use wayleave_api::pools::{Pull, Runtime, SetPoolRequest};
use wayleave_api::wording::TextError;

use crate::exit::Usage;
use crate::values;

/// Arguments of `pools set`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SetPoolArgs {
    /// The pool: letters, digits, '.', '_' and '-'
    #[arg(value_parser = values::name)]
    pub pool: String,
    /// Settings from this file, TOML or JSON, with the names of the API; flags take precedence
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// What starts the workers [default: docker with --image, else process]
    #[arg(long, value_enum)]
    runtime: Option<RuntimeArg>,
    /// The image that containers are started from
    #[arg(long)]
    image: Option<String>,
    /// A variable of the workers' environment; may be repeated. Its value is never shown again; NAME alone takes the value
    /// from this command's own environment
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// The port that a worker listens on: required for containers; a process is told a free one as $PORT
    #[arg(long)]
    port: Option<u64>,
    /// The address at which clients reach workers, without a port [default: loopback]
    #[arg(long, value_name = "ADDRESS")]
    advertise: Option<String>,
    /// The most memory that a container may use
    #[arg(long, value_name = "BYTES")]
    memory_bytes: Option<u64>,
    /// The most CPU time that a container may use, in thousandths of a CPU
    #[arg(long, value_name = "MILLIS")]
    cpu_millis: Option<u64>,
    /// When the image is pulled [default: missing]
    #[arg(long, value_enum)]
    pull: Option<PullArg>,
    /// Clients that one worker serves at once [default: 1]
    #[arg(long, value_name = "NUMBER")]
    slots: Option<u64>,
    /// Workers that run even if nobody asks [default: 0]
    #[arg(long, value_name = "NUMBER")]
    min: Option<u64>,
    /// Workers at most [default: 1]
    #[arg(long, value_name = "NUMBER")]
    max: Option<u64>,
    /// Free slots to keep ready [default: 0]
    #[arg(long, value_name = "SLOTS")]
    buffer: Option<u64>,
    /// Stop a worker that was idle for this long [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = values::span, allow_hyphen_values = true)]
    idle: Option<u64>,
    /// Replace a worker of this age once it has no clients
    #[arg(long, value_name = "TIME", value_parser = values::span, allow_hyphen_values = true)]
    age_max: Option<u64>,
    /// Replace a worker after this many clients
    #[arg(long, value_name = "NUMBER")]
    uses_max: Option<u64>,
    /// Deadline of each step of starting a worker [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = values::span, allow_hyphen_values = true)]
    start_max: Option<u64>,
    /// Clients that may queue; further ones are refused [default: 10000]
    #[arg(long, value_name = "NUMBER")]
    queue_max: Option<u64>,
    /// Deadline of a client's request; then it fails [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = values::span, allow_hyphen_values = true)]
    match_max: Option<u64>,
    /// How long a match lasts if the client does not confirm it [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = values::span, allow_hyphen_values = true)]
    reservation: Option<u64>,
    /// Clients and workers that are worked on at the same time [default: 64]
    #[arg(long, value_name = "NUMBER")]
    makers_max: Option<u64>,
    /// Whether the pool is paused and starts nothing [default: as it is]
    #[arg(long, value_name = "true|false")]
    paused: Option<bool>,
    /// The program and its arguments, after `--`; no shell is involved
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum RuntimeArg {
    /// A command on the server's machine
    Process,
    /// A container of a Docker engine
    Docker,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum PullArg {
    /// Never: the image must be there
    Never,
    /// If it is not there
    Missing,
    /// Before every creation
    Always,
}

impl SetPoolArgs {
    /// The request: the file's settings, with those of the flags in their place.
    ///
    /// # Errors
    /// If the file cannot be read or is not valid, or a variable has no value.
    pub fn request(self) -> anyhow::Result<SetPoolRequest> {
        let file = self.file.as_deref().map(read_file).transpose()?.unwrap_or_default();
        let runtime = self.runtime.map(|runtime| match runtime {
            RuntimeArg::Process => Runtime::Process,
            RuntimeArg::Docker => Runtime::Docker,
        });
        let pull = self.pull.map(|pull| match pull {
            PullArg::Never => Pull::Never,
            PullArg::Missing => Pull::Missing,
            PullArg::Always => Pull::Always,
        });
        let env = variables(&self.env, |name| std::env::var(name).ok())?;
        Ok(SetPoolRequest {
            runtime: runtime.or(file.runtime),
            command: if self.command.is_empty() { file.command } else { self.command },
            image: self.image.or(file.image),
            env: if env.is_empty() { file.env } else { env },
            port: self.port.or(file.port),
            advertise: self.advertise.or(file.advertise),
            memory_bytes: self.memory_bytes.or(file.memory_bytes),
            cpu_millis: self.cpu_millis.or(file.cpu_millis),
            pull: pull.or(file.pull),
            slots: self.slots.or(file.slots),
            min: self.min.or(file.min),
            max: self.max.or(file.max),
            buffer: self.buffer.or(file.buffer),
            idle_ms: self.idle.or(file.idle_ms),
            age_ms_max: self.age_max.or(file.age_ms_max),
            uses_max: self.uses_max.or(file.uses_max),
            start_ms_max: self.start_max.or(file.start_ms_max),
            queue_max: self.queue_max.or(file.queue_max),
            match_ms_max: self.match_max.or(file.match_ms_max),
            reservation_ms: self.reservation.or(file.reservation_ms),
            makers_max: self.makers_max.or(file.makers_max),
            paused: self.paused.or(file.paused),
        })
    }
}

/// Reads `NAME=VALUE`, or `NAME` whose value is looked up: so a secret need not be an argument.
fn variables(given: &[String], look_up: impl Fn(&str) -> Option<String>) -> Result<BTreeMap<String, String>, Usage> {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => match look_up(text) {
            Some(value) => Ok((text.clone(), value)),
            None => Err(Usage(format!("--env {text}: there is no such variable here; set it, or write {text}=VALUE"))),
        },
    };
    given.iter().map(pair).collect()
}

fn read_file(path: &Path) -> anyhow::Result<SetPoolRequest> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(parse(&text, path)?)
}

fn parse(text: &str, path: &Path) -> Result<SetPoolRequest, Usage> {
    // Values are not repeated: they may be secrets.
    let wrong = |line: usize, why: &str| {
        let said = TextError::of("the file", "", why).sentence;
        Usage(format!("{}, line {line}: {said}", path.display()))
    };
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| wrong(error.line(), &error.to_string()));
    }
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let before = error.span().map_or(0, |span| span.start);
        wrong(text.bytes().take(before).filter(|byte| *byte == b'\n').count() + 1, error.message())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_toml_or_json_and_a_wrong_name_is_told_with_its_line() {
        let toml = parse("command = ['./w', '-v']\nslots = 5\n[env]\nA = 'b'\n", Path::new("p.toml")).unwrap();
        let json = parse(r#"{"command":["./w","-v"],"slots":5,"env":{"A":"b"}}"#, Path::new("p.json")).unwrap();
        assert_eq!(toml, json);
        assert_eq!(toml.slots, Some(5));
        let error = parse("slots = 5\nslotz = 6\n", Path::new("p.toml")).unwrap_err().to_string();
        assert!(error.contains("p.toml, line 2") && error.contains("slotz"), "{error}");
        let error = parse("slots = -5\n", Path::new("p.toml")).unwrap_err().to_string();
        assert!(error.contains("between 1 and 1000"), "{error}");
    }

    #[test]
    fn a_variable_without_a_value_is_taken_from_the_environment() {
        let look_up = |name: &str| (name == "KEY").then(|| "hunter2".to_owned());
        let env = variables(&["A=b=c".to_owned(), "KEY".to_owned()], look_up).unwrap();
        assert_eq!(env, BTreeMap::from([("A".into(), "b=c".into()), ("KEY".into(), "hunter2".into())]));
        let error = variables(&["NONE".to_owned()], look_up).unwrap_err().to_string();
        assert!(error.contains("NONE=VALUE"), "{error}");
    }
}
