use super::*;

const SUM: &str = "sha256:00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";

fn artifact(location: &str, bytes: u64, checksum: &str) -> Result<row::Artifact, BadValue> {
    let (location, checksum) = (location.to_owned(), checksum.to_owned());
    row::Artifact::try_from(&Artifact { location, bytes, checksum })
}

#[test]
fn an_artifact_reads_back_with_its_checksum_in_small_letters() {
    for location in ["https://store.example/a?b#c", "s3://bucket/key", "gs://b/k", "file:///var/chunks/1", "urn:x:1"] {
        let stored = artifact(location, limits::NUMBER_MAX, SUM).unwrap();
        let told = Artifact::from(stored.clone());
        assert_eq!((told.location.as_str(), told.checksum), (location, SUM.to_lowercase()));
        assert_eq!(stored.checksum[..3], [0, 0x11, 0x22]);
    }
}

#[test]
fn each_part_of_an_artifact_that_is_wrong_is_named_with_a_remedy() {
    let long = format!("https://a.example/{}", "x".repeat(limits::LOCATION_BYTES_MAX));
    for (location, bytes, checksum, field, hint) in [
        ("", 1, SUM, "location", "whole URL"),
        ("store/1", 1, SUM, "location", "relative URL without a base"),
        ("/var/chunks/1", 1, SUM, "location", "whole URL"),
        ("http://", 1, SUM, "location", "empty host"),
        ("s3:", 1, SUM, "location", "a scheme and nothing else"),
        ("file:///", 1, SUM, "location", "a scheme and nothing else"),
        ("http://a.example/a b", 1, SUM, "location", "%20"),
        ("http://a.example/a\n", 1, SUM, "location", "%20"),
        (&long, 1, SUM, "location", "the limit is 2048"),
        ("s3://b/k", limits::NUMBER_MAX + 1, SUM, "bytes", "between 0 and"),
        ("s3://b/k", 1, "", "checksum", "other kinds"),
        ("s3://b/k", 1, "md5:00", "checksum", "other kinds"),
        ("s3://b/k", 1, &SUM[7..], "checksum", "in front of the digits"),
        ("s3://b/k", 1, &SUM[..70], "checksum", "63 characters"),
        ("s3://b/k", 1, &SUM.replace(['f', 'F'], "g"), "checksum", "hexadecimal"),
        ("s3://b/k", 1, &format!("sha256:{}", "é".repeat(32)), "checksum", "hexadecimal"),
    ] {
        let bad = artifact(location, bytes, checksum).expect_err(location);
        assert_eq!(bad.field, field, "{bad}");
        assert!(bad.reason.contains(hint), "{location} {checksum}: {bad}");
    }
}

#[test]
fn an_id_is_taken_as_it_was_issued_only() {
    assert_eq!(chunk_id("281474976710657"), Ok(ChunkId(281_474_976_710_657)));
    for bad in ["", "x", "-1", "+1", "01", "1.0", " 1", "18446744073709551616"] {
        assert!(chunk_id(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_claim_has_the_defaults_of_its_stage() {
    let claim = |stage| ClaimChunksRequest::new(stage, "w").claim(None).unwrap();
    let (crawl, build) = (claim(Stage::Crawl), claim(Stage::Build));
    assert_eq!((crawl.chunks, crawl.links, crawl.lease.0), (1, limits::CHUNK_LINKS_DEFAULT, limits::LEASE_MS_DEFAULT));
    assert_eq!((build.chunks, build.crawl), (limits::BUILD_CHUNKS_DEFAULT, None));
    let of_host = ClaimChunksRequest::new(Stage::Crawl, "w").claim(Some("a.example".into())).unwrap();
    assert_eq!(of_host.crawl.as_deref(), Some(names::DEFAULT_CRAWL), "a host alone has a queue for each crawl");
}

#[test]
fn an_unknown_stage_is_refused_with_the_words_that_are_known() {
    let error =
        serde_json::from_str::<ClaimChunksRequest>(r#"{"stage":"serve","worker":"w"}"#).unwrap_err().to_string();
    assert!(error.contains("`crawl` or `build`"), "{error}");
}
