//! The memory of this process, in a process where no other test allocates.
#![cfg(target_os = "linux")]

use planner::Bytes;
use tensor::Device;
use trainer::host::{check_memory, release_freed, resident};

/// Small pieces, which the C library keeps when they are freed: one behind them stays in use.
#[test]
#[cfg(target_env = "gnu")]
fn freed_memory_is_not_resident() {
    let pieces: Vec<Vec<u8>> = (0..16_384).map(|_| vec![1; 4000]).collect();
    let kept = vec![1u8; 4000];
    let before = resident().unwrap();
    drop(pieces);
    release_freed();
    let after = resident().unwrap();
    assert!(after + Bytes::mib(50) < before, "{before} before, {after} after {} bytes kept", kept.len());
}

#[test]
fn more_memory_than_the_machine_has_is_refused() {
    let device = Device::cpu();
    let check = |arena, host, at_start| check_memory(&device, [arena, host], at_start);
    assert!(check(Bytes::mib(1), Bytes::mib(1), None).is_ok());
    for (arena, host) in [(1 << 40, 0), (0, 1 << 40)] {
        let error = check(Bytes::mib(arena), Bytes::mib(host), None).unwrap_err();
        assert!(error.to_string().starts_with("the run needs"), "{error}");
    }
    let resident = resident().unwrap();
    assert!(check(Bytes::ZERO, resident, Some(Bytes::ZERO)).is_ok(), "it is there already");
}
