//! Finds the `wayleave …` commands of a document and parses them with the real definition of the command line.

use clap::Parser;
use clap::error::ErrorKind;
use wayleave_cli::Cli;

use crate::documents::block::Block;

/// Parses every command in the blocks, and every one in running text.
pub fn check(file: &str, markdown: &str, blocks: &[Block]) -> Result<(), String> {
    for block in blocks {
        for words in in_block(block) {
            parse(&words, false).map_err(|why| format!("{}: {why}", block.place()))?;
        }
    }
    for (line, span) in spans(markdown) {
        for words in simple_commands(&span).into_iter().filter_map(ours) {
            parse(&words, true).map_err(|why| format!("{file}:{line}: {why}"))?;
        }
    }
    Ok(())
}

fn parse(words: &[String], lenient: bool) -> Result<(), String> {
    let words: Vec<&String> = words.iter().filter(|word| !lenient || *word != "…").collect();
    let Err(error) = Cli::try_parse_from(&words) else { return Ok(()) };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(()),
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::InvalidValue
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            if lenient =>
        {
            Ok(())
        }
        _ => Err(format!("{words:?}: {error}")),
    }
}

fn in_block(block: &Block) -> Vec<Vec<String>> {
    let text = match block.language.as_str() {
        "console" => shown(&block.text).into_iter().map(|shown| shown.command).collect(),
        // Five fields of the schedule, and the user.
        "crontab" => block
            .text
            .lines()
            .map(|line| line.split_whitespace().skip(6).collect::<Vec<_>>().join(" ") + "\n")
            .collect(),
        "ini" => block
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("ExecStart="))
            .map(|line| format!("{line}\n"))
            .collect(),
        "sh" => block.text.clone(),
        _ => String::new(),
    };
    simple_commands(&text).into_iter().filter_map(ours).collect()
}

/// A command of a `console` block, and the output that is shown below it.
pub struct Shown {
    pub command: String,
    pub output: String,
}

/// The commands of a `console` block: lines that begin with `$`, with those that a backslash continues.
pub fn shown(text: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    let mut continued = false;
    for line in text.lines() {
        let begins = line.strip_prefix("$ ");
        match all.last_mut() {
            Some(last) if continued => last.command += &format!("{line}\n"),
            Some(last) if begins.is_none() => last.output += &format!("{line}\n"),
            _ => all.push(Shown { command: format!("{}\n", begins.unwrap_or(line)), output: String::new() }),
        }
        continued = (continued || begins.is_some()) && line.ends_with('\\');
    }
    all
}

/// The code spans of running text, with their lines.
fn spans(markdown: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(markdown.lines()) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            found.extend(line.split('`').skip(1).step_by(2).map(|span| (number, span.to_owned())));
        }
    }
    found
}

/// The arguments after the prefixes that may precede our command; `None` if it is another command.
fn ours(words: Vec<String>) -> Option<Vec<String>> {
    let before = |word: &String| {
        let assigns =
            word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_alphanumeric() || c == '_'));
        assigns || ["exec", "if", "then", "while", "until", "do", "!", "{"].contains(&word.as_str())
    };
    let words: Vec<String> = words.into_iter().skip_while(before).collect();
    let first = words.first()?.rsplit('/').next()?.to_owned();
    match (first.as_str(), words.get(1).map(String::as_str)) {
        ("wayleave", _) => Some(words),
        ("docker", Some("exec")) => ours(words.into_iter().skip(3).collect()),
        ("cargo", Some("run")) if words.iter().any(|word| word == "wayleave") => {
            Some(words.into_iter().skip_while(|word| word != "--").collect())
        }
        ("sh", Some("-c")) => simple_commands(words.get(2)?).into_iter().find_map(ours),
        _ => None,
    }
}

/// The simple commands of a script as lists of words, as a shell would split them: quotes, comments, redirections, pipes.
fn simple_commands(script: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word) = (vec![], vec![], None::<String>);
    let mut quoted = false;
    let mut chars = script.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('\n') | None => {}
                Some(c) => word.get_or_insert_default().push(c),
            },
            '\'' if !quoted => word.get_or_insert_default().extend(chars.by_ref().take_while(|next| *next != '\'')),
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '$' => {
                // A substitution: a number is accepted wherever a text is.
                word.get_or_insert_default().push('1');
                if chars.next_if_eq(&'(').is_some() {
                    _ = chars.by_ref().take_while(|next| *next != ')').count();
                } else {
                    while chars.next_if(|next| next.is_alphanumeric() || "_!$?".contains(*next)).is_some() {}
                }
            }
            c if quoted => word.get_or_insert_default().push(c),
            '#' if word.is_none() => {
                _ = chars.by_ref().take_while(|next| *next != '\n').count();
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
            }
            '\n' | ';' | '&' | '|' | '(' | ')' => {
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
            }
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    commands.push(words);
    commands.into_iter().map(without_redirections).filter(|words| !words.is_empty()).collect()
}

fn without_redirections(words: Vec<String>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.trim_start_matches(|c: char| c.is_ascii_digit()) {
            ">" | "<" | ">>" => _ = words.next(),
            text if text.starts_with(['>', '<']) => {}
            _ => kept.push(word),
        }
    }
    kept
}

#[test]
fn commands_are_found_behind_whatever_stands_before_them() {
    let found = |text: &str| -> Vec<String> {
        simple_commands(text).into_iter().filter_map(ours).map(|words| words[1..].join(" ")).collect()
    };
    assert_eq!(found("printf 'a;b' | wayleave seed - # a comment; wayleave no"), ["seed -"]);
    assert_eq!(
        found("A=1 exec /usr/bin/wayleave get \\\n  --urls 2 >out 2>&1 && wayleave stats"),
        ["get --urls 2", "stats"]
    );
    assert_eq!(found("docker exec box wayleave stats; docker run wayleave\n"), ["stats"]);
    assert_eq!(found("cargo run --bin wayleave -- serve"), ["serve"]);
    assert_eq!(found("sh -c 'exec wayleave elect x --slot \"$(date)\" -- y'"), ["elect x --slot 1 -- y"]);
}
