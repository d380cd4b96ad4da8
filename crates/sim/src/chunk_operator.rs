//! The operator of chunks: skips some, even claimed ones, and has others tried again; at the end all that have not
//! been built.

use std::rc::Rc;

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::pipeline::request::OperatorAction;
use wayleave_core::pipeline::row::ChunkState;
use wayleave_core::pipeline::view::{ChunkFilter, ChunkView};
use wayleave_shard::pipeline::Pipeline;

use crate::chance::Chance;
use crate::run::{fail, verdict};
use crate::world::{World, pass};

/// Chunks on a page.
const PAGE: usize = 50;

/// Skips chunks and has others tried again, until the calm phase.
pub async fn chunk_operator(world: Rc<World>, name: u64) {
    let chance = Chance::new(world.seed, name);
    while !world.calm.get() {
        pass(100 + chance.below(1_500)).await;
        // Mostly a chunk to which the action fits.
        let (action, state) = match chance.below(11) {
            0 => (OperatorAction::Skip, Some(ChunkState::Crawling)),
            1 => (OperatorAction::Skip, Some(ChunkState::Crawled)),
            2 => (OperatorAction::Skip, Some(ChunkState::Building)),
            3 => (OperatorAction::Skip, None),
            4 | 5 => (OperatorAction::Retry, Some(ChunkState::SetAside)),
            6 | 7 => (OperatorAction::Retry, Some(ChunkState::Skipped)),
            8 => (OperatorAction::Retry, Some(ChunkState::Built)),
            9 => (OperatorAction::Skip, Some(ChunkState::Built)),
            _ => (OperatorAction::Retry, None),
        };
        let filter = ChunkFilter { state, ..ChunkFilter::default() };
        let Some(all) = list(&world, &filter).await else { continue };
        let at = chance.below(all.len() as u64) as usize;
        let Some(chunk) = all.into_iter().nth(at) else { continue };
        pass(chance.below(100)).await;
        decide(&world, &chunk, action).await;
    }
}

/// Has all chunks tried again that have ended without an index, once.
pub async fn retry_all(world: &World) {
    for state in [ChunkState::SetAside, ChunkState::Skipped] {
        let filter = ChunkFilter { state: Some(state), ..ChunkFilter::default() };
        for chunk in list(world, &filter).await.unwrap_or_default() {
            decide(world, &chunk, OperatorAction::Retry).await;
        }
    }
}

/// All chunks in a state; `None` if they cannot be listed.
async fn list(world: &World, filter: &ChunkFilter) -> Option<Vec<ChunkView>> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let call = async |frontier| Pipeline::new(frontier).chunks(filter.clone(), after, PAGE).await;
        let answer = world.ask(call).await;
        world.check("a list of chunks", &answer);
        let (page, next, _) = answer.ok()?;
        if let Some(chunk) = page.iter().find(|chunk| chunk.reason.is_empty()) {
            fail(world, &format!("law 10: chunk {} is {:?} without a reason", chunk.id, chunk.state));
        }
        all.extend(page);
        after = next;
        if after.is_none() {
            return Some(all);
        }
    }
}

async fn decide(world: &World, chunk: &ChunkView, action: OperatorAction) {
    let id = chunk.id;
    let number = world.oracle.borrow_mut().chunks.deciding(id, action, world.clock.elapsed());
    let answer = world.ask(async |frontier| Pipeline::new(frontier).decide(id, action).await).await;
    world.log("operator", &format!("{action:?} {id}, which was {}: {answer:?}", chunk.state.name()));
    match answer {
        Ok(state) => {
            let judged = world.oracle.borrow_mut().chunks.decided(id, number, state, world.clock.elapsed());
            verdict(world, judged);
            count(world, chunk, action);
        }
        Err(Refusal::OutcomeUnknown(_) | Refusal::Internal(_) | Refusal::Corrupt(_)) => {}
        Err(refusal) => {
            world.oracle.borrow_mut().chunks.not_decided(id, number);
            if !matches!(refusal, Refusal::Chunk(_)) {
                world.check::<()>("a decision about a chunk", &Err(refusal));
            }
        }
    }
}

/// Counts a decision by the state that the chunk was last seen in.
fn count(world: &World, chunk: &ChunkView, action: OperatorAction) {
    let calls = &mut world.oracle.borrow_mut().chunks.calls;
    let [held, waiting, aside, unwanted] = &mut calls.skipped;
    let [again, aside_again, built] = &mut calls.retried;
    let counter = match (action, chunk.state) {
        (OperatorAction::Skip, ChunkState::SetAside) => aside,
        (OperatorAction::Skip, ChunkState::Built) => unwanted,
        (OperatorAction::Skip, ChunkState::Crawling | ChunkState::Crawled | ChunkState::Building) => {
            if chunk.worker.is_some() { held } else { waiting }
        }
        (OperatorAction::Retry, ChunkState::Skipped) => again,
        (OperatorAction::Retry, ChunkState::SetAside) => aside_again,
        (OperatorAction::Retry, ChunkState::Built) => built,
        _ => return,
    };
    *counter += 1;
}
