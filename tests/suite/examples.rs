//! The models' folders, through the command: what the examples do is this with defaults; and the lessons, which check
//! themselves.

use crate::fixtures::Folder;

macro_rules! lessons {
    ($($file:literal $module:ident $test:ident)*) => {$(
        #[path = $file]
        mod $module;

        #[test]
        fn $test() {
            $module::main().unwrap();
        }
    )*};
}

lessons! {
    "../../examples/01_four_ways.rs" four_ways every_algorithm_computes_the_same
    "../../examples/02_the_cliff.rs" the_cliff one_byte_less_is_much_slower
    "../../examples/03_a_desirable_set.rs" a_desirable_set nobody_wants_more_for_nothing
    "../../examples/04_wr_on_a_kernel.rs" wr_on_a_kernel more_workspace_takes_less_time
    "../../examples/05_wd_on_a_net.rs" wd_on_a_net one_arena_wins_over_a_division
    "../../examples/06_split_equals_undivided.rs" split_equals_undivided a_divided_mini_batch_gives_the_same
    "../../examples/07_a_net_trained.rs" a_net_trained a_net_in_a_program_learns
}

#[test]
fn a_model_of_the_repository_is_planned_on_synthetic_images() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/cifar10_quick/net.prototxt");
    let report = Folder::new().json(&format!("plan --model {model} --batch 2 --synthetic=3x32x32"));
    assert_eq!(report["net"]["kernels"], report["plan"]["kernels"].as_array().unwrap().len());
    assert!(report["memory"]["arena"].as_u64().unwrap() > 0);
}

/// The deeper nets of the vDNN paper have 20 more convolutions in each of the five groups for every 100 layers.
#[test]
fn deep_nets_are_printed_from_the_one_that_is_kept_as_a_file() {
    let folder = Folder::new();
    let file =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/models/vgg16/net.prototxt")).unwrap();
    let net = |depth: usize| folder.succeed(&format!("model vgg --depth {depth}"));
    assert!(file.ends_with(&net(16)));
    let deep = net(416);
    let spec = trainer::spec::NetSpec::parse("net.prototxt".as_ref(), &deep).unwrap();
    let layers = |kind: &str| spec.layers.iter().filter(|layer| layer.kind.type_name() == kind).count();
    assert_eq!(
        [layers("Convolution"), layers("ReLU"), layers("InnerProduct"), layers("Pooling")],
        [413, 415, 3, 5]
    );
    assert_eq!((spec.name.as_str(), spec.warnings.len()), ("vgg416", 0));
    for (layer, bottom) in
        [("conv2_3", "conv2_2"), ("conv2_82", "conv2_81"), ("pool2", "conv2_82"), ("conv3_1", "pool2")]
    {
        let layer = spec.layers.iter().find(|found| found.name == layer).unwrap();
        assert_eq!(layer.bottoms, [bottom]);
    }
    for depth in ["15", "17", "0"] {
        assert_eq!(folder.run(&format!("model vgg --depth {depth}")).status.code(), Some(2));
    }
}
