//! The ranks of one training: replicas of a net, a device each, in threads of a process or in processes of their own.
//!
//! ```text
//! rank 1 ──┐
//! rank 2 ──┼── TCP ──► rank 0, which leads: it measures, plans, tests, displays and writes snapshots, and tells the others
//! rank N ──┘           what comes next; they follow
//! ```
//!
//! Few and small values travel here: plans, what comes next, why a rank has failed. Gradients do so between processors; GPUs
//! sum theirs by NCCL. Whatever happens to one rank, each of the others has the same sentence about it.

mod connect;
mod link;
#[cfg(test)]
mod tests;

use bytemuck::Pod;
use link::Link;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fmt,
    ops::AddAssign,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use thiserror::Error;

pub use connect::Place;

/// Why the ranks cannot go on together, the same for each.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct RankError(pub(crate) String);

/// One of how many ranks: which samples of each mini-batch are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The rank, counted from 0.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
}

impl Default for Share {
    /// All of everything.
    fn default() -> Self {
        Self { rank: 0, ranks: 1 }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank, self.ranks)
    }
}

/// A rank's connections to the others. Clones share them; alone there are none, and every call is for nothing.
#[derive(Clone, Default)]
pub struct Group(Option<Arc<Handle>>);

/// What ends with the last clone.
struct Handle(Arc<Members>);

/// What a rank knows of the others; shared with the threads that listen to them.
struct Members {
    share: Share,
    /// Of rank 0 to all others, of another to rank 0.
    links: Vec<Link>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Why the ranks end before their time, if they do.
    failure: Option<RankError>,
    has_ended: bool,
    /// Frees this rank from waiting for what will never come.
    release: Option<Box<dyn FnOnce() + Send>>,
}

impl Group {
    /// Which rank this is.
    pub fn share(&self) -> Share {
        self.0.as_ref().map(|handle| handle.0.share).unwrap_or_default()
    }

    /// Whether this rank says what is done.
    pub fn leads(&self) -> bool {
        self.share().rank == 0
    }

    /// Tells all followers.
    ///
    /// # Errors
    /// A rank has failed or is lost.
    pub fn tell(&self, value: &impl Serialize) -> Result<(), RankError> {
        let Some(Handle(members)) = self.0.as_deref() else { return Ok(()) };
        members.send(&serde_json::to_vec(value).expect("what ranks tell each other has a JSON form"))
    }

    /// What rank 0 tells next.
    ///
    /// # Errors
    /// As [`Group::tell`], or rank 0 has ended.
    ///
    /// # Panics
    /// If this rank is alone.
    pub fn hear<T: DeserializeOwned>(&self) -> Result<T, RankError> {
        let members = &self.0.as_deref().expect("a follower is not alone").0;
        let message = members.receive(&members.links[0])?;
        serde_json::from_slice(&message)
            .map_err(|error| RankError(format!("rank 0 is of another version of microbatch: {error}")))
    }

    /// What `find` finds on rank 0, on every rank.
    ///
    /// # Errors
    /// What `find` returns, or as [`Group::hear`].
    pub fn from_leader<T: Serialize + DeserializeOwned, E: From<RankError>>(
        &self,
        find: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if !self.leads() {
            return Ok(self.hear()?);
        }
        let value = find()?;
        self.tell(&value)?;
        Ok(value)
    }

    /// Adds up each of `values` over all ranks in their order, so that all have the same bits.
    ///
    /// # Errors
    /// As [`Group::tell`].
    pub fn sum<T: Pod + AddAssign>(&self, values: &mut [T]) -> Result<(), RankError> {
        let Some(Handle(members)) = self.0.as_deref() else { return Ok(()) };
        let receive = |link| {
            let theirs: Vec<T> = bytemuck::pod_collect_to_vec(&members.receive(link)?);
            match theirs.len() == values.len() {
                true => Ok(theirs),
                false => Err(RankError(format!("{} trains another net than the others", members.share))),
            }
        };
        if !self.leads() {
            members.send(bytemuck::cast_slice(values))?;
            let sums = receive(&members.links[0])?;
            return Ok(values.copy_from_slice(&sums));
        }
        let all = members.links.iter().map(receive).collect::<Result<Vec<_>, _>>()?;
        for theirs in all {
            values.iter_mut().zip(theirs).for_each(|(sum, value)| *sum += value);
        }
        members.send(bytemuck::cast_slice(values))
    }

    /// Tells the others that this rank cannot go on, and why, unless one of them has failed before.
    pub fn fail(&self, reason: impl fmt::Display) {
        if let Some(Handle(members)) = self.0.as_deref() {
            members.fail(RankError(format!("{} failed: {reason}", members.share)));
        }
    }

    /// Tells the others that this rank has done all that it had to do.
    pub fn end(&self) {
        if let Some(Handle(members)) = self.0.as_deref() {
            members.state().has_ended = true;
            members.links.iter().for_each(Link::end);
        }
    }

    /// Whether there is nothing more to be done.
    pub fn has_ended(&self) -> bool {
        self.0.as_ref().is_some_and(|handle| handle.0.state().has_ended)
    }

    /// Whether all ranks are there.
    ///
    /// # Errors
    /// The first that has failed, or is lost.
    pub fn check(&self) -> Result<(), RankError> {
        self.0.as_ref().and_then(|handle| handle.0.state().failure.clone()).map_or(Ok(()), Err)
    }

    /// Has `release` run, in another thread, once another rank fails: this one may wait for what will never come.
    pub(crate) fn on_failure(&self, release: impl FnOnce() + Send + 'static) {
        if let Some(Handle(members)) = self.0.as_deref() {
            members.state().release = Some(Box::new(release));
        }
    }
}

impl Members {
    /// A panic elsewhere leaves nothing behind that could not be used.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, bytes: &[u8]) -> Result<(), RankError> {
        self.links.iter().try_for_each(|link| link.send(bytes)).map_err(|error| self.why(error.to_string()))
    }

    fn receive(&self, link: &Link) -> Result<Vec<u8>, RankError> {
        let has_failed = || self.state().failure.is_some();
        link.receive(has_failed).ok_or_else(|| self.why(format!("rank {} has ended", link.rank)))
    }

    /// Keeps `error`, if it is the first, and passes it on.
    fn fail(&self, error: RankError) {
        let mut state = self.state();
        if state.failure.is_none() && !state.has_ended {
            state.failure = Some(error.clone());
            drop(state);
            self.links.iter().for_each(|link| link.pass_on(&error.0));
        }
    }

    /// Why a connection does not work, for which there may be a better reason.
    fn why(&self, reason: String) -> RankError {
        self.fail(RankError(format!("{} failed: {reason}", self.share)));
        self.state().failure.clone().unwrap_or(RankError(reason))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.fail(RankError(format!("{} failed: it has ended before the others", self.0.share)));
        self.0.links.iter().for_each(Link::close);
    }
}
