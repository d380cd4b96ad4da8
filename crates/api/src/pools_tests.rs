//! What a pool may be set to, and what a caller is told when it may not.

use super::*;

fn read(text: &str) -> Result<Settings, String> {
    let body: SetPoolRequest = crate::object::read(text.as_bytes()).map_err(|e| e.sentence("the body"))?;
    body.settings().map_err(|bad| bad.to_string())
}

#[test]
fn a_command_or_an_image_with_its_port_is_enough() {
    let process = read(r#"{"command":["./worker"]}"#).unwrap();
    assert_eq!((process.recipe.runtime, process.min, process.max), (core::RuntimeKind::Process, 0, 1));
    let docker = read(r#"{"image":"browser:3","port":8080,"min":2,"pull":"always"}"#).unwrap();
    assert_eq!((docker.recipe.runtime, docker.max), (core::RuntimeKind::Docker, 2));
    assert_eq!(docker.pull, core::PullPolicy::Always);
}

#[test]
fn what_cannot_be_taken_is_named_with_the_remedy() {
    for (text, said) in [
        ("{}", "runtime: is missing"),
        (r#"{"runtime":"process"}"#, "command: is missing"),
        (r#"{"runtime":"docker","command":["x"]}"#, "image: is missing"),
        (r#"{"runtime":"vm"}"#, "runtime: 'vm' is none of process, docker"),
        (r#"{"image":"x","port":1,"pull":"often"}"#, "pull: 'often' is none of never, missing, always"),
        (r#"{"command":["x"],"min":3,"max":2}"#, "max: is 2, which is below `min` (3): raise `max` or lower `min`"),
        (r#"{"command":["x"],"slots":0}"#, "slots: 0 is not between 1 and 1000"),
        (r#"{"command":["x"],"slots":-1}"#, "a whole number between 1 and 1000"),
        (r#"{"command":["x"],"buffer":2}"#, "buffer: is 2, but 1 worker of 1 slot has only 1"),
        (r#"{"command":["x"],"env":{"PORT":"1"}}"#, "env: sets PORT"),
        (r#"{"command":["x"],"env":{"A":1}}"#, "env.A: expected a text, got 1"),
        (r#"{"command":["x"],"memory_bytes":9000000}"#, "memory_bytes: is given for a process"),
        (r#"{"command":["x"],"idle":5}"#, "idle: there is no such field"),
        (r#"{"image":"x"}"#, "port: is missing"),
    ] {
        let error = read(text).expect_err(text);
        assert!(error.contains(said), "{text}: {error}");
    }
    let many = format!(r#"{{"command":[{}]}}"#, vec!["\"x\""; 300].join(","));
    assert!(read(&many).unwrap_err().contains("use at most 256 entries"), "a long list is bounded while it is read");
}

#[test]
fn values_of_the_environment_arguments_and_secrets_are_not_shown_in_logs() {
    let text = r#"{"command":["run","hunter2"],"env":{"API_KEY":"hunter2"}}"#;
    let body: SetPoolRequest = serde_json::from_str(text).unwrap();
    assert!(!format!("{body:?}").contains("hunter2"));
    let secret = "AA4utexP3RVtyJo6TRewUQ";
    let report = format!(r#"{{"address":"a:1","free":1,"run":1,"secret":"{secret}"}}"#);
    let report: ReportWorkerRequest = serde_json::from_str(&report).unwrap();
    assert!(!format!("{report:?}").contains("AA4utex"));
    assert!(!format!("{:?}", report.check().unwrap()).contains("AA4utex"));
}

#[test]
fn a_report_names_the_field_that_is_wrong() {
    let with = |address: &str, free: &str, secret: &str| {
        let text = format!(r#"{{"address":"{address}","free":{free},"run":1,"secret":"{secret}"}}"#);
        let body: ReportWorkerRequest = crate::object::read(text.as_bytes()).map_err(|e| e.sentence("the body"))?;
        body.check().map_err(|bad| bad.to_string())
    };
    let secret = "AA4utexP3RVtyJo6TRewUQ";
    assert_eq!(with("a:1", "3", secret).map(|report| report.free), Ok(3));
    for (address, free, secret, said) in [
        ("a", "1", secret, "address: 'a' is not a host and a port"),
        ("http://a:1/", "1", secret, "without a scheme"),
        ("a:1", "1001", secret, "free: 1001 is not between 0 and 1000"),
        ("a:1", "-1", secret, "a whole number between 0 and 1000"),
        ("a:1", "1", "x", "secret: is not one"),
    ] {
        let error = with(address, free, secret).expect_err(said);
        assert!(error.contains(said), "{error}");
    }
}
