//! How ranks find each other: what a launcher says of them, and a connection of each to rank 0.

use super::{Group, Handle, Members, RankError, Share, link, link::Link};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex, mpsc::Sender};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// How long ranks wait until all have come.
const COMING: Duration = Duration::from_secs(120);
/// What a rank says first; its number and that of all ranks follow.
const HELLO: &[u8; 16] = b"microbatch ranks";

/// What launchers (torchrun, mpirun, srun) call the rank, how many there are, and the rank on its machine. srun sets
/// the second in its steps only, so that what a batch script starts without it is alone.
const LAUNCHERS: [[&str; 3]; 3] = [
    ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
    ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"],
];

/// A connection that nobody listens to yet, and where its messages are put.
type Connection = (Link, Sender<Vec<u8>>);

/// A rank that knows where rank 0 is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// The rank.
    pub share: Share,
    /// Its number among those of its machine.
    pub local_rank: usize,
    /// Where rank 0 listens.
    pub address: (String, u16),
}

impl Launched {
    /// What a launcher's variables say, read by `variable`; nothing of a process that is alone.
    ///
    /// # Errors
    /// A variable that makes no sense.
    pub fn find(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, RankError> {
        let number = |name: &str, range: Range<usize>| {
            let Some(value) = variable(name) else { return Ok(None) };
            let number = value.parse().ok().filter(|number| range.contains(number)).map(Some);
            let (first, last) = (range.start, range.end - 1);
            number.ok_or_else(|| RankError(format!("{name}={value} is no number from {first} to {last}")))
        };
        for [rank, ranks, local_rank] in LAUNCHERS {
            let Some(ranks) = number(ranks, 1..1 << 20)? else { continue };
            let Some(rank) = number(rank, 0..ranks)? else { continue };
            let local_rank = number(local_rank, 0..ranks)?.unwrap_or(rank);
            let host = variable("MASTER_ADDR").unwrap_or_else(|| Ipv4Addr::LOCALHOST.to_string());
            // torchrun itself listens there: rank 0 does so behind it.
            let is_taken = variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value == "True");
            let behind = usize::from(is_taken);
            let port = (number("MASTER_PORT", 1..65536 - behind)?.unwrap_or(29500) + behind) as u16;
            let share = Share { rank, ranks };
            return Ok((ranks > 1).then_some(Self { share, local_rank, address: (host, port) }));
        }
        Ok(None)
    }

    /// All ranks of a group on this machine, each for a thread of this process.
    ///
    /// # Errors
    /// The system gives no port.
    pub fn here(ranks: usize) -> Result<Vec<Self>, RankError> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let port = port.map_err(|error| RankError(format!("ranks find no port: {error}")))?.port();
        let address = (Ipv4Addr::LOCALHOST.to_string(), port);
        let rank = |rank| Self { share: Share { rank, ranks }, local_rank: rank, address: address.clone() };
        Ok((0..ranks).map(rank).collect())
    }

    /// Connects this rank with the others, if there are any.
    ///
    /// # Errors
    /// One does not come.
    pub fn join(&self) -> Result<Group, RankError> {
        let Self { share, address: (host, port), .. } = self;
        let links = match share {
            Share { ranks: 1, .. } => return Ok(Group::default()),
            Share { rank: 0, .. } => self.gather(),
            _ => self.reach(),
        };
        let failed = |error: io::Error| {
            RankError(format!(
                "{share} does not find the others at {host}:{port} (MASTER_ADDR, MASTER_PORT): {error}"
            ))
        };
        let (links, arrivals): (Vec<_>, Vec<_>) = links.map_err(failed)?.into_iter().unzip();
        let members = Arc::new(Members { share: *share, links, state: Mutex::default() });
        for (link, arrived) in arrivals.into_iter().enumerate() {
            let (thread, members) = (thread::Builder::new().name("rank".to_owned()), members.clone());
            thread.spawn(move || members.listen(&members.links[link], arrived)).map_err(failed)?;
        }
        Ok(Group(Some(Arc::new(Handle(members)))))
    }

    /// Of rank 0 with all others, who come in any order. Who is none of them is sent away.
    fn gather(&self) -> io::Result<Vec<Connection>> {
        let (deadline, (host, port)) = (Instant::now() + COMING, &self.address);
        let listener = match host == "localhost" || host.parse() == Ok(Ipv4Addr::LOCALHOST) {
            true => TcpListener::bind((Ipv4Addr::LOCALHOST, *port)),
            false => TcpListener::bind((Ipv6Addr::UNSPECIFIED, *port))
                .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port))),
        }?;
        listener.set_nonblocking(true)?;
        let mut links: Vec<Option<Connection>> = (1..self.share.ranks).map(|_| None).collect();
        while let Some(missing) = links.iter().position(Option::is_none) {
            match listener.accept() {
                Ok((mut stream, _)) => {
                    let Ok(Share { rank, ranks }) = hear_hello(&mut stream) else { continue };
                    let (link, own) = (Link::new(rank, stream)?, self.share.ranks);
                    let fault = match links.get_mut(rank.wrapping_sub(1)) {
                        _ if ranks != own => format!("rank {rank} counts {ranks} ranks, rank 0 counts {own}"),
                        Some(place @ None) => {
                            *place = Some(link);
                            continue;
                        }
                        _ => format!("there are two ranks {rank}"),
                    };
                    let told = links.iter().flatten().chain([&link]);
                    told.for_each(|(link, _)| drop(link.send(link::FAILED, fault.as_bytes())));
                    return Err(io::Error::other(fault));
                }
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Err(_) if Instant::now() > deadline => {
                    let (rank, seconds) = (missing + 1, COMING.as_secs());
                    return Err(io::Error::other(format!("rank {rank} has not come within {seconds} s")));
                }
                Err(_) => sleep(Duration::from_millis(10)),
            }
        }
        Ok(links.into_iter().flatten().collect())
    }

    /// Of a follower with rank 0, which may not be there yet.
    fn reach(&self) -> io::Result<Vec<Connection>> {
        let (deadline, (host, port)) = (Instant::now() + COMING, &self.address);
        let mut stream = loop {
            match TcpStream::connect((&**host, *port)) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => sleep(Duration::from_millis(50)),
            }
        };
        let numbers = [self.share.rank, self.share.ranks].map(|number| (number as u64).to_le_bytes());
        stream.write_all(&[HELLO, numbers.as_flattened()].concat())?;
        Ok(vec![Link::new(0, stream)?])
    }
}

fn hear_hello(stream: &mut TcpStream) -> io::Result<Share> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let (mut hello, mut numbers) = ([0; 16], [[0; 8]; 2]);
    stream.read_exact(&mut hello)?;
    stream.read_exact(numbers.as_flattened_mut())?;
    let [rank, ranks] = numbers.map(|number| u64::from_le_bytes(number) as usize);
    if hello == *HELLO { Ok(Share { rank, ranks }) } else { Err(io::ErrorKind::InvalidData.into()) }
}
