//! Sizes and policies as text.

use planner::*;

#[test]
fn sizes_are_read_in_every_unit() {
    let table = [
        ("0", 0),
        ("4096", 4096),
        ("4096B", 4096),
        ("512KiB", 512 << 10),
        ("64MiB", 64 << 20),
        ("64 MiB", 64 << 20),
        (" 64mib ", 64 << 20),
        ("1GiB", 1 << 30),
        ("2TiB", 2 << 40),
        ("64M", 64 << 20),
        ("64Mi", 64 << 20),
        ("1.5g", 3 << 29),
        ("8K", 8 << 10),
        ("2Ti", 2 << 40),
        ("64KB", 64_000),
        ("64MB", 64_000_000),
        ("1GB", 1_000_000_000),
        ("1TB", 1_000_000_000_000),
        ("1.5GiB", 3 << 29),
        ("0.5MiB", 1 << 19),
        ("0.0001KiB", 0),
        ("1.25MB", 1_250_000),
        ("18446744073709551615", u64::MAX),
    ];
    for (text, bytes) in table {
        assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
    }
}

#[test]
fn what_is_no_size_says_why() {
    let table = [
        ("", "a size is missing: write bytes or a unit, such as 64MiB"),
        ("  ", "a size is missing: write bytes or a unit, such as 64MiB"),
        ("-1", "\"-1\" is not a size: it is negative"),
        ("-64MiB", "\"-64MiB\" is not a size: it is negative"),
        (
            "64MB0",
            "\"64MB0\" is not a size: \"MB0\" is no unit (use B, KiB, MiB, GiB, TiB or KB, MB, GB, TB)",
        ),
        ("64P", "\"64P\" is not a size: \"P\" is no unit (use B, KiB, MiB, GiB, TiB or KB, MB, GB, TB)"),
        ("1e9", "\"1e9\" is not a size: \"e9\" is no unit (use B, KiB, MiB, GiB, TiB or KB, MB, GB, TB)"),
        ("MiB", "\"MiB\" is not a size: it must begin with a number, such as 64MiB or 1.5GiB"),
        (".5MiB", "\".5MiB\" is not a size: it must begin with a number, such as 64MiB or 1.5GiB"),
        ("5.MiB", "\"5.MiB\" is not a size: it must begin with a number, such as 64MiB or 1.5GiB"),
        ("1.2.3MiB", "\"1.2.3MiB\" is not a size: it must begin with a number, such as 64MiB or 1.5GiB"),
        ("1.5", "\"1.5\" is not a size: bytes have no fractions (is a unit missing?)"),
        ("18446744073709551616", "\"18446744073709551616\" is not a size: it is larger than 2^64 - 1 bytes"),
        ("17000000TiB", "\"17000000TiB\" is not a size: it is larger than 2^64 - 1 bytes"),
    ];
    for (text, message) in table {
        assert_eq!(text.parse::<Bytes>().unwrap_err().to_string(), message);
    }
}

#[test]
fn sizes_print_in_their_natural_unit() {
    let table = [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (4403, "4.3 KiB"),
        (64 << 20, "64 MiB"),
        (51_275_366, "48.9 MiB"),
        ((1 << 20) - 1, "1 MiB"),
        (3 << 29, "1.5 GiB"),
        (5 << 50, "5120 TiB"),
    ];
    for (bytes, text) in table {
        assert_eq!(Bytes(bytes).to_string(), text);
    }
    assert_eq!(Bytes(4400).exact(), "4.3 KiB (4400 bytes)");
    assert_eq!(Bytes::mib(64).exact(), "64 MiB");
    assert_eq!(Bytes::mib(1 << 44), Bytes::MAX, "what is larger than any size is no small one");
    assert_eq!(format!("[{:>8}]", Bytes::mib(64)), "[  64 MiB]");
}

#[test]
fn power_of_two_adds_the_mini_batch_itself() {
    assert_eq!(BatchSizePolicy::PowerOfTwo.sizes(100), [1, 2, 4, 8, 16, 32, 64, 100]);
    assert_eq!(BatchSizePolicy::PowerOfTwo.sizes(64), [1, 2, 4, 8, 16, 32, 64]);
    assert_eq!(BatchSizePolicy::PowerOfTwo.sizes(3), [1, 2, 3]);
    assert_eq!(BatchSizePolicy::PowerOfTwo.sizes(u32::MAX).len(), 33);
    assert_eq!(BatchSizePolicy::Undivided.sizes(100), [100]);
    assert_eq!(BatchSizePolicy::All.sizes(4), [1, 2, 3, 4]);
    for policy in BatchSizePolicy::ALL {
        assert!(policy.sizes(0).is_empty());
    }
}

#[test]
fn policies_are_read_as_they_are_printed() {
    for policy in BatchSizePolicy::ALL {
        assert_eq!(policy.to_string().parse(), Ok(policy));
        assert_eq!(serde_json::to_string(&policy).unwrap(), format!("\"{policy}\""));
    }
    for policy in WorkspacePolicy::ALL {
        assert_eq!(policy.to_string().parse(), Ok(policy));
        assert_eq!(serde_json::to_string(&policy).unwrap(), format!("\"{policy}\""));
    }
    assert_eq!("powerofTwo".parse(), Ok(BatchSizePolicy::PowerOfTwo));
    let error = "half".parse::<BatchSizePolicy>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"half\" is no batch-size policy: choose undivided, powerOfTwo, adaptive or all"
    );
    let error = "".parse::<WorkspacePolicy>().unwrap_err();
    assert_eq!(error.to_string(), "\"\" is no workspace policy: choose wr, wd or ws");
}

#[test]
fn algorithms_print_without_the_values_of_an_engines_knobs() {
    for (name, printed) in [
        ("ENG62_K2=18_K27=2", "ENG62"),
        ("S2D_ENG62_K2=18", "S2D_ENG62"),
        ("ENG62", "ENG62"),
        ("WINOGRAD_4X4_3X3", "WINOGRAD_4X4_3X3"),
        ("FFT_K8", "FFT_K8"),
    ] {
        let algorithm = Algorithm::from(name);
        assert_eq!((algorithm.to_string().as_str(), algorithm.as_str()), (printed, name));
    }
}
