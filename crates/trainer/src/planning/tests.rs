//! Recorded plans: what they are good for, and what a damaged file may say.

use super::{PlanOrigin, PlanRecord, Planning, Rates, Records, estimated_costs, identity};
use crate::snapshot::{load_tensors, save_tensors};
use crate::{error::NetError, stop::Stop, testing::build};
use cudnn_layers::conv::candidates;
use files::database::Database;
use planner::{
    BatchSizePolicy, Bytes, Configuration, ConvOp, ConvShape, DeviceHeader, Dtype, Explanation, Kernel,
    KernelId, Layout, Math, Measurement, Plan, PlanOptions, PlannedKernel, Profiler, ProfilerError, Request,
    Run,
};
use std::{collections::BTreeMap, sync::atomic::Ordering};

/// The plan of one kernel, three samples and then one.
pub(crate) fn record() -> PlanRecord {
    let micro = |micro_batch: u32| Measurement {
        shared_ms: 0.0,
        algorithm: "FFT".into(),
        micro_batch,
        time_ms: 0.25 * f64::from(micro_batch),
        workspace: Bytes(512 * u64::from(micro_batch)),
        max_error: 1e-6,
        deterministic: true,
    };
    let runs = [3, 1].map(|micro_batch| Run { count: 1, micro: micro(micro_batch) });
    let id = KernelId {
        op: ConvOp::Forward,
        shape: ConvShape::default(),
        dtype: Dtype::F32,
        math: Math::Fp32,
        layout: Layout::Nchw,
    };
    let planned = PlannedKernel {
        kernel: Kernel { name: "conv1".to_owned(), id, mini_batch: 4 },
        configuration: Configuration::new(runs),
        available: Bytes::ZERO,
        workspace: Bytes(1536),
        undivided: None,
        explanation: Explanation::FastestMeasured,
    };
    let plan = Plan {
        options: PlanOptions::default(),
        kernels: vec![planned],
        time_ms: 1.0,
        undivided_time_ms: None,
        division: None,
    };
    let device = DeviceHeader { name: "a processor".to_owned(), ..DeviceHeader::default() };
    PlanRecord { device, plans: vec![plan], schedules: None }
}

#[test]
fn plans_that_no_planner_made_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let save = |record: &str| {
        save_tensors(&path, &[], &BTreeMap::from([("plans".to_owned(), record.to_owned())])).unwrap();
        PlanRecord::recorded(&load_tensors(&path).unwrap())
    };
    let good = serde_json::to_string(&record()).unwrap();
    assert_eq!(save(&good).unwrap(), Some(record()));
    for (from, to, part) in [
        ("{", "", "(invalid type"),
        ("\"micro_batch\":3", "\"micro_batch\":2", "(the micro-batches of conv1 Forward cannot be)"),
        ("\"count\":1", "\"count\":4294967295", "(the micro-batches of conv1 Forward cannot be)"),
        ("\"workspace\":1536", "\"workspace\":1280", "(the workspace of conv1 Forward cannot be)"),
    ] {
        assert!(good.contains(from), "{from} is not in {good}");
        let error = save(&good.replacen(from, to, 1)).unwrap_err().to_string();
        let whole = format!("{} is not a complete snapshot: its plans are damaged {part}", path.display());
        assert!(error.starts_with(&whole), "{error}\nis not\n{whole}");
    }
    let most = format!(":{}", u32::MAX);
    let huge = ["\"count\"", "\"micro_batch\""].into_iter().fold(good.clone(), |huge, field| {
        (1..=3)
            .fold(huge, |huge, number| huge.replace(&format!("{field}:{number}"), &format!("{field}{most}")))
    });
    let error = save(&huge).unwrap_err().to_string();
    assert!(error.contains("(the micro-batches of conv1 Forward cannot be)"), "{error}");
    // Under WD the kernel takes all of a total of 1536, and more than one of 1280.
    let divided = |limit: u64| {
        let divided = good.replace("\"wr\",\"limit\":67108864", &format!("\"wd\",\"limit\":{limit}"));
        assert!(divided != good);
        save(&divided).map_err(|error| error.to_string())
    };
    assert!(divided(1536).is_ok());
    let error = divided(1280).unwrap_err();
    assert!(error.contains("(its workspaces are more than 1.3 KiB together)"), "{error}");
    save_tensors(&path, &[], &BTreeMap::new()).unwrap();
    assert_eq!(PlanRecord::recorded(&load_tensors(&path).unwrap()).unwrap(), None);
}

