//! Documents with one mistake each: every one of them must be found.

use crate::documents::check;

fn found(markdown: &str, part: &str) {
    let why = check("broken.md", markdown).expect_err(markdown);
    assert!(why.contains(part), "{markdown}\n{why}");
}

#[test]
fn a_command_that_fails_is_found_with_its_place() {
    found("text\n\n```sh\nwayleave stats\nwayleave why nobody.example\n```\n", "broken.md:4: ended with Some(3)");
}

#[test]
fn a_flag_that_does_not_exist_is_found_although_the_block_is_not_run() {
    found("```sh no-run=a-reason\nwayleave serve --colour blue\n```\n", "unexpected argument '--colour'");
    found("```sh no-run=a-reason\nsudo=1 wayleave hosts paint a.example\n```\n", "'paint'");
    found("```crontab\n1 2 * * * app wayleave get --grups 3\n```\n", "'--grups'");
    found("```ini\nExecStart=sh -c 'exec wayleave get --grups 3'\n```\n", "'--grups'");
    found("Say `wayleave crawls set news --max-colours 3`.\n", "'--max-colours'");
}

#[test]
fn an_output_that_differs_is_found() {
    found("```console\n$ echo one\ntwo\n```\n", "--- seen\none");
}

#[test]
fn a_python_block_that_fails_is_found() {
    found("```python\nraise SystemExit('no')\n```\n", "broken.md:2: ended with Some(1)\nno");
}

#[test]
fn a_setting_that_does_not_exist_is_found() {
    found("```toml\nlisten_port = 7071\n```\n", "listen_port");
}

#[test]
fn json_that_does_not_parse_or_has_an_unknown_code_is_found() {
    found("```json\n{\"a\": 1,}\n```\n", "broken.md:2: ");
    found("```json\n{\"code\": \"no_such_code\"}\n```\n", "no such code");
    found("```json\n{\"code\": \"unknown_url\", \"status\": 500}\n```\n", "another status");
}

#[test]
fn lines_that_the_named_file_does_not_have_are_found() {
    found("```yaml part-of=deploy/patroni/patroni.yml\nsynchronous_mode: false\n```\n", "has no such lines");
}

#[test]
fn a_block_that_nothing_checks_is_found() {
    found("```\nx\n```\n", "names no language");
    found("```perl\nx\n```\n", "nothing checks");
    found("```sh no-run\nx\n```\n", "NAME=VALUE");
    found("```sh\nx\n", "does not end");
}
