//! The settings of a pool as flags and as a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::ValueParser;
use wayleave_api::object;
use wayleave_api::pools::{Pull, Runtime, SetPoolRequest};

use crate::exit::Usage;
use crate::values::words;
use crate::{toml_file, values};

macro_rules! flags {
    ($(
        #[$wish:meta] $given:ident: $shown:tt $view:tt,
        $field:ident: $type:tt $bounds:ident = $whole:expr, $unit:ident $flag:tt;
    )*) => {
        /// Arguments of `pools set`. Flags are called as the API calls the settings.
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
            $(
                #[doc = $flag]
                #[arg(long, value_name = stringify!($unit), value_parser = parser(stringify!($unit)), allow_hyphen_values = stringify!($unit) == "TIME")]
                $field: Option<u64>,
            )*
            /// Whether the pool is paused and starts nothing [default: as it is]
            #[arg(long, value_name = "true|false")]
            paused: Option<bool>,
            /// The program and its arguments, after `--`; no shell is involved
            #[arg(last = true, value_name = "COMMAND")]
            command: Vec<String>,
        }

        impl SetPoolArgs {
            /// The request: the file's settings, with those of the flags in their place. Fails if the file cannot be read or is
            /// not valid, or a variable has no value.
            pub fn request(self) -> anyhow::Result<SetPoolRequest> {
                let file = self.file.as_deref().map(read_file).transpose()?.unwrap_or_default();
                let env = variables(&self.env, |name| std::env::var(name).ok())?;
                Ok(SetPoolRequest {
                    runtime: self.runtime.map(Runtime::from).or(file.runtime),
                    command: if self.command.is_empty() { file.command } else { self.command },
                    image: self.image.or(file.image),
                    env: if env.is_empty() { file.env } else { env },
                    port: self.port.or(file.port),
                    advertise: self.advertise.or(file.advertise),
                    memory_bytes: self.memory_bytes.or(file.memory_bytes),
                    cpu_millis: self.cpu_millis.or(file.cpu_millis),
                    pull: self.pull.map(Pull::from).or(file.pull),
                    slots: self.slots.or(file.slots),
                    $($given: self.$field.or(file.$given),)*
                    paused: self.paused.or(file.paused),
                })
            }
        }
    };
}
wayleave_core::pool_numbers!(flags);

words! {
    RuntimeArg = Runtime {
        /// A command on the server's machine
        Process,
        /// A container of a Docker engine
        Docker,
    }
}
words! {
    PullArg = Pull {
        /// Never: the image must be there
        Never,
        /// If it is not there
        Missing,
        /// Before every creation
        Always,
    }
}

fn parser(unit: &str) -> ValueParser {
    if unit == "TIME" { ValueParser::new(values::span) } else { clap::value_parser!(u64).into() }
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
    let wrong = |(line, said)| Usage(format!("{}, line {line}: {said}", path.display()));
    if text.trim_start().starts_with('{') {
        return object::read(text.as_bytes()).map_err(|error| wrong((error.line, error.sentence("the file"))));
    }
    toml_file::parse(text).map_err(wrong)
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
