//! The order of steps that this design replaces, as the document that describes it has it: a status in a key-value
//! store, set to OCCUPIED by every poll; a message queue whose pop removes the only copy; DONE written last. The model
//! runs a client's polls and one Maker in every interleaving, with one crash at every point, and then lets the world be
//! kind: services restart, the client keeps polling, workers have room. A client that is then never served is
//! stranded.

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Status {
    Nothing,
    Occupied,
    Created,
    InProgress,
    Done,
}

/// What the API service does next for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Api {
    GetSet,
    SetCreated,
    Push,
    AskWorker,
    SetDone,
}

/// What the Maker does next for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Maker {
    SetInProgress,
    /// Asks the running container; without one, creates it and starts it.
    Ask,
    Create,
    SetHost,
    SetDone,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Model {
    status: Status,
    queue: usize,
    host: bool,
    container: bool,
    reserved: bool,
    api: Option<Api>,
    maker: Option<Maker>,
    served: bool,
    crashed: Option<&'static str>,
}

impl Model {
    fn new() -> Self {
        Self {
            status: Status::Nothing,
            queue: 0,
            host: false,
            container: false,
            reserved: false,
            api: None,
            maker: None,
            served: false,
            crashed: None,
        }
    }

    fn api_step(&mut self) {
        self.api = match self.api {
            None => Some(Api::GetSet),
            Some(Api::GetSet) => match std::mem::replace(&mut self.status, Status::Occupied) {
                Status::Nothing => Some(Api::SetCreated),
                // 202, and the status stays as the poll has set it.
                Status::Created | Status::InProgress | Status::Occupied => None,
                Status::Done => Some(Api::AskWorker),
            },
            Some(Api::SetCreated) => {
                self.status = Status::Created;
                Some(Api::Push)
            }
            Some(Api::Push) => {
                self.queue += 1;
                None
            }
            Some(Api::AskWorker) if self.reserved && self.host => Some(Api::SetDone),
            Some(Api::AskWorker) => Some(Api::SetCreated),
            Some(Api::SetDone) => {
                self.status = Status::Done;
                self.served = true;
                None
            }
        };
    }

    fn maker_step(&mut self) {
        self.maker = match self.maker {
            None => {
                self.queue -= 1;
                Some(Maker::SetInProgress)
            }
            Some(Maker::SetInProgress) => {
                self.status = Status::InProgress;
                Some(Maker::Ask)
            }
            Some(Maker::Ask) if !self.container => Some(Maker::Create),
            Some(Maker::Ask) => {
                self.reserved = true;
                Some(Maker::SetHost)
            }
            Some(Maker::Create) => {
                self.container = true;
                Some(Maker::Ask)
            }
            Some(Maker::SetHost) => {
                self.host = true;
                Some(Maker::SetDone)
            }
            Some(Maker::SetDone) => {
                self.status = Status::Done;
                None
            }
        };
    }

    fn maker_can(&self) -> bool {
        self.maker.is_some() || self.queue > 0
    }

    fn next(&self) -> Vec<Self> {
        let mut next = Vec::new();
        let mut push = |step: &dyn Fn(&mut Self)| {
            let mut model = self.clone();
            step(&mut model);
            next.push(model);
        };
        if !self.served {
            push(&Self::api_step);
        }
        if self.maker_can() {
            push(&Self::maker_step);
        }
        if self.crashed.is_none() {
            if let Some(at) = self.api {
                push(&|model| (model.api, model.crashed) = (None, Some(api_name(at))));
            }
            if let Some(at) = self.maker {
                push(&|model| (model.maker, model.crashed) = (None, Some(maker_name(at))));
            }
        }
        next
    }

    /// The world is kind: every step that is possible is taken, without crashes.
    fn is_stranded(&self) -> bool {
        let mut model = self.clone();
        for _ in 0..200 {
            while model.maker_can() {
                model.maker_step();
            }
            if model.served {
                return false;
            }
            model.api_step();
        }
        true
    }
}

const fn api_name(at: Api) -> &'static str {
    match at {
        Api::GetSet => "poll: before the status is set to OCCUPIED",
        Api::SetCreated => "poll: before the status is set to CREATED",
        Api::Push => "poll: before the request is pushed",
        Api::AskWorker => "poll: before the worker is asked",
        Api::SetDone => "poll: before the status is set to DONE again",
    }
}

const fn maker_name(at: Maker) -> &'static str {
    match at {
        Maker::SetInProgress => "maker: after the pop",
        Maker::Ask => "maker: before the worker is asked",
        Maker::Create => "maker: before the container is created",
        Maker::SetHost => "maker: before the host is stored",
        Maker::SetDone => "maker: before the status is set to DONE",
    }
}

#[test]
fn the_replaced_order_strands_clients() {
    let (mut seen, mut open) = (BTreeSet::new(), vec![Model::new()]);
    let mut strands: BTreeMap<&str, bool> = BTreeMap::new();
    while let Some(model) = open.pop() {
        if !seen.insert(model.clone()) {
            continue;
        }
        if let Some(at) = model.crashed {
            *strands.entry(at).or_default() |= model.is_stranded();
        }
        open.extend(model.next());
    }
    assert!(!Model::new().is_stranded(), "without a crash the client is served");
    let stranding: Vec<&str> = strands.iter().filter(|(_, strands)| **strands).map(|(at, _)| *at).collect();
    assert_eq!((stranding.len(), strands.len()), (9, 10), "{stranding:#?} in {} states", seen.len());
}

#[test]
fn the_replaced_order_strands_a_polling_client_when_the_maker_crashes() {
    // Queued, popped, crash: the pop took the only copy, and every later poll finds OCCUPIED.
    let mut model = Model::new();
    for _ in 0..4 {
        model.api_step();
    }
    assert_eq!((model.api, model.status, model.queue), (None, Status::Created, 1));
    model.maker_step();
    model.maker = None;
    assert!(model.is_stranded());
}
