//! The web of the documents: a proxy that answers for every site. Each has a start page with two links, one of which is
//! broken, and no robots.txt.

use std::net::TcpListener;

use crate::prelude::*;

/// Starts it and returns its port.
pub fn start() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream));
        }
    });
    port
}

/// Answers one request. Clients that disconnect are ignored.
fn answer(mut stream: TcpStream) {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let Some(url) = head.first().and_then(|line| line.split(' ').nth(1)) else { return };
    let path = url.split_once("://").map_or(url, |(_, rest)| rest.find('/').map_or("/", |at| &rest[at..]));
    let (status, body) = match path {
        "/robots.txt" | "/b" => ("404 Not Found", ""),
        "/" => ("200 OK", "<a href=\"/a\">a</a> <a href=\"/b\">b</a>"),
        _ => ("200 OK", "a page"),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {}\r\n", body.len());
    _ = stream.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes());
}
