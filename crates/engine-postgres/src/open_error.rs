//! Why a database cannot be opened as a store, and the remedy.

use wayleave_engine::format::VERSION;

use crate::target::Target;
use crate::trouble::{Trouble, words};

/// Why a database cannot be opened as a store. Every message names the cause and the remedy; none contains a password.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum OpenError {
    #[error("the database's URL cannot be used: {0}; write postgres://USER:PASSWORD@HOST:PORT/DATABASE")]
    Url(String),
    #[error("cannot reach the database at {place}: {why}; start it, or correct the URL")]
    Unreachable { place: String, why: String },
    #[error(
        "the database at {place} does not let user {user} in ({why}): correct user and password in the URL, or make the \
         user with `createuser --pwprompt {user}` as the database's superuser"
    )]
    Login { place: String, user: String, why: String },
    #[error(
        "there is no user {user} at {place}: create it with `createuser --pwprompt {user}` as the database's superuser, or \
         correct the URL"
    )]
    NoUser { place: String, user: String },
    #[error("the database at {place} refuses this kind of connection ({why}): {remedy}")]
    Tls {
        place: String,
        why: String,
        /// What to write in the URL.
        remedy: &'static str,
    },
    #[error(
        "there is no database {name} at {place}: create it with `createdb --owner {user} {name}` as the database's superuser, \
         or correct the URL"
    )]
    NoDatabase {
        place: String,
        name: String,
        /// The user that should own it.
        user: String,
    },
    #[error("the database at {place} accepts no writes (a standby): name the primary, or all hosts, in the URL")]
    ReadOnly { place: String },
    #[error("the database at {place} runs version {found}: use PostgreSQL {least} or newer")]
    TooOld { place: String, found: String, least: u32 },
    #[error("user {user} may not create tables at {place} ({why}): `GRANT CREATE, USAGE ON SCHEMA public TO {user}`")]
    Denied { place: String, user: String, why: String },
    #[error(
        "the store at {place} has format {found}, this program reads formats up to {VERSION}: use a newer wayleave"
    )]
    Newer { place: String, found: u32 },
    #[error("the store at {place} is damaged ({what}): restore it from a backup")]
    Damaged { place: String, what: String },
    #[error(
        "the store at {place} is incomplete, because a copy into it was interrupted: run the same command again, or drop the \
         tables wayleave_rows, wayleave_fences, wayleave_format and wayleave_loading"
    )]
    Unfinished { place: String },
    #[error("another copy into the database at {place} was begun, and this one was given up: wait for the other one")]
    Superseded { place: String },
    #[error("the database at {place} has a store already: name a database without one")]
    NotEmpty { place: String },
    #[error("the database at {place} has no store: correct the URL")]
    NoStore { place: String },
    #[error("{0}")]
    Options(String),
    #[error("cannot open the store at {place}: {why}")]
    Other { place: String, why: String },
}

const WANTS_TLS: &str = "it lets this user in over TLS only; add ?sslmode=verify-full&sslrootcert=/path/ca.pem to the URL (or \
                         sslmode=require, which does not check whose server it is)";
const HAS_NO_TLS: &str = "it has no TLS; switch it on there (ssl = on), or take sslmode out of the URL where the network is \
                          one you trust";

impl OpenError {
    /// Classifies a failure to connect to a database.
    pub(crate) fn sort(target: &Target, trouble: &Trouble) -> Self {
        let (place, user, why) = (target.to_string(), target.user().to_owned(), trouble.words());
        let Trouble::Said(error) = trouble else { return Self::Unreachable { place, why } };
        match error.code().map(tokio_postgres::error::SqlState::code) {
            // "no pg_hba.conf entry for host …, no encryption"; until version 13 "SSL off".
            Some("28000") if why.contains("no encryption") || why.contains("SSL off") => {
                Self::Tls { place, why, remedy: WANTS_TLS }
            }
            Some("28000") if why.contains("does not exist") => Self::NoUser { place, user },
            Some("28P01" | "28000") => Self::Login { place, user, why },
            Some("3D000") => Self::NoDatabase { place, name: target.database().to_owned(), user },
            Some("42501") => Self::Denied { place, user, why },
            Some("25006") => Self::ReadOnly { place },
            Some(_) => Self::Other { place, why },
            None if is_read_only(error) => Self::ReadOnly { place },
            None if why.contains("does not support TLS") => Self::Tls { place, why, remedy: HAS_NO_TLS },
            // The client library's text for a password that is missing or of an unsupported kind.
            None if error.to_string().contains("authentication") || why.contains("password missing") => {
                Self::Login { place, user, why: words(error) }
            }
            None => Self::Unreachable { place, why },
        }
    }
}

/// The client library reports this as an I/O error.
fn is_read_only(error: &tokio_postgres::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|io| io.kind() == std::io::ErrorKind::PermissionDenied && io.to_string().contains("writes"))
}
