//! Runtimes and workers of the tests: containers that reserve slots as real workers do, in good and bad moods.

use wayleave_core::limits::WORKER_CLOCK_MARGIN;

use super::*;

/// Where workers report from.
const HERE: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// How a worker behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mood {
    #[default]
    Good,
    /// It answers 500 or nothing.
    Mute,
    /// It refuses every reservation.
    Refusing,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Container {
    pub site: SiteName,
    pub generation: u64,
    pub run: u32,
    /// What its environment has.
    pub env: (u32, Secret),
    pub running: bool,
    pub exit: Exit,
    pub slots: usize,
    pub mood: Mood,
    pub held: BTreeMap<ClientName, (Token, Time)>,
}

impl Container {
    pub fn holds(&self, client: &ClientName, token: Token, now: Time) -> bool {
        self.running && self.held.get(client).is_some_and(|(held, until)| *held == token && *until > now)
    }

    pub fn instance(&self, no: WorkerNo) -> Instance {
        Instance { id: format!("c{}", no.0).into(), started: self.run.into(), address: address(no) }
    }
}

impl Container {
    /// News of its end.
    pub fn ended(&self, no: WorkerNo) -> Input {
        let (generation, exit) = (self.generation, self.exit.clone());
        Input::Exited { worker: no, generation, instance: self.instance(no), exit }
    }

    /// Its own report.
    pub fn report(&self, no: WorkerNo, free: u32) -> Input {
        let (run, secret) = self.env;
        Input::Report { worker: no, run, secret, address: address(no), from: HERE, free }
    }
}

pub fn address(no: WorkerNo) -> std::sync::Arc<str> {
    format!("10.0.0.1:{}", 9_000 + no.0).into()
}

/// All sites.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Runtime {
    pub containers: BTreeMap<WorkerNo, Container>,
    /// Why nothing can be created.
    pub broken: Option<String>,
    /// Sites that can create nothing.
    pub broken_sites: BTreeSet<SiteName>,
    /// All sites are names of one engine.
    pub shared: bool,
    /// How new containers behave.
    pub mood: Mood,
    /// Everything that was ever created.
    pub created: usize,
    /// Creations that a broken site refused.
    pub refused: usize,
}

pub enum Call {
    Reserve,
    Check,
    Release,
}

impl Runtime {
    pub fn make(&mut self, make: &Make) -> Result<Instance, std::sync::Arc<str>> {
        if let Some(why) = &self.broken {
            return Err(why.as_str().into());
        }
        if self.broken_sites.contains(&make.site) {
            self.refused += 1;
            return Err("no space left on device".into());
        }
        let no = make.step.worker;
        if let Some(known) = self.containers.get_mut(&no) {
            if !known.running && make.last.as_ref().is_some_and(|last| last.is_run(&known.instance(no))) {
                (known.run, known.running, known.mood) = (known.run + 1, true, self.mood);
                known.held.clear();
            }
            return if known.running { Ok(known.instance(no)) } else { Err("it has exited".into()) };
        }
        self.created += 1;
        let container = Container {
            site: make.site.clone(),
            generation: make.labels.generation,
            run: 1,
            env: (make.run, make.secret),
            running: true,
            exit: Exit::Clean,
            slots: make.recipe.slots as usize,
            mood: self.mood,
            held: BTreeMap::new(),
        };
        let instance = container.instance(no);
        self.containers.insert(no, container);
        Ok(instance)
    }

    pub fn call(&mut self, call: &Call, ask: &WorkerAsk, now: Time) -> Verdict {
        let unknown = |why: &str| Verdict::Unknown(why.into());
        let Some(container) = self.containers.get_mut(&ask.worker).filter(|container| container.running) else {
            return unknown("connection refused");
        };
        if container.mood == Mood::Mute {
            return unknown("500");
        }
        container.held.retain(|_, (_, until)| *until > now);
        let holds = container.holds(&ask.client, ask.token, now);
        // A worker may keep a reservation somewhat longer than agreed.
        let until = now.after(ask.reservation).after(WORKER_CLOCK_MARGIN);
        match call {
            Call::Release if holds => {
                container.held.remove(&ask.client);
                Verdict::Yes
            }
            Call::Check | Call::Reserve if holds => {
                container.held.insert(ask.client.clone(), (ask.token, until));
                Verdict::Yes
            }
            Call::Release | Call::Check => Verdict::No,
            Call::Reserve => {
                // Another reservation of the same client is in the way as well.
                let room = container.held.len() < container.slots && !container.held.contains_key(&ask.client);
                if !room || container.mood == Mood::Refusing {
                    return Verdict::No;
                }
                container.held.insert(ask.client.clone(), (ask.token, until));
                Verdict::Yes
            }
        }
    }

    pub fn list(&self, site: &SiteName) -> Vec<WorkerFound> {
        let there = self.containers.iter().filter(|(_, container)| self.shared || container.site == *site);
        let found = |(no, container): (&WorkerNo, &Container)| WorkerFound {
            worker: *no,
            generation: container.generation,
            instance: Some(container.instance(*no)),
            exit: (!container.running).then(|| container.exit.clone()),
        };
        there.map(found).collect()
    }
}
