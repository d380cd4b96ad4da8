//! Speaks: the types that cross the wire and the public error codes. Nothing here decides, stores or listens.

pub mod urlfrontier;