#[test]
fn a_recorded_plan_is_good_for_its_own_device_kernels_and_options_only() {
    let record = record();
    let plan = &record.plans[0];
    let kernels = vec![plan.kernels[0].kernel.clone()];
    let why_not = |net, kernels: &[Kernel], device: &DeviceHeader, options: &PlanOptions| {
        record.plan(net, kernels, device, options).unwrap_err()
    };
    assert_eq!(record.plan(0, &kernels, &record.device, &plan.options), Ok(plan));
    assert_eq!(why_not(1, &kernels, &record.device, &plan.options), "it has no such net");
    let threads = DeviceHeader { threads: "3".to_owned(), ..record.device.clone() };
    assert!(why_not(0, &kernels, &threads, &plan.options).starts_with("it was made on another device"));
    let larger = vec![Kernel { mini_batch: 8, ..kernels[0].clone() }];
    assert!(why_not(0, &larger, &record.device, &plan.options).contains("another mini-batch"));
    let options = PlanOptions { limit: Bytes::mib(8), ..plan.options.clone() };
    let reason = why_not(0, &kernels, &record.device, &options);
    assert_eq!(reason, "it was made with powerOfTwo, wr 64 MiB, not with powerOfTwo, wr 8 MiB");
    let options = PlanOptions { deterministic_only: true, ..plan.options.clone() };
    let reason = why_not(0, &kernels, &record.device, &options);
    assert!(
        reason.ends_with("not with powerOfTwo, wr 64 MiB with deterministic algorithms only"),
        "{reason}"
    );
}

#[test]
fn a_plan_whose_algorithms_are_gone_is_not_used() {
    let mut nets = [build(
        "layer { name: 'data' type: 'Input' top: 'data' input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
         layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'
            convolution_param { num_output: 4 kernel_size: 3 } }",
    )
    .unwrap()];
    let (kernels, device) = (nets[0].kernels(), nets[0].device().clone());
    let mut record = PlanRecord { device: identity(&device), ..record() };
    let template = record.plans[0].kernels[0].clone();
    let planned = |kernel: Kernel| {
        let all = candidates(&device, &kernel.id, kernel.mini_batch).unwrap();
        let configuration = Configuration::new([Run { count: 1, micro: all[0].measurement(1.0, 0.0) }]);
        PlannedKernel { kernel, workspace: configuration.workspace(), configuration, ..template.clone() }
    };
    record.plans[0].kernels = kernels.into_iter().map(planned).collect();
    let mut plans = |record: &PlanRecord| record.plans(&mut nets, |_| PlanOptions::default());
    assert_eq!(plans(&record), (vec![Some(record.plans[0].clone())], PlanOrigin::Recorded));
    let kernel = &mut record.plans[0].kernels[0];
    let micro = Measurement { algorithm: "GONE".into(), ..kernel.configuration.runs()[0].micro.clone() };
    kernel.configuration = Configuration::new([Run { count: 1, micro }]);
    let why = "conv Forward cannot run under it (this device has no algorithm GONE for Forward of 3x8x8, 4 filters 3x3)";
    assert_eq!(plans(&record), (vec![None], PlanOrigin::Refused(why.to_owned())));
}

#[test]
fn a_plan_of_an_earlier_version_is_good_as_it_is() {
    // Kernels had places, and sums stood in the plan.
    let now = record();
    let mut json = serde_json::to_value(&now).unwrap();
    let plan = &mut json["plans"][0];
    plan["options"].as_object_mut().unwrap().remove("wd_solver").unwrap();
    plan["kernels"][0]["workspace_offset"] = 256.into();
    plan["workspace_total"] = 1792.into();
    plan["workspace_max"] = 1536.into();
    plan["division"] = serde_json::json!({ "lower_bound_ms": 1.0, "greedy_ms": 2.0, "binaries": 3 });
    let before: PlanRecord = serde_json::from_value(json).unwrap();
    before.check().unwrap();
    assert_eq!(before.plans[0].options, now.plans[0].options);
    assert_eq!(before.plans[0].kernels, now.plans[0].kernels);
    assert_eq!(before.plans[0].workspace_total(), Bytes(1536));
}

