//! What a decision costs, without any store: puts of new URLs, visits that hand out and complete one URL, and matches of
//! clients with warm workers.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use wayleave_core::frontier::State;
use wayleave_core::frontier::request::{Put, PutKind};
use wayleave_core::frontier::row::{UrlRow, Write};
use wayleave_core::frontier::visit::{ScannedUrl, Want};
use wayleave_core::ids::ShardId;
use wayleave_core::matches;
use wayleave_core::metadata::Metadata;
use wayleave_core::time::{Millis, Time};

const HOSTS: u64 = 10_000;
const NOW: Time = Time(1_800_000_000_000);

fn put(number: u64, kind: PutKind) -> Put {
    let host = number % HOSTS;
    Put {
        url: format!("https://h{host}.example/page/{number}").into(),
        host: format!("h{host}.example").into(),
        crawl: "DEFAULT".into(),
        kind,
        metadata: Metadata::default(),
    }
}

fn discovered(number: u64) -> Put {
    put(number, PutKind::Discovered { at: None, priority: 5, depth: 0 })
}

fn store(state: &mut State, put: Put, row: Option<UrlRow>, writes: &mut Vec<Write>) {
    let target = state.put_target(&put);
    state.put(put, target, row, NOW, writes);
}

/// A shard with one queued URL at each host.
fn filled() -> State {
    let mut state = State::new(ShardId(0));
    let mut writes = Vec::new();
    for number in 0..HOSTS {
        store(&mut state, discovered(number), None, &mut writes);
    }
    state.set_default_delay(Some(Millis(0)), NOW);
    state.take_changes();
    state
}

/// The front of a lane as a scan of the store would find it.
fn front(state: &State, host: &str, puts: &[Write]) -> Vec<ScannedUrl> {
    let queue = state.queue_id(host, "DEFAULT");
    let found = puts.iter().filter_map(|write| match write {
        Write::Due(id, position, key, Some(row)) if Some(*id) == queue => {
            Some(ScannedUrl { position: *position, key: key.clone(), row: row.clone() })
        }
        _ => None,
    });
    found.collect()
}

fn puts(c: &mut Criterion) {
    c.bench_function("put 1,000 new URLs", |b| {
        let batch = |state: &mut State| {
            let mut writes = Vec::with_capacity(2_000);
            for number in HOSTS..HOSTS + 1_000 {
                store(state, discovered(number), None, &mut writes);
            }
            (writes, state.take_changes())
        };
        b.iter_batched_ref(filled, batch, BatchSize::LargeInput);
    });
}

fn visits(c: &mut Criterion) {
    c.bench_function("plan and serve 100 visits", |b| {
        let mut state = State::new(ShardId(0));
        let mut writes = Vec::new();
        for number in 0..100 {
            store(&mut state, discovered(number), None, &mut writes);
        }
        let fronts: Vec<Vec<ScannedUrl>> = (0..100).map(|n| front(&state, &format!("h{n}.example"), &writes)).collect();
        let want = Want { crawl: None, urls: 1, held_below: Some(1), bare_hosts: false };
        let serve = |state: &mut State| {
            let visits = state.plan_visits(&want, 100, NOW);
            let mut writes = Vec::new();
            let serve = |(visit, front): (_, &Vec<ScannedUrl>)| {
                state.hand_out(visit, vec![front.clone()], (1, Millis(30_000)), NOW, &mut writes)
            };
            visits.iter().zip(&fronts).map(serve).map(|urls| urls.len()).sum::<usize>()
        };
        b.iter_batched_ref(filled, serve, BatchSize::LargeInput);
    });
}

/// A pool of warm workers with ten slots each, of which half are taken if they may be used only so often.
fn warm_pool(workers: u64, uses_max: Option<u64>) -> matches::State {
    use matches::{Asker, Effect, Input, Instance, PoolSpec, RuntimeKind, Verdict};
    let (count, command) = (Some(workers), vec!["worker".into()]);
    let spec = PoolSpec {
        command,
        slots: Some(10),
        min: count,
        max: count,
        makers_max: Some(1_000),
        uses_max,
        ..PoolSpec::default()
    };
    let Ok(settings) = spec.check() else { panic!("the settings are valid") };
    let mut state = matches::State::create(ShardId(0), "pool".into(), "bench".into(), settings, 1, NOW);
    let random: Vec<u128> = (0..200).collect();
    let mut inputs = vec![Input::SiteAlive { site: "site".into(), runtime: RuntimeKind::Process, lack: None }];
    while let Some(input) = inputs.pop() {
        for effect in state.apply(input, NOW, &random).effects {
            inputs.extend(match effect {
                Effect::Create(make) => {
                    let instance = Instance { id: "1".into(), started: 1, address: "127.0.0.1:80".into() };
                    Some(Input::Made { step: make.step, result: Ok(instance) })
                }
                Effect::Await(order) => Some(Input::Listening { step: order.step, result: Ok(()) }),
                _ => None,
            });
        }
    }
    assert_eq!(state.pool_view().free, workers * 10);
    for taken in 0..uses_max.map_or(0, |_| workers * 5) {
        let asker = Asker { client: format!("taken {taken}").into(), principal: None };
        let reserve = ask(state.apply(Input::Put(asker), NOW, &[(1 << 100) + (u128::from(taken) << 8), 1]).effects);
        state.apply(reserve.reserved(Verdict::Yes), NOW, &[]);
    }
    state
}

/// The call to a worker among the effects.
fn ask(effects: Vec<matches::Effect>) -> matches::WorkerAsk {
    use matches::Effect;
    let found = effects.into_iter().find_map(|effect| match effect {
        Effect::Reserve(ask) | Effect::Release(ask) => Some(ask),
        _ => None,
    });
    let Some(ask) = found else { panic!("a worker is asked") };
    ask
}

/// A client's whole life in a pool: it asks, a worker reserves, it leaves, the worker releases.
fn match_and_leave(state: &mut matches::State, number: u128) {
    use matches::{Asker, Input, Verdict};
    let asker = Asker { client: format!("client {number}").into(), principal: None };
    let random = [number << 8, number];
    let reserve = ask(state.apply(Input::Put(asker.clone()), NOW, &random).effects);
    state.apply(reserve.reserved(Verdict::Yes), NOW, &random);
    let release = ask(state.apply(Input::Cancel { asker, token: None }, NOW, &random).effects);
    state.apply(release.released(Verdict::Yes), NOW, &random);
}

fn matches_of_warm_workers(c: &mut Criterion) {
    let mut group = c.benchmark_group("match and release 100 clients");
    group.sample_size(10);
    let cases = [
        ("100 warm workers", 100, None),
        ("1,000 warm workers", 1_000, None),
        ("100 half full workers with uses_max", 100, Some(1 << 40)),
    ];
    for (name, workers, uses_max) in cases {
        group.bench_function(name, |b| {
            let (mut state, mut number) = (warm_pool(workers, uses_max), 0);
            b.iter(|| {
                for _ in 0..100 {
                    number += 1;
                    match_and_leave(&mut state, number);
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, puts, visits, matches_of_warm_workers);
criterion_main!(benches);
