//! Calls and their answers: each waits for the commits that were made for its call.

use tokio::sync::oneshot;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_engine::Error;

use super::commits::Port;
use super::cycle::{self, CommitMark};
use crate::routing::router::CallResult;

/// A decision, or why there is none; or the failure of a read, which ends the owner's term.
pub(crate) type Decided<T> = Result<Result<T, Refusal>, Error>;

/// The caller, and where the commits made for it begin.
pub(crate) struct Pending<R> {
    pub reply: oneshot::Sender<CallResult<R>>,
    pub mark: CommitMark,
}

impl Port {
    /// Takes a call, unless its caller has left, or it is a change while the store refuses changes.
    pub fn admit<R>(
        &self,
        reply: oneshot::Sender<CallResult<R>>,
        needs_caller: bool,
        is_read_only: bool,
    ) -> Option<Pending<R>> {
        if needs_caller && reply.is_closed() {
            return None;
        }
        if let Some(why) = self.refusal().filter(|_| !is_read_only) {
            _ = reply.send(Err(why));
            return None;
        }
        Some(Pending { reply, mark: self.cycle.mark() })
    }

    /// Queues an answer. A failed read is reported to the caller, for whom nothing was changed, and ends the owner's
    /// term.
    pub fn answer<R: Send + 'static, T: Into<R>>(&mut self, call: Pending<R>, answer: Decided<T>) -> Result<(), Error> {
        match answer {
            Ok(answer) => {
                let (answer, reply) = (answer.map(T::into), call.reply);
                self.cycle.answer(call.mark, Box::new(move |durable| _ = reply.send(durable.and(answer))));
                Ok(())
            }
            Err(error) => {
                _ = call.reply.send(Err(cycle::refusal(&error)));
                Err(error)
            }
        }
    }

    /// Answers a call that takes several steps, each with its own commit. If a later step fails to read the store, the
    /// caller still gets what earlier steps committed.
    pub fn answer_part<R: Send + 'static, T>(
        &mut self,
        call: Pending<R>,
        got: Vec<T>,
        trouble: Option<Error>,
    ) -> Result<(), Error>
    where
        Vec<T>: Into<R>,
    {
        match trouble {
            None => self.answer(call, Ok(Ok(got))),
            Some(error) if got.is_empty() => self.answer(call, Err::<CallResult<Vec<T>>, _>(error)),
            Some(error) => self.answer(call, Ok(Ok(got))).and(Err(error)),
        }
    }
}
