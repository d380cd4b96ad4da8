//! The few protocol messages of the load, encoded and decoded by hand.

/// Tags of length-delimited fields, by field number.
const FIELD_1: u8 = 0x0a;
const FIELD_2: u8 = 0x12;
const FIELD_3: u8 = 0x1a;
const FIELD_4: u8 = 0x22;
/// The status of an AckMessage.
const STATUS: u8 = 0x10;
/// AckMessage.Status.FAIL.
const FAIL: u8 = 2;

fn number(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn field(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    number(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// URLInfo.
pub fn info(out: &mut Vec<u8>, url: &[u8], key: &[u8], crawl: &[u8]) {
    field(out, FIELD_1, url);
    field(out, FIELD_2, key);
    field(out, FIELD_4, crawl);
}

fn item(out: &mut Vec<u8>, kind: u8, info: &[u8], id: &[u8]) {
    out.push(kind);
    let mut head = Vec::with_capacity(6);
    head.push(FIELD_1);
    number(&mut head, info.len());
    number(out, head.len() + info.len());
    out.extend_from_slice(&head);
    out.extend_from_slice(info);
    if !id.is_empty() {
        field(out, FIELD_3, id);
    }
}

/// URLItem, discovered.
pub fn discovered(out: &mut Vec<u8>, info: &[u8], id: &[u8]) {
    item(out, FIELD_1, info, id);
}

/// URLItem, known, never to be visited again.
pub fn completed(out: &mut Vec<u8>, info: &[u8]) {
    item(out, FIELD_2, info, b"");
}

/// The ID of a DiscoveredBatch.
pub fn batch_id(out: &mut Vec<u8>, id: &[u8]) {
    field(out, FIELD_1, id);
}

/// One more URLInfo of a DiscoveredBatch.
pub fn batch_item(out: &mut Vec<u8>, info: &[u8]) {
    field(out, FIELD_2, info);
}

/// A decoded AckMessage or BatchAck.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The ID.
    pub id: &'a [u8],
    /// The number of statuses of a batch; `None` for a single item.
    pub statuses: Option<usize>,
    /// The number of FAIL statuses.
    pub failed: usize,
}

/// Decodes an acknowledgement; unknown parts are ignored.
pub fn ack(mut bytes: &[u8]) -> Ack<'_> {
    let mut ack = Ack::default();
    while let Some((tag, rest)) = bytes.split_first() {
        let Some((value, rest)) = read_number(rest) else { break };
        if *tag == STATUS {
            ack.failed += usize::from(value == usize::from(FAIL));
            bytes = rest;
            continue;
        }
        let Some((text, rest)) = rest.split_at_checked(value) else { break };
        match *tag {
            FIELD_1 => ack.id = text,
            FIELD_2 => {
                ack.statuses = Some(text.len());
                ack.failed += text.iter().filter(|status| **status == FAIL).count();
            }
            _ => {}
        }
        bytes = rest;
    }
    ack
}

fn read_number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0usize;
    for (at, byte) in bytes.iter().enumerate().take(5) {
        value |= usize::from(byte & 0x7f) << (7 * at);
        if *byte < 0x80 {
            return Some((value, bytes.get(at + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use wayleave_api::urlfrontier::{self as real, url_item};

    use super::*;

    fn real_info(url: &str) -> real::UrlInfo {
        real::UrlInfo { url: url.into(), key: "k".into(), crawl_id: "c".into(), ..Default::default() }
    }

    #[test]
    fn messages_are_those_of_the_protocol() {
        let url = format!("https://h/{}", "p".repeat(200));
        let mut bytes = Vec::new();
        info(&mut bytes, url.as_bytes(), b"k", b"c");
        assert_eq!(real::UrlInfo::decode(bytes.as_slice()), Ok(real_info(&url)));
        let mut new = Vec::new();
        discovered(&mut new, &bytes, b"id");
        let item = url_item::Item::Discovered(real::DiscoveredUrlItem { info: Some(real_info(&url)) });
        let want = real::UrlItem { id: "id".into(), creation_date: 0, item: Some(item) };
        assert_eq!(real::UrlItem::decode(new.as_slice()), Ok(want));
        let mut done = Vec::new();
        completed(&mut done, &bytes);
        let item = url_item::Item::Known(real::KnownUrlItem { info: Some(real_info(&url)), refetchable_from_date: 0 });
        let want = real::UrlItem { id: String::new(), creation_date: 0, item: Some(item) };
        assert_eq!(real::UrlItem::decode(done.as_slice()), Ok(want));
        let mut batch = Vec::new();
        batch_id(&mut batch, b"b");
        batch_item(&mut batch, &bytes);
        let want = real::DiscoveredBatch { id: "b".into(), items: vec![real_info(&url)] };
        assert_eq!(real::DiscoveredBatch::decode(batch.as_slice()), Ok(want));
    }

    #[test]
    fn acknowledgements_are_read() {
        let single = real::AckMessage { id: "x".into(), status: 2 }.encode_to_vec();
        assert_eq!(ack(&single), Ack { id: b"x", statuses: None, failed: 1 });
        let fine = real::AckMessage { id: "y".repeat(300), status: 0 }.encode_to_vec();
        assert_eq!(ack(&fine).failed, 0);
        assert_eq!(ack(&fine).id.len(), 300);
        let batch = real::BatchAck { id: "b".into(), statuses: vec![0, 1, 2, 2, 0] }.encode_to_vec();
        assert_eq!(ack(&batch), Ack { id: b"b", statuses: Some(5), failed: 2 });
    }
}
