//! Several nodes over one store, in one process and in tokio's own time: real calls between them, and links that are cut.

mod late_sign;
mod stories;
mod support;
