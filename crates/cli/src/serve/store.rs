//! The store of a server: opened by its settings, and presented to the server with its health and snapshots.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use futures::FutureExt;
use futures::future::BoxFuture;
use wayleave_api::{Code, Problem};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_engine::clock::SystemClock;
use wayleave_engine::memory::Memory;
use wayleave_engine::{Engine, Error};
use wayleave_engine_fjall::{Fjall, Options};
use wayleave_engine_postgres::Postgres;
use wayleave_server::Health;
use wayleave_server::store::WriteSnapshot;

use super::settings::{EngineKind, Settings};
use crate::copier::{Damage, DatabaseSource, write_snapshot};

/// An engine and its properties.
pub struct Store {
    pub engine: Arc<dyn Engine>,
    pub shards: u16,
    /// Where it stores its rows, for people.
    pub place: String,
    /// Whether several processes may share it.
    pub shared: bool,
    /// Where it is, if it was made from another store and is not settled there yet.
    pub copied: Option<Copied>,
    /// The same store as the server sees it.
    pub outside: Arc<dyn wayleave_server::Store>,
}

/// A store that was made from another one: by a copy, a restore or a salvage, or by the database's own tools.
#[derive(Clone, Debug)]
pub enum Copied {
    Folder(PathBuf),
    Database(String),
}

impl Copied {
    /// The store counts as its own from the next start on.
    pub async fn settle(&self) {
        let settled = match self {
            Self::Folder(path) => wayleave_engine_fjall::settle(path).map_err(anyhow::Error::from),
            Self::Database(url) => wayleave_engine_postgres::settle(url).await.map_err(anyhow::Error::from),
        };
        if let Err(why) = settled {
            tracing::warn!(%why, "cannot note that this store was made from another one: the next start pauses its pools again");
        }
    }
}

impl Store {
    /// Opens the store; an embedded one keeps at most `files_max` table files open.
    pub async fn open(settings: &Settings, files_max: usize) -> anyhow::Result<Self> {
        match &settings.engine {
            EngineKind::Memory => {
                let (engine, place) = (Arc::new(Memory::new(SystemClock::new())), "memory, lost at the end".to_owned());
                let why = "an engine in memory has no snapshots: use `wayleave export`";
                let outside = Arc::new(NoSnapshots { kind: "memory, which is lost at its end", why });
                Ok(Self { engine, shards: settings.shards, place, shared: false, copied: None, outside })
            }
            EngineKind::Fjall => {
                // It may take long, and the runtime must hear signals meanwhile.
                let settings = settings.clone();
                let open = move || Self::open_folder(&settings.data, &settings, files_max);
                tokio::task::spawn_blocking(open).await.context("the store's thread broke")?
            }
            EngineKind::Postgres(url) => Self::open_database(url, settings).await,
        }
    }

    async fn open_database(url: &str, settings: &Settings) -> anyhow::Result<Self> {
        let options = wayleave_engine_postgres::Options {
            shards: settings.shards,
            ..wayleave_engine_postgres::Options::default()
        };
        let engine = Postgres::open(url, options).await?;
        engine.durability().warnings().into_iter().for_each(|warning| tracing::warn!("{warning}"));
        let shards = engine.shards();
        if settings.shards_asked && shards != settings.shards {
            tracing::warn!(
                shards.kept = shards,
                shards.asked = settings.shards,
                "the number of shards is fixed when a store is created; to change it, export and import into a new database"
            );
        }
        let copied = engine.is_elsewhere().then(|| Copied::Database(url.to_owned()));
        let outside = Arc::new(Database(url.to_owned()));
        Ok(Self { engine: Arc::new(engine), shards, place: "PostgreSQL".to_owned(), shared: true, copied, outside })
    }

