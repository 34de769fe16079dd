//! One net on several devices: a thread for each, or a process for each that a launcher has started.

use crate::{Error, Result, args::RunArgs, device, progress};
use std::thread;
use tensor::Cpu;
use trainer::{Group, group::Launched};

/// Does `body` on each of the devices that `run` names, as the ranks of a group; the first one's result is that of all.
pub(super) fn on_each(run: &RunArgs, body: impl Fn(&RunArgs, &Group) -> Result<()> + Sync) -> Result<()> {
    let named = &run.device;
    let launched = Launched::find(|name| std::env::var(name).ok());
    let (devices, ranks) = match launched.map_err(|error| usage!("{error}"))? {
        Some(rank) => (vec![device::of_rank(named, rank.local_rank)?], vec![rank]),
        None => {
            let devices = device::listed(named)?;
            let ranks = Launched::here(devices.len())?;
            (devices, ranks)
        }
    };
    let on = |(device, rank): (&String, Launched)| {
        let mut run = RunArgs { device: device.clone(), ..run.clone() };
        if devices.len() > 1 && device == "cpu" {
            run.threads.get_or_insert((Cpu::available_threads() / devices.len()).max(1));
        }
        let waiting = (rank.share.ranks > 1).then(|| {
            progress::one_step("starting", "the other ranks have not come yet (WORLD_SIZE, MASTER_ADDR)")
        });
        let group = rank.join()?;
        drop(waiting);
        let result = body(&run, &group);
        let is_fault = result.as_ref().is_err_and(|error| !error.is_stop());
        group.finish(if is_fault { result.as_ref().copied() } else { Ok(()) });
        result
    };
    thread::scope(|scope| {
        let mut ranks = devices.iter().zip(ranks);
        let first = ranks.next().expect("there is a device");
        for rank in ranks {
            let thread = thread::Builder::new().name("rank".to_owned());
            if let Err(error) = thread.spawn_scoped(scope, || on(rank).ok()) {
                return Err(Error::Refused(format!("the system gives no thread for a rank: {error}")));
            }
        }
        on(first)
    })
}
