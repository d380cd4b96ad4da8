//! Compose: docker's plugin if there is one, otherwise version 1, as in Debian 12. That supports neither `name:` nor
//! `--wait`: it gets the file without its name, and the name as an argument, and containers are awaited here.

use crate::containers::engine::{Engine, root};
use crate::prelude::*;

pub struct Compose<'a> {
    engine: &'a Engine,
    file: String,
    text: String,
    pub project: String,
    plugin: bool,
}

impl<'a> Compose<'a> {
    pub fn new(engine: &'a Engine, file: &str) -> Self {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        let project = text.lines().find_map(|line| line.strip_prefix("name: ")).unwrap().to_owned();
        let plugin = engine.try_run(&["docker", "compose", "version"], Stdio::null()).is_ok();
        Self { engine, file: file.to_owned(), text, project, plugin }
    }

    /// Whether it is the plugin, for the figures.
    pub const fn version(&self) -> &'static str {
        if self.plugin { "docker compose" } else { "docker-compose 1" }
    }

    /// Runs a line of a document: `docker compose -f FILE …`.
    #[track_caller]
    pub fn documented(&self, line: &str) -> String {
        assert!(self.text.contains(&format!("#   {line}\n")), "{} does not say: {line}", self.file);
        println!("$ {line}");
        let start = format!("docker compose -f {} ", self.file);
        let words: Vec<&str> = line.strip_prefix(&start).unwrap().split(' ').collect();
        self.run(&words)
    }

    /// Runs compose with this file.
    #[track_caller]
    pub fn run(&self, words: &[&str]) -> String {
        if self.plugin {
            return self.engine.run(&[&["docker", "compose", "-f", &self.file], words].concat());
        }
        let mut file = tempfile::tempfile().unwrap();
        let text = self.text.replace(&format!("name: {}\n", self.project), "");
        file.write_all(text.as_bytes()).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        // For compose, a file from standard input is in its working directory.
        let start =
            ["sh", "-ec", "cd deploy; exec \"$@\"", "sh", "docker-compose", "--project-name", &self.project, "-f", "-"];
        // Without a terminal, as `docker compose` detects by itself.
        let words: Vec<&str> = words.iter().filter(|word| **word != "--wait").copied().collect();
        let words = match words.as_slice() {
            ["exec", rest @ ..] => [&["exec", "-T"], rest].concat(),
            words => words.to_vec(),
        };
        self.engine.try_run(&[&start[..], &words].concat(), file).unwrap_or_else(|why| panic!("{why}"))
    }

    /// The container of a service.
    pub fn container(&self, service: &str) -> String {
        self.run(&["ps", "--quiet", service])
    }
}

impl Drop for Compose<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.run(&["down", "--volumes"]);
        }
    }
}
