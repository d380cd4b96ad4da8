//! The title and text of an HTML page, for the index.
//!
//! Scripts, styles and what browsers do not show (`noscript`, `template`, `iframe`, form fields) are left out. Words of
//! different blocks are kept apart, words with inline markup are kept together: `<b>w</b>ord` is one word.

use crate::html::{self, Piece};
use crate::limits::{TEXT_BYTES_MAX, TITLE_BYTES_MAX};

/// A page's text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text {
    /// The first title.
    pub title: String,
    /// The text, with single spaces.
    pub body: String,
    /// There is more text than was taken.
    pub cut: bool,
}

/// Reads a page.
#[must_use]
pub fn extract(html: &str) -> Text {
    let mut state = State::default();
    for piece in html::pieces(html) {
        match piece {
            Piece::Start(tag) => state.start(&tag.element),
            Piece::End(element) => state.end(&element),
            Piece::Text(text) => state.text(&text),
        }
    }
    Text { title: state.title.text, body: state.body.text, cut: state.cut }
}

#[derive(Debug, Default)]
struct State {
    title: Words,
    body: Words,
    inside: Inside,
    title_done: bool,
    /// Open elements of these kinds. A title in an SVG picture is not the page's.
    templates: usize,
    pictures: usize,
    cut: bool,
}

/// What the next text belongs to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Inside {
    #[default]
    Body,
    Title,
    /// An element whose content browsers do not show as text.
    Hidden,
}

/// Text with runs of white space collapsed.
#[derive(Debug, Default)]
struct Words {
    text: String,
    space: bool,
}

impl State {
    fn start(&mut self, element: &str) {
        self.body.space |= !is_inline(element);
        self.inside = match element {
            "title" if self.pictures == 0 => Inside::Title,
            "script" | "style" | "noscript" | "iframe" | "noembed" | "noframes" | "textarea" => Inside::Hidden,
            _ => Inside::Body,
        };
        self.templates += usize::from(element == "template");
        self.pictures += usize::from(element == "svg");
    }

    fn end(&mut self, element: &str) {
        self.body.space |= !is_inline(element);
        self.title_done |= element == "title" && self.pictures == 0;
        self.inside = Inside::Body;
        self.templates = self.templates.saturating_sub(usize::from(element == "template"));
        self.pictures = self.pictures.saturating_sub(usize::from(element == "svg"));
    }

    fn text(&mut self, text: &str) {
        let whole = match self.inside {
            Inside::Title if !self.title_done => self.title.push(text, TITLE_BYTES_MAX),
            Inside::Body if self.templates == 0 => self.body.push(text, TEXT_BYTES_MAX),
            _ => true,
        };
        self.cut |= !whole;
    }
}

impl Words {
    /// Appends text; false if the limit is reached. A word is taken whole or not at all.
    fn push(&mut self, text: &str, bytes_max: usize) -> bool {
        let mut rest = text;
        while !rest.is_empty() {
            let trimmed = rest.trim_start();
            self.space |= trimmed.len() < rest.len();
            let word = trimmed.split(char::is_whitespace).next().unwrap_or_default();
            if word.is_empty() {
                break;
            }
            if self.text.len() + 1 + word.len() > bytes_max {
                return false;
            }
            if self.space && !self.text.is_empty() {
                self.text.push(' ');
            }
            self.space = false;
            self.text.push_str(word);
            rest = trimmed.get(word.len()..).unwrap_or_default();
        }
        true
    }
}

/// Elements that do not separate words.
fn is_inline(name: &str) -> bool {
    matches!(
        name,
        "a" | "abbr"
            | "acronym"
            | "b"
            | "bdi"
            | "bdo"
            | "big"
            | "cite"
            | "code"
            | "data"
            | "dfn"
            | "del"
            | "em"
            | "font"
            | "i"
            | "ins"
            | "kbd"
            | "mark"
            | "nobr"
            | "q"
            | "s"
            | "samp"
            | "small"
            | "span"
            | "strike"
            | "strong"
            | "sub"
            | "sup"
            | "time"
            | "tt"
            | "u"
            | "var"
            | "wbr"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(html: &str, title: &str, body: &str) {
        let text = extract(html);
        assert_eq!((text.title.as_str(), text.body.as_str()), (title, body), "{html}");
    }

    #[test]
    fn title_and_text_are_taken_and_what_is_not_shown_is_left_out() {
        check(
            "<!doctype html><html><head><title> A &amp; B\n</title><style>p { color: red }</style>
             <script>if (a < b) alert('<p>no</p>')</script></head><body><!-- no --><h1>Head</h1><p>One
             <noscript>no</noscript><template>no<p>no</p></template>two</p><textarea>no</textarea><iframe>no</iframe></body>",
            "A & B",
            "Head One two",
        );
    }

    #[test]
    fn blocks_part_words_and_inline_markup_does_not() {
        check("<p>one</p><p>two</p>three<br>four<td>five<td>six", "", "one two three four five six");
        check("<b>w</b>ord <i>in</i>line<span>s</span> x<sub>2</sub>", "", "word inlines x2");
    }

    #[test]
    fn references_are_decoded_and_text_that_looks_like_markup_stays_text() {
        check("caf&eacute; &lt;b&gt; &#x20AC;&#49; &copy 5 &nosuch; &amp;lt;", "", "café <b> €1 © 5 &nosuch; &lt;");
    }

    #[test]
    fn only_the_pages_first_title_counts() {
        check("<title>one</title><title>two</title><svg><title>three</title></svg>", "one", "three");
        check("<svg><title>icon</title></svg><title>page</title>", "page", "icon");
        check("<title></title><p>x", "", "x");
    }

    #[test]
    fn long_text_is_cut_between_words() {
        let text = extract(&format!("<title>{}</title>{}", "t ".repeat(2_000), "word ".repeat(300_000)));
        assert!(text.cut && text.title.len() <= TITLE_BYTES_MAX && text.body.len() <= TEXT_BYTES_MAX);
        assert!(text.body.ends_with(" word"));
        assert!(!extract("short").cut);
    }

    #[test]
    fn hostile_nesting_is_read_without_recursion() {
        check(&format!("first {} last", "<div>".repeat(300_000)), "", "first last");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read(html in r"(<|>|/|p|title|b|template|&amp;|&|;| |[^p]){0,80}") {
            let text = extract(&html);
            proptest::prop_assert!(!text.body.contains("  ") && text.body.trim() == text.body);
        }
    }
}