    fn open_folder(path: &Path, settings: &Settings, files_max: usize) -> anyhow::Result<Self> {
        let options = Options {
            shards: settings.shards,
            cache_bytes: settings.cache_mb << 20,
            memtable_bytes: usize::try_from(settings.memtable_mb << 20).unwrap_or(usize::MAX),
            files_max,
            repair: settings.repair,
        };
        let engine = Arc::new(Fjall::open(path, options)?);
        let shards = engine.shards();
        if settings.shards_asked && shards != settings.shards {
            tracing::warn!(
                data.path = %path.display(), shards.kept = shards, shards.asked = settings.shards,
                "the number of shards is fixed when a folder is created; to change it, export and import into a new folder"
            );
        }
        let place = std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
        let outside = Arc::new(Embedded(engine.clone()));
        let copied = wayleave_engine_fjall::is_copied(path)?.then(|| Copied::Folder(path.to_owned()));
        Ok(Self { engine, shards, place, shared: false, copied, outside })
    }
}

/// A store in a folder of this process.
struct Embedded(Arc<Fjall>);

impl wayleave_server::Store for Embedded {
    fn kind(&self) -> &'static str {
        "an embedded store"
    }

    fn health(&self) -> Health {
        match self.0.health() {
            wayleave_engine::Health::Ok => Health::Ok,
            wayleave_engine::Health::Impaired(reason) => Health::Impaired(reason),
            wayleave_engine::Health::Degraded(reason) => Health::Degraded(reason),
            wayleave_engine::Health::Failed(reason) => Health::Failed(reason),
        }
    }

    fn gauges(&self) -> Vec<(&'static str, &'static str, u64)> {
        let numbers = self.0.numbers();
        vec![
            ("wayleave_store_table_bytes", "Size of all tables of the embedded store.", numbers.table_bytes),
            ("wayleave_store_tables_unmerged", "Tables that wait to be merged.", numbers.tables_unmerged),
            ("wayleave_store_tombstones", "Deleted rows that are still in tables.", numbers.tombstones),
            ("wayleave_store_journal_bytes", "Size of the journal that the next start replays.", numbers.journal_bytes),
            ("wayleave_store_damaged_files", "Files that are known to be damaged.", numbers.damaged_files),
            (
                "wayleave_store_merging_paused",
                "1 while merging of tables pauses, for want of room or because of damage.",
                numbers.merging_paused,
            ),
            (
                "wayleave_store_refuses_urls",
                "1 while new URLs are refused, because the disk is filling up.",
                numbers.refuses_urls,
            ),
        ]
    }

    fn snapshot(&self, partial: bool) -> BoxFuture<'static, Result<WriteSnapshot, Problem>> {
        let taken = self.0.snapshot();
        async move {
            let mut snapshot = taken.await.map_err(|error| match error {
                Error::Unavailable(why) => Problem::from(Refusal::Unavailable(why)),
                other => Problem::new(Code::Unavailable, other),
            })?;
            let write: WriteSnapshot =
                Box::new(move |out: &mut dyn Write| write_snapshot(&mut snapshot, out, damage(partial)).map(drop));
            Ok(write)
        }
        .boxed()
    }
}

const fn damage(partial: bool) -> Damage {
    if partial { Damage::Skipped } else { Damage::Refused }
}

/// A store in a database, by its URL. Its health shows in its shards.
struct Database(String);

impl wayleave_server::Store for Database {
    fn kind(&self) -> &'static str {
        "PostgreSQL"
    }

    fn health(&self) -> Health {
        Health::Ok
    }

    fn snapshot(&self, partial: bool) -> BoxFuture<'static, Result<WriteSnapshot, Problem>> {
        let url = self.0.clone();
        async move {
            let source = DatabaseSource::begin(&url).await;
            let mut source = source.map_err(|error| Problem::new(Code::Unavailable, format!("{error:#}")))?;
            let write: WriteSnapshot =
                Box::new(move |out: &mut dyn Write| write_snapshot(&mut source, out, damage(partial)).map(drop));
            Ok(write)
        }
        .boxed()
    }
}

/// A store without snapshots. Its health shows in its shards.
struct NoSnapshots {
    kind: &'static str,
    why: &'static str,
}

impl wayleave_server::Store for NoSnapshots {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn health(&self) -> Health {
        Health::Ok
    }

    fn snapshot(&self, _partial: bool) -> BoxFuture<'static, Result<WriteSnapshot, Problem>> {
        std::future::ready(Err(Problem::new(Code::NotSupported, self.why))).boxed()
    }
}
