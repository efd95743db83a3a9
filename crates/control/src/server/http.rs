//! As much of HTTP as a scraper of metrics needs:
//! `curl --unix-socket SOCKET http://localhost/metrics`.

use std::io;
use std::os::unix::net::UnixStream;

use crate::admin::Admin;
use crate::messages::AdminError;
use crate::socket;

/// Prometheus's text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN_TYPE: &str = "text/plain; charset=utf-8";

/// Whether a request that begins with `start` is an HTTP request.
pub(super) fn is_request(start: &[u8]) -> bool {
    start.starts_with(b"GET ") || start.starts_with(b"HEAD ")
}

/// Answers the request whose head, up to the empty line, is `head`. After what [`is_request`] has
/// checked, the head may hold any bytes.
pub(super) fn answer(stream: &UnixStream, head: &[u8], admin: &dyn Admin) -> io::Result<()> {
    socket::write_all(stream, &reply(head, admin))
}

/// Where the head of a request ends. The bytes before `from` have been searched already.
pub(super) fn head_end(bytes: &[u8], from: usize) -> Option<usize> {
    // The end may begin in what was searched before.
    let from = from.saturating_sub(3);
    let is_end = |rest: &[u8]| rest.starts_with(b"\n\r\n") || rest.starts_with(b"\n\n");
    (from..bytes.len()).find(|&at| is_end(&bytes[at..]))
}

/// The reply to a request that is no HTTP request.
pub(super) fn refusal() -> Vec<u8> {
    message("400 Bad Request", PLAIN_TYPE, "ask with GET /metrics\n", true).into_bytes()
}

/// The reply to the request with this head.
pub(super) fn reply(head: &[u8], admin: &dyn Admin) -> Vec<u8> {
    let line = head.split(|&byte| byte == b'\r' || byte == b'\n').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let is_head = words.next() == Some(b"HEAD");
    let path = words.next().unwrap_or_default();
    let (status, content_type, body) = match path {
        b"/metrics" => match admin.metrics() {
            Ok(metrics) => ("200 OK", METRICS_TYPE, metrics),
            Err(AdminError(why)) => ("503 Service Unavailable", PLAIN_TYPE, why + "\n"),
        },
        _ => ("404 Not Found", PLAIN_TYPE, "there is /metrics, and nothing else\n".to_owned()),
    };
    message(status, content_type, &body, !is_head).into_bytes()
}

fn message(status: &str, content_type: &str, body: &str, with_body: bool) -> String {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    if with_body { head + body } else { head }
}