/// Measures at once, and is asked to stop during the second measurement.
struct Interrupted(Stop);

impl Profiler for Interrupted {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        if request.micro_batch == 2 {
            assert!(!self.0.unheard.load(Ordering::SeqCst), "a signal is heard now");
            self.0.number.store(15, Ordering::SeqCst);
        }
        Ok(vec![Measurement {
            algorithm: "GEMM".into(),
            micro_batch: request.micro_batch,
            time_ms: 1.0,
            shared_ms: 0.0,
            workspace: Bytes(64),
            max_error: 1e-6,
            deterministic: true,
        }])
    }
}

#[test]
fn measuring_that_is_stopped_keeps_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::new(folder.path());
    let device = DeviceHeader { name: "a processor".to_owned(), ..DeviceHeader::default() };
    let kernel = record().plans.remove(0).kernels.remove(0).kernel;
    for (database, expected) in [(Some(database.clone()), true), (None, false)] {
        let stop = Stop::default();
        let records = Records { database, ..Records::default() };
        let mut planning = Planning::with_profiler(device.clone(), Box::new(Interrupted(stop.clone())))
            .with(records, stop.clone());
        // Sizes 4, 2 and 1, in this order.
        let error = planning
            .profile_sizes(std::slice::from_ref(&kernel), BatchSizePolicy::PowerOfTwo, |_| ())
            .unwrap_err();
        assert!(matches!(error, NetError::Stopped { kept } if kept == expected), "{error}");
        assert_eq!(planning.table.len(), 2);
        assert!(!stop.unheard.load(Ordering::SeqCst), "whoever has set the number sets this, too");
        stop.number.store(0, Ordering::SeqCst);
        drop(stop.listen());
        assert!(stop.unheard.load(Ordering::SeqCst), "nobody listens any more");
    }
    assert_eq!(database.read(&device).0.len(), 2);
}

/// What the layers of a net read and write by estimate, forward, backward and repeated, in blobs of its data.
fn moved(text: &str) -> BTreeMap<String, [f64; 3]> {
    let net = build(text).unwrap();
    let blob = net.input().unwrap().space().bytes() as f64;
    let costs = estimated_costs(&net, Rates { memory: blob, products: f64::INFINITY, ..Rates::CPU });
    let passes = costs.nodes.iter().zip(&costs.again_ms);
    let passes =
        passes.map(|([forward, backward], &again_ms)| [forward.fixed_ms, backward.fixed_ms, again_ms]);
    net.graph().nodes.iter().map(|node| node.spec.name.clone()).zip(passes).collect()
}

/// `samples` of 8 channels of 32 x 32, through `layers`, the last of which writes `end`.
fn net(samples: usize, layers: &[&str]) -> String {
    let data = format!(
        "layer {{ name: 'data' type: 'DummyData' top: 'data' top: 'label' dummy_data_param {{ \
         shape {{ dim: {samples} dim: 8 dim: 32 dim: 32 }} shape {{ dim: {samples} }} }} }}"
    );
    let layers = layers.iter().map(|layer| {
        let [name, kind, bottoms, top, params] =
            layer.splitn(5, ' ').collect::<Vec<_>>().try_into().expect("five words");
        let bottoms: String = bottoms.split('+').map(|bottom| format!("bottom: '{bottom}' ")).collect();
        let tops: String = top.split('+').map(|top| format!("top: '{top}' ")).collect();
        format!("layer {{ name: '{name}' type: '{kind}' {bottoms}{tops}{params} }}\n")
    });
    let end = "layer { name: 'ip' type: 'InnerProduct' bottom: 'end' top: 'ip' \
               inner_product_param { num_output: 2 } }
               layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }";
    format!("{data}\n{}{end}", layers.collect::<String>())
}

