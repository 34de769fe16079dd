//! The ranks of one training: replicas of a net, a device each, in threads of a process or in processes of their own.
//!
//! ```text
//! rank 1 ──┐
//! rank 2 ──┼── TCP ──► rank 0, which leads: it measures, plans, tests, displays and writes snapshots, and tells the others
//! rank N ──┘           what comes next; they follow
//! ```
//!
//! Little travels here: plans, what comes next, why a rank has failed. Gradients do so between processors; GPUs sum
//! theirs by NCCL. Whatever happens to one rank, each of the others has the same sentence about it.

mod connect;
mod link;
#[cfg(test)]
mod tests;

use bytemuck::Pod;
use link::Link;
use serde::{Serialize, de::DeserializeOwned};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::Sender};
use std::{fmt, ops::AddAssign};
use thiserror::Error;

pub use connect::Launched;

/// Why the ranks cannot go on together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct RankError(String);

/// One of how many ranks: which samples of each mini-batch are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The rank, counted from 0.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
}

impl Default for Share {
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
    failure: Option<RankError>,
    has_ended: bool,
    /// Frees this rank from waiting for what will never come.
    release: Option<Box<dyn FnOnce() + Send>>,
}

impl Group {
    fn members(&self) -> Option<&Members> {
        Some(&self.0.as_deref()?.0)
    }

    /// Which rank this is.
    pub fn share(&self) -> Share {
        self.members().map(|members| members.share).unwrap_or_default()
    }

    /// Whether this is rank 0.
    pub fn leads(&self) -> bool {
        self.share().rank == 0
    }

    /// What `find` finds on rank 0, on every rank.
    ///
    /// # Errors
    /// What `find` returns; a rank has failed, is lost or has ended.
    pub fn from_leader<T: Serialize + DeserializeOwned, E: From<RankError>>(
        &self,
        find: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let Some(members) = self.members() else { return find() };
        if self.leads() {
            let value = find()?;
            members.send(&serde_json::to_vec(&value).expect("what ranks tell each other has a JSON form"))?;
            return Ok(value);
        }
        let value = serde_json::from_slice(&members.receive(&members.links[0])?);
        Ok(value.map_err(|error| RankError(format!("rank 0 is another version of microbatch: {error}")))?)
    }

    /// Adds up each of `values` over all ranks in their order, so that all have the same bits.
    pub(crate) fn sum<T: Pod + AddAssign>(&self, values: &mut [T]) -> Result<(), RankError> {
        let Some(members) = self.members() else { return Ok(()) };
        let receive = |link| -> Result<Vec<T>, RankError> {
            let theirs = bytemuck::pod_collect_to_vec(&members.receive(link)?);
            let other = || RankError(format!("rank {} trains another net", link.rank));
            (theirs.len() == values.len()).then_some(theirs).ok_or_else(other)
        };
        if !self.leads() {
            members.send(bytemuck::cast_slice(values))?;
            values.copy_from_slice(&receive(&members.links[0])?);
            return Ok(());
        }
        for theirs in members.links.iter().map(receive).collect::<Result<Vec<_>, _>>()? {
            values.iter_mut().zip(theirs).for_each(|(sum, value)| *sum += value);
        }
        members.send(bytemuck::cast_slice(values))
    }

    /// Tells the others that this rank has done all that it had to, or why it cannot, unless one of them failed before.
    pub fn finish(&self, result: Result<(), impl fmt::Display>) {
        let Some(members) = self.members() else { return };
        match result {
            Err(reason) => members.fail(RankError(format!("{} failed: {reason}", members.share))),
            Ok(()) => {
                members.state().has_ended = true;
                members.links.iter().for_each(|link| drop(link.send(link::END, &[])));
            }
        }
    }

    /// Whether there is nothing more to be done, as rank 0 has ended.
    pub fn has_ended(&self) -> bool {
        self.members().is_some_and(|members| members.state().has_ended)
    }

    /// Whether all ranks are there.
    pub(crate) fn check(&self) -> Result<(), RankError> {
        self.members().and_then(|members| members.state().failure.clone()).map_or(Ok(()), Err)
    }

    /// Has `release` run, in another thread, once another rank fails: this one may wait for what will never come.
    pub(crate) fn on_failure(&self, release: impl FnOnce() + Send + 'static) {
        if let Some(members) = self.members() {
            members.state().release = Some(Box::new(release));
        }
    }
}

impl Members {
    /// A panic elsewhere leaves nothing behind that could not be used.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens to a connection until a rank fails or all end.
    fn listen(&self, link: &Link, arrived: Sender<Vec<u8>>) {
        match link.listen(self.share.ranks, &arrived) {
            Ok(()) => self.state().has_ended |= link.rank == 0,
            Err(reason) => {
                self.fail(RankError(reason));
                drop(arrived);
                let release = self.state().release.take();
                release.into_iter().for_each(|release| release());
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<(), RankError> {
        let sent = self.links.iter().try_for_each(|link| link.send(link::MESSAGE, bytes));
        sent.map_err(|error| self.why(error.to_string()))
    }

    fn receive(&self, link: &Link) -> Result<Vec<u8>, RankError> {
        link.receive().ok_or_else(|| self.why(format!("rank {} has ended", link.rank)))
    }

    /// Keeps `error`, if it is the first, and passes it on. Where that does not arrive, they know already.
    fn fail(&self, error: RankError) {
        let mut state = self.state();
        if state.failure.is_none() && !state.has_ended {
            state.failure = Some(error.clone());
            drop(state);
            self.links.iter().for_each(|link| drop(link.send(link::FAILED, error.0.as_bytes())));
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
