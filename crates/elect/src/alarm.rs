//! A timerfd on CLOCK_BOOTTIME, for threads and processes that poll: after a suspend it fires as soon as the machine
//! runs again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::clock::Moment;

/// A timer; its file descriptor can be polled for reading.
#[derive(Debug)]
pub struct Alarm(OwnedFd);

impl Alarm {
    /// A timer that fires at a moment. Fails if the kernel provides none: too many open files.
    pub fn at(at: Moment) -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let alarm = Self(timerfd_create(TimerfdClockId::Boottime, flags)?);
        alarm.set(at)?;
        Ok(alarm)
    }

    /// Rearms it for another moment; if it has fired, it is reset.
    pub fn set(&self, at: Moment) -> io::Result<()> {
        // To the kernel zero means "disarm"; the first millisecond after boot has long passed.
        let it_value = Moment(at.0.max(1)).timespec();
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value })?;
        Ok(())
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};
    use wayleave_core::time::Millis;

    use super::*;
    use crate::clock::{BootClock, Clock};

    fn rings(alarm: &Alarm, within: Millis) -> bool {
        let timeout = Moment(within.0).timespec();
        poll(&mut [PollFd::new(alarm, PollFlags::IN)], Some(&timeout)).unwrap() == 1
    }

    #[test]
    fn it_goes_off_at_its_moment_and_can_be_set_again() {
        let alarm = Alarm::at(BootClock.now().after(Millis(60_000))).unwrap();
        assert!(!rings(&alarm, Millis(0)));
        let at = BootClock.now().after(Millis(30));
        alarm.set(at).unwrap();
        assert!(rings(&alarm, Millis(10_000)) && BootClock.now() >= at);
        alarm.set(BootClock.now().after(Millis(60_000))).unwrap();
        assert!(!rings(&alarm, Millis(0)));
        // A moment in the past fires at once: to the kernel zero would mean "disarm".
        alarm.set(Moment(0)).unwrap();
        assert!(rings(&alarm, Millis(10_000)));
    }
}