const CONV: &str = "convolution_param { num_output: 8 kernel_size: 1 bias_term: false }";
const BIASED: &str = "convolution_param { num_output: 8 kernel_size: 1 }";
const AFFINE: &str = "batch_norm_param { scale_bias: true }";
const HALVES: &str = "pooling_param { kernel_size: 2 stride: 2 }";

const SUM: &str = "eltwise_param { coeff: 1 coeff: 0.5 }";

/// Holds what is estimated of `layers`, but of those that are part of others, against what is said of them.
fn check(samples: usize, layers: &[(String, Option<[f64; 3]>)]) {
    let text: Vec<&str> = layers.iter().map(|(layer, _)| layer.as_str()).collect();
    let moved = moved(&net(samples, &text));
    for (layer, expected) in layers {
        let name = layer.split(' ').next().unwrap();
        let Some(expected) = expected else {
            assert!(!moved.contains_key(name), "{layer}");
            continue;
        };
        // Parameters, statistics and labels are small beside a blob.
        let near = moved[name].iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 0.01);
        assert!(near, "{layer}: {:?} and not {expected:?}", moved[name]);
    }
}

/// Counted by hand from what the CUDA kernels of `cudnn-layers` load and store.
#[test]
fn estimates_count_what_passes_read_and_write() {
    // A channel of 64 samples is too large for the caches: it is read for its sums, and then again.
    for (samples, again) in [(64, 1.0), (8, 0.0)] {
        let norms = [
            // The ReLU adds the bias, and sums its gradient on the way.
            (format!("biased Convolution data a {BIASED}"), Some([0.0; 3])),
            ("adding ReLU a a ".to_owned(), Some([2.0, 3.0, 2.0])),
            (format!("norm BatchNorm a b {AFFINE}"), Some([2.0 + again, 3.0 + 2.0 * again, 2.0])),
            ("gone ReLU b b ".to_owned(), Some([0.0; 3])),
            (format!("plain Convolution b c {CONV}"), Some([0.0; 3])),
            // With the sum and the ReLU: x and b to y; x, dy and y to dx, and dy also to the gradient of b.
            (format!("sum BatchNorm c d {AFFINE}"), Some([3.0 + again, 5.0 + 2.0 * again, 3.0])),
            ("joined Eltwise d+b e ".to_owned(), None),
            ("by_sign ReLU e e ".to_owned(), Some([0.0; 3])),
            (format!("next Convolution e f {BIASED}"), Some([0.0; 3])),
            // A byte for each winner; and, for the bias, its gradient again.
            (format!("pool Pooling f g {HALVES}"), Some([1.3125, 1.5625, 1.3125])),
            (format!("last Convolution g h {BIASED}"), Some([0.0; 3])),
            // Behind a ReLU moreover where that is above 0.
            ("inner ReLU h h ".to_owned(), Some([0.0; 3])),
            (format!("small Pooling h end {HALVES}"), Some([0.328, 0.453, 0.328])),
        ];
        check(samples, &norms);
    }
    let others = [
        (format!("first Convolution data a {CONV}"), Some([0.0; 3])),
        // The gradient of its bottom, and those of factors.
        ("scale Scale a b scale_param { bias_term: true }".to_owned(), Some([2.0, 4.0, 2.0])),
        ("slopes PReLU b c ".to_owned(), Some([9.0, 14.0, 9.0])),
        // It is the first to give `b` a gradient, to which PReLU adds.
        (format!("sum Eltwise c+b d {SUM}"), Some([3.0, 4.0, 3.0])),
        ("split Split d e+f ".to_owned(), Some([4.0, 5.0, 4.0])),
        ("concat Concat e+f g ".to_owned(), Some([4.0, 4.0, 4.0])),
        (format!("half Convolution g h {CONV}"), Some([0.0; 3])),
        ("drop Dropout h h ".to_owned(), Some([2.0; 3])),
        ("relu ReLU h h ".to_owned(), Some([2.0, 3.0, 2.0])),
        ("lrn LRN h end ".to_owned(), Some([2.0, 3.0, 2.0])),
        ("flat Flatten end end ".to_owned(), Some([0.0; 3])),
    ];
    check(16, &others);
}
