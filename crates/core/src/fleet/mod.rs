//! The fleet: the registry of machines, and a judgement of each one's health.
//!
//! This module decides. It must not know the time, where rows are stored, who asked, how a probe is sent, or what a
//! machine's work is. In: a command and *now*. Out: an answer, and row writes in the caller's list. A refusal comes
//! before the first change. If a commit fails, the state must be dropped and loaded again.
//!
//! **Three columns, one writer each.** `desired` is the operator's ([`State::set_desired`]), `reported` the machine's
//! ([`State::report`]), `judged` Wayleave's ([`State::tick`], and the same rules in `report` and `probed`). None
//! overwrites another.
//!
//! **The judge.** healthy → suspect after 3 missed reports → failed after 6; a report of `error` is believed at once.
//! A failed machine that reports again is on probation, which lasts longer with each failure, and then healthy; after
//! a stable period its failures are forgiven. Probes (3 misses of the last 5) make a machine suspect at most: one that
//! reports is never failed by a probe. A machine that never answered a probe may have nothing that answers; that counts
//! against index servers only, which others must reach. A probe that the settings do not allow is not sent: then
//! reports alone count, and the reason says so. If more than half of a type misses its probes at once, the node that
//! probes is more likely at fault than they are: then their probes do not count, and the reason says so.
//!
//! **What is durable.** A row holds the three columns, the reason and the time of the verdict, the failures and what
//! the machine registered. When it last reported is kept in memory: a report that changes nothing else writes no row,
//! and is answered like a read. That is sound: the answer repeats only columns that are durable (law 7), and after a
//! restart or takeover silence counts from the later of the last report and the load. So a new owner fails no machine
//! that had less than 6 intervals to report to it, and promotes none that has not reported to it. The same holds
//! after the owner was stalled: if it is called later than [`Config::stalled_after`] after the last call, it may have
//! missed reports, and all silences count anew. Hence the owner ticks at least once per report interval (see
//! [`State::next_tick`]), and handles the reports of a batch before its tick.
//!
//! **Mass failure.** If more than half of the machines of a type look dead at once, the watcher is more likely at fault
//! than they are: [`State::frozen`] says so, and no chunk moves. Counted are machines whose desired state is `online`;
//! below three of them a type is never frozen, so one dead of one or two is replaced as usual. The verdicts remain;
//! the freeze ends when enough machines report, or the operator drains or deletes those that are gone. A server that
//! failed and whose chunks were placed again is *written off* ([`State::write_off`]) and not counted: it did not die
//! at once with those that fail later. In a partition nothing is placed again, so its servers keep counting.
//!
//! **Forgetting.** A machine that has failed for a day is forgotten: crawlers and builders, and servers that were written
//! off; not those that the operator paused. If the fleet is full, the one that failed first makes room for a new one.
//!
//! **Names and tokens.** The first report under a name registers the machine and gets a token; later reports must
//! present it. Until the token has been presented once, the same registration, repeated without it from the same address
//! and before the machine would be failed, gets the same answer again: the first answer may have been lost. A deleted machine leaves no row: its token is refused, and its
//! name may register again and gets a fresh token. Type and row are fixed while the name is registered.

mod config;
mod delete;
mod judge;
mod listing;
mod mass_failure;
mod probe;
pub mod refusal;
mod report;
pub mod row;
mod set_desired;
mod state;
pub mod view;

pub use config::Config;
pub use delete::Holdings;
pub use judge::Ticked;
pub use listing::{Filter, Page};
pub use mass_failure::Frozen;
pub use probe::{Probe, ProbeOutcome};
pub use refusal::Refusal;
pub use report::{Report, ReportReply};
pub use row::{Cause, Desired, Judged, Kind, MachineRow, Reported, RowNo, Write};
pub use state::State;
pub use view::MachineView;
