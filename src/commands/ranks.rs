//! One net on several devices: a thread for each, or a process for each that a launcher has started.

use crate::{Error, args::RunArgs, device};
use std::thread;
use tensor::Cpu;
use trainer::{Group, group::Place};

/// Does `body` on each of the devices that `args` name, as the ranks of a group; the first one's result is that of all.
pub(super) fn on_each<A: Clone + Send + Sync>(
    args: &A,
    run: fn(&mut A) -> &mut RunArgs,
    body: impl Fn(&A, &Group) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let named = run(&mut args.clone()).device.clone();
    let place = Place::find(|name| std::env::var(name).ok())?;
    let devices = match &place {
        Some(place) => vec![device::of_rank(&named, place.local_rank)?],
        None => device::listed(&named)?,
    };
    let groups = match &place {
        Some(place) => vec![place.join()?],
        None => Group::of_threads(devices.len())?,
    };
    let of_each = (Cpu::available_threads() / devices.len()).max(1);
    let on = |(group, device): (Group, &String)| {
        let mut args = args.clone();
        let RunArgs { device: own, threads, .. } = run(&mut args);
        own.clone_from(device);
        if devices.len() > 1 && device == "cpu" {
            threads.get_or_insert(of_each);
        }
        let result = body(&args, &group);
        match &result {
            Err(error) if !error.is_stop() => group.fail(error),
            _ => group.end(),
        }
        result
    };
    thread::scope(|scope| {
        let mut ranks = groups.into_iter().zip(&devices);
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
