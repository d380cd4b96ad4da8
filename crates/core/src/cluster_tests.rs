use proptest::prelude::*;

use super::*;

const NOW: Time = Time(1_000_000);
const CALM: Millis = Millis(2_000);
const FORMAT: u32 = 3;

fn node(id: u64) -> NodeRow {
    NodeRow {
        id: NodeId(id),
        address: format!("http://n{id}").into(),
        name: "n".into(),
        version: "1".into(),
        protocol: 1,
        started_at: Time(0),
        alive_since: Time(0),
        expires_at: Time(NOW.0 + 1),
        leaving: false,
        format: FORMAT,
        failing: BTreeSet::new(),
    }
}

fn view<'a>(me: u64, nodes: &'a [NodeRow], seats: &'a [Option<NodeId>]) -> View<'a> {
    View { me: NodeId(me), now: NOW, calm: CALM, nodes, seats, format: FORMAT }
}

fn steps(me: u64, nodes: &[NodeRow], seats: &[Option<NodeId>]) -> Vec<Step> {
    plan(&view(me, nodes, seats))
}

/// Every live node executes its steps once, all from the same rows.
fn round(nodes: &[NodeRow], seats: &mut [Option<NodeId>]) -> usize {
    let before = seats.to_vec();
    let mut moves = 0;
    for node in nodes {
        for step in steps(node.id.0, nodes, &before) {
            let (shard, seat) = match step {
                Step::Take(shard) => (shard, Some(node.id)),
                Step::Give(shard, to) => {
                    assert_eq!(before[usize::from(shard.0)], Some(node.id), "a node gives away only its own seats");
                    (shard, to)
                }
            };
            let place = &mut seats[usize::from(shard.0)];
            assert_eq!(*place, before[usize::from(shard.0)], "shard {} is moved twice", shard.0);
            *place = seat;
            moves += 1;
        }
    }
    moves
}

fn counts(nodes: &[NodeRow], seats: &[Option<NodeId>]) -> Vec<usize> {
    nodes.iter().map(|node| seats.iter().filter(|seat| **seat == Some(node.id)).count()).collect()
}

#[test]
fn the_first_node_takes_everything() {
    let mut seats = vec![None; 16];
    assert_eq!(round(&[node(7)], &mut seats), 16);
    assert!(seats.iter().all(|seat| *seat == Some(NodeId(7))));
    assert_eq!(round(&[node(7)], &mut seats), 0, "and then rests");
}

#[test]
fn a_joining_node_gets_its_share_and_nothing_else_moves() {
    let mut nodes = vec![node(1), node(2)];
    let mut seats = vec![None; 16];
    round(&nodes, &mut seats);
    assert_eq!(counts(&nodes, &seats), [8, 8]);
    nodes.push(node(3));
    assert_eq!(round(&nodes, &mut seats), 5, "a third of 16");
    let mut even = counts(&nodes, &seats);
    even.sort_unstable();
    assert_eq!(even, [5, 5, 6]);
    assert_eq!(round(&nodes, &mut seats), 0);
}

#[test]
fn seats_of_the_dead_are_taken_and_those_of_the_living_never() {
    let mut nodes = vec![node(1), node(2), node(3)];
    let mut seats = vec![None; 9];
    round(&nodes, &mut seats);
    nodes[1].expires_at = NOW;
    let before = seats.clone();
    round(&nodes, &mut seats);
    assert!(seats.iter().all(|seat| *seat != Some(NodeId(2))));
    for (was, is) in before.iter().zip(&seats) {
        assert!(*was == Some(NodeId(2)) || was == is);
    }
    assert_eq!(steps(2, &nodes, &before), [], "the dead do nothing");
}

#[test]
fn after_an_outage_the_first_to_wake_does_not_take_everything() {
    let mut nodes = vec![node(1), node(2)];
    let mut seats = vec![None; 4];
    round(&nodes, &mut seats);
    nodes[1].expires_at = NOW;
    nodes[0].alive_since = Time(NOW.0 - CALM.0 + 1);
    assert_eq!(round(&nodes, &mut seats), 0, "node 1 has only just come back itself");
    nodes[0].alive_since = Time(NOW.0 - CALM.0);
    assert_eq!(round(&nodes, &mut seats), 2);
}

