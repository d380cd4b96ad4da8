//! Matches: transcripts, bad input, random histories with crashes, and an exhaustive model against the order of steps of
//! the design that this one replaces.

mod bad_input;
mod corners;
mod exhaustive;
mod failures;
mod history;
mod in_flight;
mod lost_orders;
mod many_sites;
mod ownership;
mod paused;
mod reasons;
mod replaced_order;
mod runtime;
mod setup;
mod shared_engine;
mod story;
mod unfinished;
mod views;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use wayleave_core::ids::{ShardId, Token};
use wayleave_core::limits::{ASK_TIME, WORKER_CALL_FAILURES_MAX};
use wayleave_core::matches::{
    Answer, Asker, Effect, Exit, Input, Instance, Lack, Make, MatchStage, MatchState, MatchWhy, Phase, PoolRow,
    PoolSpec, PoolWhy, Refusal, RuntimeKind, Secret, Setback, Settings, State, Verdict, WorkerAsk, WorkerFound,
    WorkerNo, Write,
};
use wayleave_core::names::{ClientName, SiteName};
use wayleave_core::time::{Millis, Time};

use self::runtime::{Call, Mood};
use self::setup::{exit, later, phases, report, set, take_asks, tick_at, verified, with, world};
use self::world::{World, asker, cancel, spec};
