//! Carries out the effects of a [`Candidate`]: talks to the server, runs the guarded work in a task, and ends it.

mod contact;
mod drive;
mod peers;
mod state;
mod talk;
mod wire;
mod work;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use wayleave_client::Client;

pub use state::{Error, State, Stopper};

use crate::clock::{BootClock, Clock};
use crate::options::Options;
use crate::term::Term;
use crate::watchdog::Watchdog;
use drive::Driver;
use peers::{Asking, Door};
use talk::Talk;
use wire::Wire;

/// Asks for a role and runs work while it is primary.
///
/// ```no_run
/// use std::ops::ControlFlow;
/// use wayleave_elect::{Election, Options};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = wayleave_client::Client::new("http://127.0.0.1:7071")?;
/// let options = Options { address: Some("10.0.0.7:9000".into()), ..Options::default() };
/// let election = Election::new(client, "index-builder", options);
/// let _: Option<()> = election
///     .run(|term| async move {
///         // Every guarded write carries the epoch; see `Fenced`.
///         println!("primary in epoch {}", term.epoch());
///         term.stopping().await;
///         // What remains of the term is for finishing.
///         ControlFlow::Continue(std::time::Duration::ZERO)
///     })
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Election {
    client: Client,
    role: String,
    options: Options,
    clock: Arc<dyn Clock>,
    state: watch::Sender<State>,
    control: watch::Sender<state::Control>,
}

impl Election {
    /// An election for `role` on the server of `client`. Nothing is sent yet.
    #[must_use]
    pub fn new(client: Client, role: impl Into<String>, options: Options) -> Self {
        let control = watch::Sender::new(state::Control { stop: false, ready: options.ready });
        let state = watch::Sender::new(State::Standby { primary: None, reason: "not asked yet".into() });
        Self { client, role: role.into(), options, clock: Arc::new(BootClock), state, control }
    }

    /// The current state and its changes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// A handle to stop it, or to change whether it is ready.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(self.control.clone())
    }

    /// Asks for the role, works while primary, and asks again, until it is stopped or the work breaks off.
    ///
    /// The work is started once per term, as a task. [`Term::stopping`] asks it to stop; if it has not ended when its
    /// grace period is over, its task is cancelled, and if that fails too, the watchdog ends the process. Tasks,
    /// threads and processes that the work starts must end with it, or keep a [`Term::hold`] until they have. The
    /// role is released only when the work has ended and nothing holds its term; until then the term is renewed.
    ///
    /// When the work ends by itself, `Continue(pause)` releases the role and asks again after the pause, and
    /// `Break(value)` releases it and ends the election with the value. Returns `None` if it was stopped.
    ///
    /// Fails if the server refuses permanently, T is too short for the options, or the work panicked.
    pub async fn run<W, F, B>(self, work: W) -> Result<Option<B>, Error>
    where
        W: FnMut(Term) -> F,
        F: Future<Output = ControlFlow<B, Duration>> + Send + 'static,
        B: Send + 'static,
    {
        let watchdog = Watchdog::start(self.clock.clone()).map_err(Error::Machine)?;
        let door = match &self.options.peer {
            None => None,
            Some(door) => Some(Door::open(&self.role, door).await.map_err(|error| Error::Peer(door.listen, error))?),
        };
        let asking = Asking::new(&self.role, self.options.policy.clone());
        let mut wire = Wire::new(self.client, self.role, &self.options, self.control.subscribe())?;
        wire.set_peer(door.as_ref().map(Door::peer));
        let talk = Talk::new(wire.role(), door, asking);
        Driver::new(wire, &self.options, self.clock, self.state, (watchdog, talk))
            .run(work, self.control.subscribe())
            .await
    }
}
