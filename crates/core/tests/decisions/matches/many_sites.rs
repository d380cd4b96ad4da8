//! Sites whose names never come again, as those of machines that are replaced: what a pool notes of them is bounded.

use wayleave_core::limits::SITES_MAX;

use super::*;

const PER_WAVE: usize = 100;

/// Ticks until nothing more is to be done at this time; the pool's row, if it was written.
fn settle(state: &mut State, now: Time, random: &[u128], pool: &mut Option<PoolRow>) {
    for _ in 0..1_000 {
        let decision = state.apply(Input::Tick, now, random);
        for write in decision.writes {
            if let Write::Pool(Some(row)) = write {
                *pool = Some(*row);
            }
        }
        if decision.wake_at.is_none_or(|at| at > now) {
            return;
        }
    }
    panic!("it never rests");
}

#[test]
fn notes_on_lost_sites_are_bounded_and_the_oldest_goes_first() {
    let count = Some(PER_WAVE as u64);
    let spec =
        PoolSpec { min: count, max: count, makers_max: Some(200), start_ms_max: Some(16_000), idle_ms: None, ..spec() };
    let mut now = Time(1_000);
    let mut state = State::create(ShardId(3), "games".into(), "house".into(), spec.check().unwrap(), 77, now);
    let (random, mut pool): (Vec<u128>, _) = ((0..300).collect(), None);
    let waves = SITES_MAX / PER_WAVE + 1;
    let name = |wave: usize, n: usize| format!("site-{wave}-{n}");
    for wave in 0..waves {
        for n in 0..PER_WAVE {
            // Without random values nothing is made yet.
            let (site, runtime) = (name(wave, n).into(), RuntimeKind::Docker);
            state.apply(Input::SiteAlive { site, runtime, lack: None }, now, &[]);
        }
        settle(&mut state, now, &random, &mut pool);
        // The sites are gone, and with them the workers that they were to make.
        now = now.after(Millis(16_000));
        settle(&mut state, now, &[], &mut pool);
    }
    // No site can remove those workers, so they are forgotten.
    now = now.after(Millis(31_000));
    settle(&mut state, now, &[], &mut pool);
    state.self_check().unwrap();
    let pool = pool.unwrap();
    assert_eq!((pool.owed.len(), pool.site_trouble.len()), (SITES_MAX, SITES_MAX));
    for n in 0..PER_WAVE {
        let (first, last) = (name(0, n), name(waves - 1, n));
        assert!(pool.owed.contains_key(last.as_str()) && pool.site_trouble.contains_key(last.as_str()), "{last}");
        assert!(!pool.owed.contains_key(first.as_str()) && !pool.site_trouble.contains_key(first.as_str()), "{first}");
    }
}

#[test]
fn an_unchanged_site_is_only_noted_and_a_new_or_changed_one_is_decided() {
    let mut now = Time(1_000);
    let mut state = State::create(ShardId(3), "games".into(), "house".into(), spec().check().unwrap(), 77, now);
    let (site, lack) = ("site".into(), Some(Lack { runtime: RuntimeKind::Docker, why: "no engine".into() }));
    let runtime = RuntimeKind::Docker;
    assert!(!state.note_alive(&site, runtime, None, now), "it is new");
    let alive = |lack: &Option<Lack>| Input::SiteAlive { site: site.clone(), runtime, lack: lack.clone() };
    state.apply(alive(&None), now, &[]);
    // Noted in time, it never falls silent: workers can be started there, long after the last decision about it.
    for _ in 0..20 {
        now = now.after(Millis(2_000));
        assert!(state.note_alive(&site, runtime, None, now));
    }
    let asker = Asker { client: "a".into(), principal: None };
    let decision = state.apply(Input::Put(asker), now, &[1 << 8, 2 << 8, 3 << 8]);
    assert!(decision.effects.iter().any(|effect| effect.kind() == "create"), "{decision:?}");
    assert!(!state.note_alive(&site, RuntimeKind::Process, None, now), "it has changed");
    // Two nodes that share the site poll in turn, and only one of them lacks something: that is no news.
    for turn in 0..10 {
        assert!(state.note_alive(&site, runtime, lack.as_ref().filter(|_| turn % 2 == 0), now), "{turn}");
    }
    assert!(!state.note_alive(&site, runtime, None, now.after(Millis(15_000))), "it was silent");
    assert!(!state.note_alive(&site, runtime, None, Time(1_000).after(Millis(60_000))), "it is to be listed");
}
