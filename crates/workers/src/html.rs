//! Reads a page as a stream of tags and text: no tree, no recursion, memory for one tag at a time.
//!
//! The tokenizer is html5gum (MIT, no dependencies): it follows the HTML standard, character references included, and
//! the link checker lychee uses it. lol_html and scraper bring crates under the MPL, which the project does not
//! accept. html5ever compares all attributes of a tag with each other, which is quadratic in a number that a hostile
//! page chooses. Only the attributes that the workers need are kept.

use html5gum::emitters::callback::{Callback, CallbackEmitter, CallbackEvent};
use html5gum::{Span, Tokenizer};

/// A part of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Start(Tag),
    /// The name of an end tag.
    End(String),
    /// All text up to the next tag or comment.
    Text(String),
}

/// A start tag. Names are in lower case; references in values are decoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tag {
    pub element: String,
    pub href: Option<String>,
    pub rel: Option<String>,
    pub name: Option<String>,
    pub content: Option<String>,
}

/// The parts of a page, in order.
pub(crate) fn pieces(html: &str) -> impl Iterator<Item = Piece> {
    let mut emitter = CallbackEmitter::new(Reader::default());
    // Scripts, styles and titles have no tags in them.
    emitter.naively_switch_states(true);
    Tokenizer::new_with_emitter(html, emitter).map(|piece| match piece {
        Ok(piece) => piece,
        Err(never) => match never {},
    })
}

#[derive(Debug, Default)]
struct Reader {
    tag: Tag,
    attribute: Option<Attribute>,
}

#[derive(Debug, Clone, Copy)]
enum Attribute {
    Href,
    Rel,
    Name,
    Content,
}

impl Tag {
    fn slot(&mut self, attribute: Attribute) -> &mut Option<String> {
        match attribute {
            Attribute::Href => &mut self.href,
            Attribute::Rel => &mut self.rel,
            Attribute::Name => &mut self.name,
            Attribute::Content => &mut self.content,
        }
    }
}

impl Callback<Piece, ()> for Reader {
    fn handle_event(&mut self, event: CallbackEvent<'_>, _: Span<()>) -> Option<Piece> {
        match event {
            CallbackEvent::OpenStartTag { name } => {
                self.tag = Tag { element: text(name), ..Tag::default() };
                self.attribute = None;
            }
            CallbackEvent::AttributeName { name } => {
                let attribute = match name {
                    b"href" => Some(Attribute::Href),
                    b"rel" => Some(Attribute::Rel),
                    b"name" => Some(Attribute::Name),
                    b"content" => Some(Attribute::Content),
                    _ => None,
                };
                // The first of several attributes of one name counts.
                self.attribute = attribute.filter(|attribute| self.tag.slot(*attribute).is_none());
                if let Some(attribute) = self.attribute {
                    *self.tag.slot(attribute) = Some(String::new());
                }
            }
            CallbackEvent::AttributeValue { value } => {
                if let Some(attribute) = self.attribute.take() {
                    *self.tag.slot(attribute) = Some(text(value));
                }
            }
            CallbackEvent::CloseStartTag { .. } => return Some(Piece::Start(std::mem::take(&mut self.tag))),
            CallbackEvent::EndTag { name } => {
                self.tag = Tag::default();
                return Some(Piece::End(text(name)));
            }
            CallbackEvent::String { value } => return Some(Piece::Text(text(value))),
            CallbackEvent::Comment { .. } | CallbackEvent::Doctype { .. } | CallbackEvent::Error(_) => {}
        }
        None
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
