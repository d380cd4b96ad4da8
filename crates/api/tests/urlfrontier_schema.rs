//! The schema is an interface: names, numbers and types must stay as existing crawlers have them.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may panic")]

use prost::Message;
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};
use wayleave_api::urlfrontier::{self as wire, ack_message, url_item};

fn schema() -> FileDescriptorProto {
    let set = FileDescriptorSet::decode(wire::DESCRIPTORS).expect("descriptors can be read");
    set.file.into_iter().find(|file| file.package() == "urlfrontier").expect("the file is there")
}

fn fields(message: &DescriptorProto) -> String {
    let name = |kind: Type, of: &str| match kind {
        Type::Uint64 => "uint64".to_owned(),
        Type::Uint32 => "uint32".to_owned(),
        Type::String => "string".to_owned(),
        Type::Bool => "bool".to_owned(),
        _ => of.rsplit('.').next().unwrap_or_default().to_owned(),
    };
    let fields = message.field.iter();
    let texts = fields.map(|f| format!("{} {} = {}", name(f.r#type(), f.type_name()), f.name(), f.number()));
    texts.collect::<Vec<_>>().join("; ")
}

#[test]
fn every_method_takes_and_returns_what_crawlers_expect() {
    let schema = schema();
    let service = schema.service.first().expect("one service");
    assert_eq!(service.name(), "URLFrontier");
    let short = |name: &str, stream: bool| {
        format!("{}{}", if stream { "stream " } else { "" }, name.replace(".urlfrontier.", ""))
    };
    let methods: Vec<String> = service
        .method
        .iter()
        .map(|m| {
            let (takes, gives) =
                (short(m.input_type(), m.client_streaming()), short(m.output_type(), m.server_streaming()));
            format!("{}({takes}) -> {gives}", m.name())
        })
        .collect();
    assert_eq!(
        methods,
        [
            "ListNodes(Empty) -> StringList",
            "ListCrawls(Local) -> StringList",
            "DeleteCrawl(DeleteCrawlMessage) -> Long",
            "ListQueues(Pagination) -> QueueList",
            "GetURLs(GetParams) -> stream URLInfo",
            "PutURLs(stream URLItem) -> stream AckMessage",
            "PutDiscovered(stream DiscoveredBatch) -> stream BatchAck",
            "GetStats(QueueWithinCrawlParams) -> Stats",
            "DeleteQueue(QueueWithinCrawlParams) -> Long",
            "BlockQueueUntil(BlockQueueParams) -> Empty",
            "SetActive(Active) -> Empty",
            "GetActive(Local) -> Boolean",
            "SetDelay(QueueDelayParams) -> Empty",
            "SetLogLevel(LogLevelParams) -> Empty",
            "SetCrawlLimit(CrawlLimitParams) -> Empty",
            "GetURLStatus(URLStatusRequest) -> URLItem",
            "ListURLs(ListUrlParams) -> stream URLItem",
            "CountURLs(CountUrlParams) -> Long",
            "PurgeURLs(PurgeUrlParams) -> Long",
        ]
    );
}

#[test]
fn every_message_has_the_fields_that_crawlers_expect() {
    let want = [
        (
            "Stats",
            "uint64 size = 1; uint32 inProcess = 2; CountsEntry counts = 3; uint64 numberOfQueues = 4; string crawlID = 5",
        ),
        (
            "Pagination",
            "uint32 start = 1; uint32 size = 2; bool include_inactive = 3; string crawlID = 4; bool local = 5",
        ),
        ("DeleteCrawlMessage", "string value = 1; bool local = 2"),
        ("Empty", ""),
        ("Local", "bool local = 1"),
        ("Active", "bool state = 1; bool local = 2"),
        ("Boolean", "bool state = 1"),
        ("Long", "uint64 value = 1"),
        ("QueueList", "string values = 1; uint64 total = 2; uint32 start = 3; uint32 size = 4; string crawlID = 5"),
        ("StringList", "string values = 1"),
        ("QueueWithinCrawlParams", "string key = 1; string crawlID = 2; bool local = 3"),
        ("QueueDelayParams", "string key = 1; uint32 delay_requestable = 2; string crawlID = 3; bool local = 4"),
        ("BlockQueueParams", "string key = 1; uint64 time = 2; string crawlID = 3; bool local = 4"),
        (
            "GetParams",
            "uint32 max_urls_per_queue = 1; uint32 max_queues = 2; string key = 3; uint32 delay_requestable = 4; \
             AnyCrawlID anyCrawlID = 5; string crawlID = 6",
        ),
        ("AnyCrawlID", ""),
        (
            "URLItem",
            "DiscoveredURLItem discovered = 1; KnownURLItem known = 2; string ID = 3; uint64 creation_date = 4",
        ),
        ("AckMessage", "string ID = 1; Status status = 2"),
        ("URLInfo", "string url = 1; string key = 2; MetadataEntry metadata = 3; string crawlID = 4"),
        ("KnownURLItem", "URLInfo info = 1; uint64 refetchable_from_date = 2"),
        ("DiscoveredURLItem", "URLInfo info = 1"),
        ("DiscoveredBatch", "string ID = 1; URLInfo items = 2"),
        ("BatchAck", "string ID = 1; Status statuses = 2"),
        ("LogLevelParams", "string package = 1; Level level = 2; bool local = 3"),
        ("CrawlLimitParams", "string key = 1; uint32 limit = 2; string crawlID = 3; bool local = 4"),
        ("URLStatusRequest", "string url = 1; string key = 2; string crawlID = 3"),
        (
            "ListUrlParams",
            "uint32 start = 1; uint32 size = 2; string key = 3; string crawlID = 4; bool local = 5; string filter = 6; \
             bool ignoreCase = 7",
        ),
        (
            "CountUrlParams",
            "string key = 1; string crawlID = 2; string filter = 3; bool ignoreCase = 4; bool local = 5",
        ),
        ("PurgeUrlParams", "string key = 1; string crawlID = 2; uint32 days = 3"),
    ];
    let schema = schema();
    let found: Vec<(String, String)> = schema.message_type.iter().map(|m| (m.name().to_owned(), fields(m))).collect();
    let want: Vec<(String, String)> =
        want.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    assert_eq!(found, want);
}

#[test]
fn items_and_acks_have_the_bytes_of_the_protocol() {
    let info = wire::UrlInfo { url: "u".into(), key: "k".into(), ..Default::default() };
    let known = wire::KnownUrlItem { info: Some(info), refetchable_from_date: 300 };
    let item = wire::UrlItem { id: "x".into(), creation_date: 0, item: Some(url_item::Item::Known(known)) };
    assert_eq!(item.encode_to_vec(), b"\x12\x0b\x0a\x06\x0a\x01u\x12\x01k\x10\xac\x02\x1a\x01x");
    let ack = wire::AckMessage { id: "x".into(), status: ack_message::Status::Fail.into() };
    assert_eq!(ack.encode_to_vec(), b"\x0a\x01x\x10\x02");
}
