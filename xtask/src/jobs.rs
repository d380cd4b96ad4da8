//! Runs other programs, several at a time: tracks run in parallel, the jobs of a track one after the other. What a
//! job prints is shown only if it fails; every job runs, also after one that failed.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::leftovers;

/// How many lines of a failed job are shown again at the end.
const LAST_LINES: usize = 40;

/// One program and what to call it.
pub struct Job {
    pub name: String,
    pub command: Command,
}

/// What became of a job.
pub struct Done {
    pub name: String,
    pub took: Duration,
    /// What it printed.
    pub out: String,
    pub succeeded: bool,
}

/// Runs every track to its end. Fails if a job failed; its output has been shown.
pub fn run(tracks: Vec<Vec<Job>>) -> Result<Vec<Done>> {
    let done: Vec<Done> = std::thread::scope(|scope| {
        let running: Vec<_> = tracks
            .into_iter()
            .map(|track| scope.spawn(|| track.into_iter().map(run_one).collect::<Vec<_>>()))
            .collect();
        running
            .into_iter()
            .flat_map(|track| track.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let failed: Vec<&str> = done.iter().filter(|done| !done.succeeded).map(|done| done.name.as_str()).collect();
    if !failed.is_empty() {
        // Once more, at the end, for readers of only the end of a long log.
        for done in done.iter().filter(|done| !done.succeeded) {
            println!("{}, its last lines:\n{}", done.name, last_lines(&done.out));
        }
        bail!("{} of {} FAILED: {}", failed.len(), done.len(), failed.join(", "));
    }
    Ok(done)
}

/// The end of what a job printed: tests name those that failed there.
fn last_lines(out: &str) -> String {
    let lines: Vec<&str> = out.lines().collect();
    lines.get(lines.len().saturating_sub(LAST_LINES)..).unwrap_or_default().join("\n")
}

fn run_one(mut job: Job) -> Done {
    let begun = Instant::now();
    let (succeeded, out, err) = match job.command.output() {
        Ok(Output { status, stdout, stderr }) => {
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            (status.success(), text(stdout), format!("{}{status}\n", text(stderr)))
        }
        Err(error) => {
            (false, String::new(), format!("cannot start {}: {error}\n", job.command.get_program().display()))
        }
    };
    let mut done = Done { name: job.name, took: begun.elapsed(), out, succeeded };
    let seconds = done.took.as_secs_f64();
    if succeeded {
        println!("  {:<40} {seconds:>6.1} s", done.name);
    } else {
        // Tests that failed are named at the end of what goes to the standard output.
        done.out.insert_str(0, &err);
        // In one piece: other tracks print too.
        println!("{}  {} FAILED after {seconds:.1} s; see above", done.out, done.name);
    }
    done
}

/// The same program at the lowest priority: it takes the time that others leave.
pub fn in_background(command: &Command) -> Command {
    let mut background = Command::new("nice");
    background.args(["-n", "19"]);
    before(background, command)
}

/// The same program, which fails if it leaves processes behind.
pub fn leaving_nothing(command: &Command) -> Command {
    let mut watched = Command::new("/proc/self/exe");
    watched.arg(leftovers::WORD);
    before(watched, command)
}

/// A program that runs the one of a command, with the same environment and in the same folder.
fn before(mut program: Command, command: &Command) -> Command {
    program.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => program.env(name, value),
            None => program.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        program.current_dir(folder);
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { name: name.to_owned(), command }
    }

    #[test]
    fn tracks_run_beside_each_other_and_their_jobs_in_order() {
        // Each track waits for the other: one after the other they would never end.
        let folder = std::env::temp_dir().join(format!("wayleave-jobs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let meet = |mine: &str, other: &str| {
            let at = folder.display();
            shell(mine, &format!("touch {at}/{mine}; while [ ! -e {at}/{other} ]; do sleep 0.01; done; echo {mine}"))
        };
        let done = run(vec![vec![meet("a", "b"), shell("c", "echo c")], vec![meet("b", "a")]]).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let names: Vec<(&str, &str)> = done.iter().map(|done| (done.name.as_str(), done.out.trim())).collect();
        assert_eq!(names, [("a", "a"), ("c", "c"), ("b", "b")]);
    }

    #[test]
    fn a_job_that_fails_or_cannot_be_started_fails_all_and_is_named() {
        let missing = Job { name: "missing".to_owned(), command: Command::new("/there/is/no/such/program") };
        let failed = run(vec![vec![shell("bad", "exit 3"), shell("good", "true")], vec![missing]]).err().unwrap();
        assert_eq!(failed.to_string(), "2 of 3 FAILED: bad, missing");
        let long: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        assert_eq!(last_lines(&long.join("\n")), long[60..].join("\n"));
    }

    #[test]
    fn a_background_job_keeps_its_arguments_and_variables_at_lowest_priority() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $(nice) $WAYLEAVE_JOB $0", "word"]).env("WAYLEAVE_JOB", "set");
        let done = run(vec![vec![Job { name: "all".to_owned(), command: in_background(&command) }]]).unwrap();
        assert_eq!(done[0].out.trim(), "19 set word");
    }
}
