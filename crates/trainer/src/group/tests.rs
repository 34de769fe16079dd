//! Ranks in threads, and what launchers say.

use super::{Group, Launched, RankError, Share};
use std::{collections::HashMap, fmt::Debug, net::TcpStream, thread, time::Duration};

/// What `body` returns on each rank.
fn on_each<T: Send + Debug>(ranks: usize, body: impl Fn(Group) -> T + Sync) -> Vec<T> {
    let ranks = Launched::here(ranks).unwrap();
    thread::scope(|scope| {
        let threads: Vec<_> =
            ranks.into_iter().map(|rank| scope.spawn(|| body({ rank }.join().unwrap()))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn sums_have_the_same_bits_on_every_rank_and_follow_the_order_of_ranks() {
    // In any other order, 1 would be lost beside the large numbers.
    let own = [1e8f32, -1e8, 1.0, 0.5];
    let sums = on_each(4, |group| {
        let rank = group.share().rank;
        thread::sleep(Duration::from_millis(20 * (4 - rank as u64)));
        let mut values = [own[rank], rank as f32];
        group.sum(&mut values).unwrap();
        group.finish(Ok::<(), RankError>(()));
        values
    });
    assert_eq!(sums, [[1.5, 6.0]; 4]);
}

#[test]
fn what_rank_0_finds_all_have() {
    let found = on_each(3, |group| {
        let value =
            group.from_leader(|| Ok::<_, RankError>((group.share().rank, "plan".to_owned()))).unwrap();
        assert!(group.from_leader(|| Err::<u8, _>(RankError("nothing".to_owned()))).is_err());
        value
    });
    assert_eq!(found, vec![(0, "plan".to_owned()); 3]);
}

/// Whoever fails, all others say so in the same sentence, wherever they wait.
#[test]
fn a_rank_that_fails_is_named_by_all_others() {
    for failing in 0..3 {
        let told = on_each(3, |group| {
            if group.share().rank == failing {
                group.finish(Err("layer 'loss': no label"));
                return None;
            }
            let waited = match group.share().rank {
                1 => group.from_leader(|| Ok::<u8, RankError>(0)).err(),
                _ => (0..2).find_map(|_| group.sum(&mut [0.0f64]).err()),
            };
            assert_eq!(waited, group.check().err());
            waited.map(|error| error.to_string())
        });
        let sentence = format!("rank {failing} of 3 failed: layer 'loss': no label");
        let expected: Vec<_> = (0..3).map(|rank| (rank != failing).then(|| sentence.clone())).collect();
        assert_eq!(told, expected);
    }
}

#[test]
fn a_rank_that_panics_or_trains_another_net_is_no_end_without_a_sentence() {
    let told = on_each(2, |group| match group.share().rank {
        0 => group.sum(&mut [0.0f64]).unwrap_err().to_string(),
        _ => drop_group(group),
    });
    assert_eq!(told[0], "rank 1 of 2 failed: it has ended before the others");
    let told = on_each(2, |group| {
        let rank = group.share().rank;
        group.sum(&mut vec![0.0f32; 2 + rank]).unwrap_err().to_string()
    });
    assert_eq!(told[0], "rank 1 trains another net");
}

fn drop_group(group: Group) -> String {
    drop(group);
    String::new()
}

/// Nobody who waits on the GPU hears anything: a hook frees them.
#[test]
fn a_rank_that_waits_elsewhere_is_released() {
    on_each(2, |group| {
        if group.share().rank == 1 {
            return;
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        group.on_failure(move || sender.send(()).unwrap());
        receiver.recv_timeout(Duration::from_secs(20)).expect("it is released");
        assert!(group.check().is_err());
    });
}

#[test]
fn strangers_are_sent_away() {
    let ranks = Launched::here(2).unwrap();
    let address = ranks[0].address.clone();
    thread::scope(|scope| {
        let leader = scope.spawn(|| ranks[0].join().unwrap());
        let stranger = (0..200).find_map(|_| {
            thread::sleep(Duration::from_millis(10));
            TcpStream::connect((&*address.0, address.1)).ok()
        });
        drop(stranger.expect("rank 0 listens"));
        let follower = ranks[1].join().unwrap();
        let leader = leader.join().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| leader.sum(&mut [1.0f64]).unwrap());
            let mut value = [2.0f64];
            follower.sum(&mut value).unwrap();
            assert_eq!(value, [3.0]);
        });
        leader.finish(Ok::<(), RankError>(()));
    });
}

/// Whoever is one too many, or of another group, and all who wait with it are told.
#[test]
fn ranks_that_do_not_go_together_are_told_why() {
    for (share, sentence) in [
        (Share { rank: 1, ranks: 3 }, "there are two ranks 1"),
        (Share { rank: 2, ranks: 4 }, "rank 2 counts 4 ranks, rank 0 counts 3"),
    ] {
        let ranks = Launched::here(3).unwrap();
        let other = Launched { share, ..ranks[1].clone() };
        let waits = |rank: &Launched| {
            rank.join().unwrap().from_leader(|| Ok::<u8, RankError>(0)).unwrap_err().to_string()
        };
        thread::scope(|scope| {
            let leader = scope.spawn(|| ranks[0].join().err().unwrap().to_string());
            let first = scope.spawn(|| waits(&ranks[1]));
            thread::sleep(Duration::from_millis(300));
            assert_eq!([waits(&other), first.join().unwrap()], [sentence; 2]);
            assert!(leader.join().unwrap().ends_with(sentence));
        });
    }
}

#[test]
fn launchers_say_which_rank_a_process_is() {
    let find = |variables: &[(&str, &str)]| {
        let variables: HashMap<&str, &str> = variables.iter().copied().collect();
        Launched::find(|name| variables.get(name).map(|&value| value.to_owned()))
    };
    let launched = |[rank, ranks, local_rank]: [usize; 3], host: &str, port| {
        let (share, address) = (Share { rank, ranks }, (host.to_owned(), port));
        Ok(Some(Launched { share, local_rank, address }))
    };
    assert_eq!(find(&[]), Ok(None));
    let torchrun = [
        ("RANK", "9"),
        ("WORLD_SIZE", "16"),
        ("LOCAL_RANK", "1"),
        ("MASTER_ADDR", "node0"),
        ("MASTER_PORT", "3000"),
    ];
    assert_eq!(find(&torchrun), launched([9, 16, 1], "node0", 3000));
    let agent = [&torchrun[..], &[("TORCHELASTIC_USE_AGENT_STORE", "True")]].concat();
    assert_eq!(find(&agent), launched([9, 16, 1], "node0", 3001));
    let mpirun =
        [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2"), ("OMPI_COMM_WORLD_LOCAL_RANK", "1")];
    assert_eq!(find(&mpirun), launched([1, 2, 1], "127.0.0.1", 29500));
    let srun =
        [("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_LOCALID", "0"), ("MASTER_ADDR", "a")];
    assert_eq!(find(&srun), launched([3, 4, 0], "a", 29500));
    // One process of a batch script is alone, and so is the only one of a launcher.
    assert_eq!(find(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]), Ok(None));
    assert_eq!(find(&[("RANK", "0"), ("WORLD_SIZE", "1")]), Ok(None));
    let wrong = |variables: &[(&str, &str)]| find(variables).unwrap_err().to_string();
    assert_eq!(wrong(&[("RANK", "2"), ("WORLD_SIZE", "2")]), "RANK=2 is no number from 0 to 1");
    wrong(&[("RANK", "x"), ("WORLD_SIZE", "2")]);
    wrong(&[("RANK", "0"), ("WORLD_SIZE", "0")]);
    let at = |port| [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a"), ("MASTER_PORT", port)];
    assert_eq!(find(&at("65535")), launched([1, 2, 1], "a", 65535));
    assert_eq!(wrong(&at("0")), "MASTER_PORT=0 is no number from 1 to 65535");
    wrong(&[&at("65535")[..], &[("TORCHELASTIC_USE_AGENT_STORE", "True")]].concat());
}
