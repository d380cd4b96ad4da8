//! Warns about environment variables that look like settings and are none: typos would otherwise go unnoticed.

use clap::CommandFactory;
use wayleave_api::nearest::nearest;

use crate::Cli;

/// The prefix of all settings.
const PREFIX: &str = "WAYLEAVE_";

/// Set by `elect` and `match` for their command, which may be a server.
const OTHERS: [&str; 5] = ["WAYLEAVE_ROLE", "WAYLEAVE_EPOCH", "WAYLEAVE_UUID", "WAYLEAVE_ADDRESS", "WAYLEAVE_TOKEN"];

/// Logs a warning for every unknown variable with the prefix.
pub fn warn() {
    let known = known();
    let variables = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    for (name, value) in variables {
        if let Some(warning) = judge(&name, &value.to_string_lossy(), &known) {
            tracing::warn!("{warning}");
        }
    }
}

/// All variables that a command reads.
fn known() -> Vec<String> {
    fn gather(command: &clap::Command, names: &mut Vec<String>) {
        let of = |arg: &clap::Arg| arg.get_env().map(|name| name.to_string_lossy().into_owned());
        names.extend(command.get_arguments().filter_map(of));
        command.get_subcommands().for_each(|command| gather(command, names));
    }
    let mut names: Vec<String> = OTHERS.map(str::to_owned).into();
    gather(&Cli::command(), &mut names);
    names
}

/// The warning about a variable. Its value is never shown: it may be a password.
fn judge(name: &str, value: &str, known: &[String]) -> Option<String> {
    if !name.starts_with(PREFIX) || known.iter().any(|known| known == name) || is_of_a_service(name, value) {
        return None;
    }
    let meant = nearest(name, known.iter().map(String::as_str));
    let meant =
        meant.map_or_else(|| "`wayleave serve --help` lists them".to_owned(), |near| format!("did you mean {near}?"));
    Some(format!("unknown variable {name}; {meant}"))
}

/// Kubernetes sets variables in every container, named after its services.
fn is_of_a_service(name: &str, value: &str) -> bool {
    let address = ["tcp://", "udp://"].iter().any(|scheme| value.starts_with(scheme));
    address || name.contains("_SERVICE_HOST") || name.contains("_SERVICE_PORT") || name.contains("_TCP_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_known_and_a_slip_finds_the_one_that_was_meant() {
        let known = known();
        for name in ["WAYLEAVE_LISTEN", "WAYLEAVE_ENGINE", "WAYLEAVE_SERVER", "WAYLEAVE_EPOCH", "PATH"] {
            assert_eq!(judge(name, "x", &known), None, "{name}");
        }
        for (name, near) in [
            ("WAYLEAVE_LISTN", "did you mean WAYLEAVE_LISTEN?"),
            ("WAYLEAVE_MEMTABLE", "did you mean WAYLEAVE_MEMTABLE_MB?"),
            ("WAYLEAVE_COLOUR_OF_THE_SKY", "`wayleave serve --help` lists them"),
        ] {
            let said = judge(name, "x", &known).unwrap();
            assert!(said.starts_with(&format!("unknown variable {name}")) && said.ends_with(near), "{said}");
        }
    }

    #[test]
    fn what_kubernetes_sets_is_no_slip() {
        for (name, value) in [
            ("WAYLEAVE_SERVICE_HOST", "10.0.0.1"),
            ("WAYLEAVE_SERVICE_PORT_HTTP", "7071"),
            ("WAYLEAVE_PORT", "tcp://10.0.0.1:7071"),
            ("WAYLEAVE_PORT_7071_TCP_ADDR", "10.0.0.1"),
        ] {
            assert_eq!(judge(name, value, &known()), None, "{name}");
        }
        assert!(judge("WAYLEAVE_PORT", "7071", &known()).is_some());
    }
}