#[test]
fn a_node_whose_row_was_taken_away_is_replaced_at_once() {
    let mut nodes = vec![node(1), node(2)];
    let mut seats = vec![None; 4];
    round(&nodes, &mut seats);
    nodes.pop();
    nodes[0].alive_since = NOW;
    assert_eq!(round(&nodes, &mut seats), 2, "it left, or a new process has its address");
}

#[test]
fn a_leaving_node_gives_everything_away() {
    let mut nodes = vec![node(1), node(2), node(3)];
    let mut seats = vec![None; 9];
    round(&nodes, &mut seats);
    nodes[2].leaving = true;
    assert_eq!(round(&nodes, &mut seats), 3);
    assert_eq!(counts(&nodes, &seats)[2], 0);
    nodes[0].leaving = true;
    nodes[1].leaving = true;
    round(&nodes, &mut seats);
    assert!(seats.iter().all(Option::is_none), "the last node leaves no owner behind");
}

#[test]
fn a_node_that_does_not_know_the_format_owns_no_shard() {
    let mut nodes = vec![node(1), node(2), node(3)];
    let mut seats = vec![None; 9];
    round(&nodes, &mut seats);
    nodes[2].format = FORMAT - 1;
    assert_eq!(round(&nodes, &mut seats), 3);
    assert_eq!(counts(&nodes, &seats)[2], 0);
    nodes[0].expires_at = NOW;
    nodes[1].expires_at = NOW;
    assert_eq!(round(&nodes, &mut seats), 0, "rather no owner than one that cannot open it");
}

#[test]
fn a_shard_that_fails_to_open_goes_round_and_rests_with_the_last_node() {
    let mut nodes = vec![node(1), node(2), node(3)];
    let mut seats = vec![None; 9];
    round(&nodes, &mut seats);
    let mut tried = Vec::new();
    for _ in 0..3 {
        let holder = seats[0].unwrap();
        assert!(!tried.contains(&holder), "no node tries twice before all have tried");
        tried.push(holder);
        nodes.iter_mut().find(|node| node.id == holder).unwrap().failing.insert(ShardId(0));
        round(&nodes, &mut seats);
    }
    assert_eq!(seats[0], tried.last().copied());
    round(&nodes, &mut seats);
    assert_eq!(round(&nodes, &mut seats), 0, "and then all rests: {:?}", counts(&nodes, &seats));
    nodes[0].failing.clear();
    assert!(round(&nodes, &mut seats) > 0);
    assert_eq!(seats[0], Some(NodeId(1)), "it is tried again where that may help");
}

#[test]
fn a_node_that_fails_to_open_shards_keeps_its_open_ones_and_gets_no_more() {
    let mut nodes = vec![node(1), node(2), node(3)];
    let mut seats = vec![None; 9];
    round(&nodes, &mut seats);
    let before = seats.clone();
    let mine = |seats: &[Option<NodeId>]| -> Vec<u16> {
        (0u16..).zip(seats).filter(|(_, seat)| **seat == Some(NodeId(2))).map(|(shard, _)| shard).collect()
    };
    let (failing, open) = (mine(&before)[0], &mine(&before)[1..]);
    nodes[1].failing.insert(ShardId(failing));
    round(&nodes, &mut seats);
    assert_eq!(mine(&seats), open);
    nodes[0].expires_at = NOW;
    round(&nodes, &mut seats);
    assert_eq!(mine(&seats), open, "the other one takes over all that is free");
    assert_eq!(counts(&nodes, &seats), [0, 2, 7]);
}

#[test]
fn a_free_shard_that_no_node_can_open_has_an_owner_all_the_same() {
    let mut nodes = vec![node(1), node(2)];
    nodes.iter_mut().for_each(|node| _ = node.failing.insert(ShardId(1)));
    let mut seats = vec![None; 4];
    round(&nodes, &mut seats);
    assert!(seats.iter().all(Option::is_some));
}

