//! Finds the fenced blocks of a document and their purpose.

use wayleave_api::problem::Code;

use crate::documents::root;
use crate::prelude::*;

/// A fenced block: where it is, what its info string says, and its text.
#[derive(Clone, Debug)]
pub struct Block {
    pub file: String,
    /// The line of its first line of text.
    pub line: usize,
    pub language: String,
    notes: BTreeMap<String, String>,
    pub text: String,
}

/// What a test does with a block.
#[derive(Debug, PartialEq, Eq)]
pub enum Use {
    Run,
    Parse,
    NotRun(String),
}

/// All fenced blocks of a document.
pub fn blocks(file: &str, markdown: &str) -> Result<Vec<Block>, String> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in (1..).zip(markdown.lines()) {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(info), None) => open = Some(Block::begin(file, number + 1, info)?),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    open.map_or(Ok(blocks), |block| Err(format!("{}: the block does not end", block.place())))
}

impl Block {
    fn begin(file: &str, line: usize, info: &str) -> Result<Self, String> {
        let mut words = info.split_whitespace();
        let language = words.next().unwrap_or_default().to_owned();
        let notes = words.map(|word| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())));
        let notes =
            notes.collect::<Option<_>>().ok_or(format!("{file}:{line}: '{info}' is not LANGUAGE NAME=VALUE…"))?;
        Ok(Self { file: file.to_owned(), line, language, notes, text: String::new() })
    }

    pub fn place(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }

    /// What to do with it. A language or an annotation that nothing checks is an error.
    pub fn purpose(&self) -> Result<Use, String> {
        let note = self.notes.iter().next().map(|(name, value)| (name.as_str(), value.clone()));
        match (self.language.as_str(), note) {
            _ if self.notes.len() > 1 => Err(format!("{}: more than one note", self.place())),
            ("sh" | "console" | "python", None) => Ok(Use::Run),
            ("sh", Some(("with", database))) if database == "postgres" => Ok(Use::Run),
            ("sh" | "console", Some(("no-run", reason))) => Ok(Use::NotRun(reason)),
            ("toml" | "json" | "ini" | "crontab" | "text", None) => Ok(Use::Parse),
            ("" | "text", _) => Err(format!("{}: the block names no language", self.place())),
            (_, Some(("part-of", _))) => Ok(Use::Parse),
            (language, _) => Err(format!("{}: nothing checks a block of '{language}'", self.place())),
        }
    }

    /// Whether its commands need a database that several nodes share.
    pub fn needs_postgres(&self) -> bool {
        self.notes.contains_key("with")
    }

    /// Parses a block that is not run. Returns whether there was something to parse.
    pub fn parse(&self) -> Result<bool, String> {
        let wrong = |why: &str| Err(format!("{}: {why}", self.place()));
        match (self.notes.get("part-of"), self.language.as_str()) {
            (Some(file), _) => {
                let whole = std::fs::read_to_string(root().join(file)).map_err(|why| format!("{file}: {why}"))?;
                if is_part(&self.text, &whole) { Ok(true) } else { wrong(&format!("{file} has no such lines")) }
            }
            (None, "toml") => self.load_settings().map(|()| true),
            (None, "json") => match serde_json::from_str::<serde_json::Value>(&self.text) {
                Err(error) => wrong(&error.to_string()),
                Ok(value) => match value.get("code").map(|code| code.as_str().and_then(Code::parse)) {
                    Some(None) => wrong("the API knows no such code"),
                    Some(Some(code)) if value["status"] != code.status() => {
                        wrong("another status belongs to this code")
                    }
                    _ => Ok(true),
                },
            },
            (None, "ini") => {
                let known = |line: &str| line.is_empty() || line.starts_with(['#', '[']) || line.contains('=');
                self.text.lines().find(|line| !known(line)).map_or(Ok(true), |line| wrong(&format!("'{line}'")))
            }
            (None, "crontab") => {
                let fields =
                    |line: &str| line.split_whitespace().take(5).all(|field| field.chars().all(is_of_a_schedule));
                self.text.lines().find(|line| !fields(line)).map_or(Ok(true), |line| wrong(&format!("'{line}'")))
            }
            _ => Ok(false),
        }
    }

    /// The real loader: a server that starts with these settings, but in memory and on a free port.
    fn load_settings(&self) -> Result<(), String> {
        let (_keep, place) = folder();
        std::fs::create_dir_all(&place).unwrap();
        let file = place.join("settings.toml");
        std::fs::write(&file, &self.text).unwrap();
        let flags = ["--engine", "memory", "--listen", "127.0.0.1:0", "--shards", "4", "--log", "text"];
        let mut command = wayleave(&[&["serve", "--config", file.to_str().unwrap()], &flags[..]].concat());
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let is_ready = lines.inspect(|line| said += line).any(|line| line.contains(" ready on "));
        child.kill().and_then(|()| child.wait()).unwrap();
        if is_ready { Ok(()) } else { Err(format!("{}: the server does not start: {said}", self.place())) }
    }
}

fn is_of_a_schedule(c: char) -> bool {
    c.is_ascii_digit() || "*/,-".contains(c)
}

/// Whether all lines are in the whole, consecutively. Indentation and trailing comments do not count.
fn is_part(part: &str, whole: &str) -> bool {
    let plain = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.split(" #").next().unwrap_or_default().trim().to_owned());
        lines.filter(|line| !line.is_empty()).collect()
    };
    let (part, whole) = (plain(part), plain(whole));
    !part.is_empty() && whole.windows(part.len()).any(|lines| lines == part)
}
