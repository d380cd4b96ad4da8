//! Blanks out comments, strings and characters in Rust source, so that braces and words can be counted without a
//! parser. Every line keeps its length in characters.

/// Blanks out everything that is not code.
pub fn mask(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let rest = chars.get(at..).unwrap_or_default();
        let (length, blank) = next_piece(rest, at > 0 && chars.get(at - 1).is_some_and(|c| is_word(*c)));
        for c in rest.iter().take(length) {
            out.push(if blank && *c != '\n' { ' ' } else { *c });
        }
        at += length.max(1);
    }
    out
}

/// The length of the next token, and whether it is to be blanked out.
fn next_piece(rest: &[char], after_word: bool) -> (usize, bool) {
    match rest {
        ['/', '/', ..] => (rest.iter().position(|c| *c == '\n').unwrap_or(rest.len()), true),
        ['/', '*', ..] => (block_comment(rest), true),
        ['"', ..] => (1 + string(rest.get(1..).unwrap_or_default()), true),
        ['\'', ..] => character(rest),
        ['r' | 'b' | 'c', ..] if !after_word => prefixed(rest),
        _ => (1, false),
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn block_comment(rest: &[char]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(pair) = rest.get(at..).filter(|rest| !rest.is_empty()) {
        match pair {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of a string's content and its closing quote.
fn string(inside: &[char]) -> usize {
    let mut at = 0;
    while let Some(c) = inside.get(at) {
        match c {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    inside.len()
}

/// A character, or a lifetime, which is kept.
fn character(rest: &[char]) -> (usize, bool) {
    match rest {
        ['\'', '\\', _, tail @ ..] => {
            let close = tail.iter().position(|c| *c == '\'').map_or(tail.len(), |at| at + 1);
            (3 + close, true)
        }
        ['\'', _, '\'', ..] => (3, true),
        _ => (1, false),
    }
}

/// A raw string, or a byte string or character; otherwise one letter of a word.
fn prefixed(rest: &[char]) -> (usize, bool) {
    let letters = rest.iter().take_while(|c| matches!(c, 'r' | 'b' | 'c')).count();
    let tail = rest.get(letters..).unwrap_or_default();
    let raw = rest.get(..letters).is_some_and(|letters| letters.contains(&'r'));
    let hashes = tail.iter().take_while(|c| **c == '#').count();
    match tail.get(hashes..) {
        Some(['"', inside @ ..]) if letters <= 2 && raw => {
            let end = |at: usize| inside.get(at..).is_some_and(|rest| closes(rest, hashes));
            let close = (0..inside.len()).find(|at| end(*at)).map_or(inside.len(), |at| at + 1 + hashes);
            (letters + hashes + 1 + close, true)
        }
        Some(['"', inside @ ..]) if letters == 1 && hashes == 0 => (2 + string(inside), true),
        Some(quote @ ['\'', ..]) if letters == 1 && hashes == 0 && !raw => {
            let (length, blank) = character(quote);
            (1 + length, blank)
        }
        _ => (1, false),
    }
}

fn closes(rest: &[char], hashes: usize) -> bool {
    rest.first() == Some(&'"') && rest.iter().skip(1).take_while(|c| **c == '#').count() >= hashes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of a source; each line keeps its length.
    fn check(source: &str, expected: &str) {
        let masked = mask(source);
        let lengths = |text: &str| text.split('\n').map(|line| line.chars().count()).collect::<Vec<_>>();
        assert_eq!(lengths(&masked), lengths(source), "{source}");
        assert_eq!(masked.split_whitespace().collect::<Vec<_>>().join(" "), expected, "{source}");
    }

    #[test]
    fn comments_are_blank_even_within_each_other() {
        check("a // }\nb", "a b");
        check("a /* { /* } */ { */ b", "a b");
        check("a / b * c", "a / b * c");
    }

    #[test]
    fn strings_of_every_kind_are_blank() {
        check(r#"f("}\"}") + 1"#, "f( ) + 1");
        check(r###"f(r#"}"}"#, 2)"###, "f( , 2)");
        check(r#"(b"}", br"\", c"}")"#, "( , , )");
        check("x = \"a\n}é\";", "x = ;");
    }

    #[test]
    fn characters_are_blank_and_lifetimes_are_not() {
        check(r"('{', '\'', b'}', '\u{7d}')", "( , , , )");
        check("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}");
    }

    #[test]
    fn words_that_end_like_a_prefix_are_words() {
        check("var\"}\"", "var");
        check("r#fn b r", "r#fn b r");
    }
}