#[test]
fn the_format_is_raised_once_every_node_knows_the_next_one() {
    let next = FORMAT + 1;
    let newer = |id| NodeRow { format: next, ..node(id) };
    let raised = |nodes: &[NodeRow]| raise(&view(1, nodes, &[]));
    assert_eq!(raised(&[newer(1), node(2)]), None, "an older node lives");
    assert_eq!(holding_back(&[newer(1), node(2)]), [NodeId(2)]);
    let dead = NodeRow { expires_at: NOW, ..node(2) };
    assert_eq!(raised(&[newer(1), dead]), None, "it may come back");
    let leaving = NodeRow { leaving: true, ..node(2) };
    assert_eq!(raised(&[newer(1), leaving]), None, "it still writes");
    assert_eq!(raised(&[newer(1), NodeRow { format: next + 1, ..node(2) }]), Some(next), "what all of them know");
    assert_eq!(raised(&[node(1), node(2)]), None, "there is nothing to raise it to");
    assert_eq!(raised(&[NodeRow { expires_at: NOW, ..newer(1) }, newer(2)]), None, "the dead do nothing");
    let crowd: Vec<NodeRow> = (1..=NODES_MAX as u64).map(newer).collect();
    assert_eq!(raised(&crowd), None, "not all rows were read");
    assert_eq!(holding_back(&crowd), []);
}

/// Nodes of these traits, and seats.
type Crowd = (Vec<NodeRow>, Vec<Option<NodeId>>);

fn crowds() -> impl Strategy<Value = Crowd> {
    let traits = (any::<bool>(), any::<bool>(), 2..5u32, proptest::collection::btree_set(0u16..64, 0..4));
    let nodes = proptest::collection::vec(traits, 1..9).prop_map(|all| {
        let one = |((alive, leaving, format, failing), id): ((bool, bool, u32, BTreeSet<u16>), u64)| NodeRow {
            leaving,
            format,
            expires_at: if alive { Time(NOW.0 + 1) } else { NOW },
            failing: failing.into_iter().map(ShardId).collect(),
            ..node(id)
        };
        all.into_iter().zip(0..).map(one).collect()
    });
    let seats = proptest::collection::vec(proptest::option::of((0u64..12).prop_map(NodeId)), 1..64);
    (nodes, seats)
}

proptest! {
    #[test]
    fn any_crowd_settles_in_an_even_spread(
        alive in proptest::collection::vec((any::<bool>(), any::<bool>()), 1..9),
        owners in proptest::collection::vec(proptest::option::of(0u64..12), 1..64),
    ) {
        let nodes: Vec<NodeRow> = alive.iter().zip(0..).map(|((alive, leaving), id)| {
            let mut node = node(id);
            node.leaving = *leaving;
            if !alive {
                node.expires_at = NOW;
            }
            node
        }).collect();
        let mut seats: Vec<Option<NodeId>> = owners.into_iter().map(|owner| owner.map(NodeId)).collect();
        round(&nodes, &mut seats);
        prop_assert_eq!(round(&nodes, &mut seats), 0, "one round is enough");
        let staying: Vec<NodeRow> =
            nodes.iter().filter(|node| node.is_alive(NOW) && !node.leaving).cloned().collect();
        let counts = counts(&staying, &seats);
        if let (Some(least), Some(most)) = (counts.iter().min(), counts.iter().max()) {
            prop_assert!(most - least <= 1, "{:?}", counts);
            prop_assert_eq!(counts.iter().sum::<usize>(), seats.len());
        }
    }

    #[test]
    fn no_shard_stays_where_it_cannot_be_opened_if_it_may_be_elsewhere((nodes, mut seats) in crowds()) {
        let rounds = (0..10).take_while(|_| round(&nodes, &mut seats) > 0).count();
        prop_assert!(rounds < 10, "it settles");
        let fit = |node: &&NodeRow| node.is_alive(NOW) && !node.leaving && node.format >= FORMAT;
        let fit: Vec<&NodeRow> = nodes.iter().filter(fit).collect();
        for (shard, seat) in (0u16..).map(ShardId).zip(&seats) {
            let owner = fit.iter().find(|node| Some(node.id) == *seat);
            prop_assert_eq!(owner.is_some(), !fit.is_empty(), "shard {} is with {:?}", shard.0, seat);
            let may = fit.iter().any(|node| node.may_open(shard));
            prop_assert!(owner.is_none_or(|node| node.may_open(shard) || !may), "shard {} is with {:?}", shard.0, seat);
        }
    }
}
