//! The configuration of the container image (`deploy/Dockerfile`), run with the built binary and without a container
//! engine: its settings, its command and its health check, as in the file. This does not show that the image builds.

use crate::prelude::*;

fn file(name: &str) -> String {
    std::fs::read_to_string(format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// What follows a word at the start of a line, of each line that has it.
fn lines<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.strip_prefix(word)?.strip_prefix(' '))
}

fn setting<'a>(dockerfile: &'a str, name: &str) -> &'a str {
    let mut settings = lines(dockerfile, "ENV").filter_map(|line| line.split_once('='));
    settings.find(|(key, _)| *key == name).unwrap_or_else(|| panic!("the image does not set {name}")).1
}

/// The words of a command in its JSON form, without the program.
fn command(words: &str) -> Vec<String> {
    let words: Vec<String> = serde_json::from_str(words).unwrap();
    assert_eq!(words[0], "wayleave");
    words[1..].to_vec()
}

#[test]
fn the_image_serves_where_others_reach_it_and_its_health_check_can_tell() {
    let dockerfile = file("deploy/Dockerfile");
    let (_keep, data) = folder();
    assert_eq!(lines(&dockerfile, "ENTRYPOINT").next(), Some(r#"["wayleave"]"#));
    let serve: Vec<String> = serde_json::from_str(lines(&dockerfile, "CMD").next().unwrap()).unwrap();
    let mut server = wayleave(&serve.iter().map(String::as_str).collect::<Vec<_>>());
    server.envs(lines(&dockerfile, "ENV").filter_map(|line| line.split_once('=')));
    // The same settings, but a free port and a folder of this test.
    let (address, port) = setting(&dockerfile, "WAYLEAVE_LISTEN").rsplit_once(':').unwrap();
    assert_eq!((address, Some(port)), ("0.0.0.0", lines(&dockerfile, "EXPOSE").next()));
    server.env("WAYLEAVE_LISTEN", format!("{address}:0")).env("WAYLEAVE_DATA", &data);
    let server = Server::spawn(server);

    let check = lines(&dockerfile, "HEALTHCHECK").next().and_then(|line| line.split_once("CMD ")).unwrap().1;
    let check = command(check);
    let healthy = |url: &str| {
        let mut command = wayleave(&check.iter().map(String::as_str).collect::<Vec<_>>());
        command.env("WAYLEAVE_SERVER", url);
        run(command, "").code == 0
    };
    let url = server.url.clone();
    assert!(healthy(&url));
    assert_eq!(server.stop(), 0, "SIGTERM, as `docker stop` sends it");
    assert!(!healthy(&url), "nobody answers");
    assert!(data.join("FORMAT").exists());
}

#[test]
fn the_data_lies_below_the_volume_that_the_documents_mount() {
    let dockerfile = file("deploy/Dockerfile");
    let volume = lines(&dockerfile, "VOLUME").next().expect("the image has a volume");
    let data = Path::new(setting(&dockerfile, "WAYLEAVE_DATA"));
    assert!(
        data.starts_with(volume) && data != Path::new(volume),
        "a folder of its own on the volume: {}",
        data.display()
    );
    let port = lines(&dockerfile, "EXPOSE").next().unwrap();
    let run = format!("--publish 127.0.0.1:{port}:{port} --volume wayleave-data:{volume} wayleave\n");
    for name in ["deploy/Dockerfile", "docs/operating.md"] {
        assert!(file(name).contains(&run), "{name} has no such line: docker run … {run}");
    }
    let single = file("deploy/single.yaml");
    assert!(single.contains(&format!("\"127.0.0.1:{port}:{port}\"")) && single.contains(&format!("data:{volume}\"")));
}
