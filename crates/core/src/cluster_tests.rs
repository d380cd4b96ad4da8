use proptest::prelude::*;

use super::*;

const NOW: Time = Time(1_000_000);
const CALM: Millis = Millis(2_000);

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
    }
}

fn steps(me: u64, nodes: &[NodeRow], seats: &[Option<NodeId>]) -> Vec<Step> {
    plan(&View { me: NodeId(me), now: NOW, calm: CALM, nodes, seats })
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
                    assert_eq!(before[usize::from(shard.0)], Some(node.id), "nobody gives what is not its own");
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
    assert!(seats.iter().all(Option::is_none), "the last one leaves them to nobody");
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
}
