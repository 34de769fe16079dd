//! How ranks find each other: what a launcher says of them, and a connection of each to rank 0.

use super::{
    Group, Handle, Members, RankError, Share,
    link::{Link, Listener},
};
use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread::sleep,
    time::{Duration, Instant},
};

/// How long ranks wait until all have come, and how long one may be silent then.
const COMING: Duration = Duration::from_secs(120);
const SILENCE: Duration = Duration::from_secs(30);
/// What a rank says first; its number and that of all ranks follow.
const HELLO: &[u8; 16] = b"microbatch ranks";

/// What launchers (torchrun, mpirun, srun) call the rank, how many there are, and the rank on its machine. srun sets the second
/// in its steps only, so that what a batch script starts without it is alone.
const LAUNCHERS: [[&str; 3]; 3] = [
    ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
    ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"],
];

/// This process among those that a launcher has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its rank.
    pub share: Share,
    /// Its number among those of its machine.
    pub local_rank: usize,
    /// Where rank 0 listens.
    pub address: (String, u16),
}

impl Place {
    /// What a launcher's variables say, read by `variable`; nothing of a process that is alone.
    ///
    /// # Errors
    /// A variable that makes no sense.
    pub fn find(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, RankError> {
        let number = |name: &str, below: usize| {
            let Some(value) = variable(name) else { return Ok(None) };
            let number = value.parse().ok().filter(|&number: &usize| number < below).map(Some);
            number.ok_or_else(|| RankError(format!("{name}={value} is no number below {below}")))
        };
        for [rank, ranks, local_rank] in LAUNCHERS {
            let Some(ranks) = number(ranks, 1 << 20)? else { continue };
            let Some(rank) = number(rank, ranks)? else { continue };
            let share = Share { rank, ranks };
            let local_rank = number(local_rank, ranks)?.unwrap_or(rank);
            let host = variable("MASTER_ADDR").unwrap_or_else(|| Ipv4Addr::LOCALHOST.to_string());
            // torchrun itself listens there: rank 0 does so behind it.
            let is_taken = variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True");
            let port = number("MASTER_PORT", 65535)?.unwrap_or(29500) as u16 + u16::from(is_taken);
            return Ok((ranks > 1).then_some(Self { share, local_rank, address: (host, port) }));
        }
        Ok(None)
    }

    /// Connects this process with the others.
    ///
    /// # Errors
    /// One does not come, or is none of this training.
    pub fn join(&self) -> Result<Group, RankError> {
        let Self { share, address: (host, port), .. } = self;
        let links = match share.rank {
            0 => self.gather(),
            _ => reach((host, *port), *share),
        };
        let links = links.map_err(|error| {
            RankError(format!(
                "{share} finds the others not at {host}:{port}, MASTER_ADDR:MASTER_PORT: {error}"
            ))
        });
        group(*share, links?)
    }

    /// The connections of all others, who come in any order. Who is none of them is sent away.
    fn gather(&self) -> io::Result<Vec<(Link, Listener)>> {
        let (deadline, (host, port)) = (Instant::now() + COMING, &self.address);
        let listener = match host.parse() == Ok(Ipv4Addr::LOCALHOST) || host == "localhost" {
            true => TcpListener::bind((Ipv4Addr::LOCALHOST, *port)),
            false => TcpListener::bind((Ipv6Addr::UNSPECIFIED, *port))
                .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port))),
        }?;
        listener.set_nonblocking(true)?;
        let mut links: Vec<Option<(Link, Listener)>> = (1..self.share.ranks).map(|_| None).collect();
        while let Some(missing) = links.iter().position(Option::is_none) {
            match listener.accept() {
                Ok((mut stream, _)) => {
                    let theirs = hear_hello(&mut stream).ok().filter(|share| share.ranks == self.share.ranks);
                    let place = theirs.and_then(|share| links.get_mut(share.rank.checked_sub(1)?));
                    if let Some((place, theirs)) = place.zip(theirs) {
                        *place = Some(Link::new(theirs.rank, stream, SILENCE)?);
                    }
                }
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Err(_) if Instant::now() > deadline => {
                    let reason = format!("rank {} has not come within {COMING:?}", missing + 1);
                    return Err(io::Error::other(reason));
                }
                Err(_) => sleep(Duration::from_millis(10)),
            }
        }
        Ok(links.into_iter().flatten().collect())
    }
}

/// The connection of a follower with rank 0, which may not be there yet.
fn reach(address: (&str, u16), share: Share) -> io::Result<Vec<(Link, Listener)>> {
    let deadline = Instant::now() + COMING;
    let mut stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => sleep(Duration::from_millis(50)),
        }
    };
    stream.write_all(HELLO)?;
    stream.write_all(bytemuck::bytes_of(&[share.rank as u64, share.ranks as u64].map(u64::to_le)))?;
    Ok(vec![Link::new(0, stream, SILENCE)?])
}

fn hear_hello(stream: &mut TcpStream) -> io::Result<Share> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let (mut hello, mut numbers) = ([0; 16], [0u64; 2]);
    stream.read_exact(&mut hello)?;
    stream.read_exact(bytemuck::bytes_of_mut(&mut numbers))?;
    let [rank, ranks] = numbers.map(|number| u64::from_le(number) as usize);
    if hello == *HELLO { Ok(Share { rank, ranks }) } else { Err(io::ErrorKind::InvalidData.into()) }
}

impl Group {
    /// The groups of so many threads of this process, by rank.
    ///
    /// # Errors
    /// The system gives no connections or threads.
    pub fn of_threads(ranks: usize) -> Result<Vec<Self>, RankError> {
        if ranks == 1 {
            return Ok(vec![Self::default()]);
        }
        let connect = || -> io::Result<_> {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let mut links: Vec<Vec<(Link, Listener)>> = vec![Vec::new()];
            for rank in 1..ranks {
                let theirs = TcpStream::connect(listener.local_addr()?)?;
                // Whoever else on this machine comes is sent away.
                let ours = loop {
                    let (ours, from) = listener.accept()?;
                    if from == theirs.local_addr()? {
                        break ours;
                    }
                };
                links[0].push(Link::new(rank, ours, SILENCE)?);
                links.push(vec![Link::new(0, theirs, SILENCE)?]);
            }
            Ok(links)
        };
        let links = connect().map_err(|error| RankError(format!("ranks cannot be connected: {error}")))?;
        links.into_iter().enumerate().map(|(rank, links)| group(Share { rank, ranks }, links)).collect()
    }
}

fn group(share: Share, links: Vec<(Link, Listener)>) -> Result<Group, RankError> {
    let (links, listeners): (Vec<Link>, Vec<Listener>) = links.into_iter().unzip();
    let members = Arc::new(Members { share, links, state: Mutex::default() });
    for (link, listener) in listeners.into_iter().enumerate() {
        let started = listener.start(&members, link);
        started.map_err(|error| RankError(format!("{share} has no thread to listen: {error}")))?;
    }
    Ok(Group(Some(Arc::new(Handle(members)))))
}
