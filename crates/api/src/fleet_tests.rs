//! What a report may say, and what it is told when it may not.

use wayleave_core::fleet::Report;

use super::*;

fn read(text: &str) -> Result<Report, String> {
    let body: ReportMachineRequest = crate::object::read(text.as_bytes()).map_err(|e| e.sentence("the body"))?;
    body.report(None).map_err(|bad| bad.to_string())
}

#[test]
fn a_report_needs_only_its_type_address_and_state() {
    let report = read(r#"{"type":"server","address":"10.0.0.7:9000","state":"online"}"#).unwrap();
    assert_eq!((report.capacity, report.row, report.token, report.version), (1, None, None, None));
    let from = "10.0.0.7".parse().ok();
    let body = ReportMachineRequest::new(MachineType::Builder, "[fd00::7]:9000");
    assert_eq!(body.report(from).unwrap().from, from);
    assert_eq!(serde_json::to_string(&body).unwrap().matches("token").count(), 0);
}

#[test]
fn what_cannot_be_taken_is_named_with_its_bounds() {
    let with = |more: &str| read(&format!(r#"{{"type":"server","state":"online",{more}}}"#)).unwrap_err();
    for (more, said) in [
        (r#""address":"10.0.0.7:9000","capacity":0"#, "capacity: 0 is not between 1 and 1000000"),
        (r#""address":"10.0.0.7:9000","capacity":-3"#, "a whole number between 1 and 1000000"),
        (r#""address":"10.0.0.7:9000","row":64"#, "row: 64 is not between 0 and 63"),
        (r#""address":"10.0.0.7:9000","row":-1"#, "a whole number between 0 and 63"),
        (r#""address":"10.0.0.7:9000","token":"x""#, "token: "),
        (r#""address":"10.0.0.7:9000","version":"a\u0007""#, "version: must not contain control characters"),
        (r#""address":"10.0.0.7""#, "address: '10.0.0.7' is not a host and a port"),
        (r#""address":"http://10.0.0.7:9000/""#, "without a scheme or path"),
        (r#""address":"10.0.0.7:0""#, "is not a host and a port"),
        (r#""address":"""#, "address: has 0 bytes"),
    ] {
        let error = with(more);
        assert!(error.contains(said), "{more}: {error}");
    }
    let crawler = r#"{"type":"crawler","address":"a:1","state":"online","row":0}"#;
    assert!(read(crawler).unwrap_err().contains("a crawler has no row"));
    let word = r#"{"type":"crawler","address":"a:1","state":"fine"}"#;
    assert!(read(word).unwrap_err().contains("state: 'fine' is none of"));
}

#[test]
fn a_token_is_not_shown_in_logs() {
    let mut body = ReportMachineRequest::new(MachineType::Server, "a:1");
    body.token = Some("AA4utexP3RVtyJo6TRewUQ".to_owned());
    assert!(!format!("{body:?}").contains("AA4utex"));
}
