//! After planning, nothing of any size is allocated: a counting allocator watches.

mod counting;

use counting::measured;
use cudnn_layers::conv::{ProfileOptions, profiler};
use planner::{BatchSizePolicy, Bytes, Measurement, PlanOptions, WorkspacePolicy};
use planner::{Profiler, ProfilerError, Request};
use std::{path::Path, sync::Mutex, time::Duration};
use tensor::{Cpu, Device};
use trainer::planning::{Planning, header};
use trainer::{NetRun, Solver, Stop, Training, layers::BuildOptions, spec::SolverSpec};

/// Small lists (of views, of spans) are allowed; anything that grows with a blob is not.
const LARGE: usize = 4096;

/// The counter is one for the whole process, so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

const NET: &str = "name: 'small'
  layer { name: 'data' type: 'DummyData' top: 'data' top: 'label'
    dummy_data_param { shape { dim: 8 dim: 3 dim: 20 dim: 20 } shape { dim: 8 }
      data_filler { type: 'uniform' min: -1 } data_filler { value: 1 } } }
  layer { name: 'conv1' type: 'Convolution' bottom: 'data' top: 'conv1'
    convolution_param { num_output: 16 kernel_size: 5 pad: 2 weight_filler { type: 'msra' } } }
  layer { name: 'relu1' type: 'ReLU' bottom: 'conv1' top: 'conv1' }
  layer { name: 'norm' type: 'LRN' bottom: 'conv1' top: 'norm' }
  layer { name: 'pool' type: 'Pooling' bottom: 'norm' top: 'pool' pooling_param { kernel_size: 3 stride: 2 } }
  layer { name: 'conv2' type: 'Convolution' bottom: 'pool' top: 'conv2'
    convolution_param { num_output: 16 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } } }
  layer { name: 'bn' type: 'BatchNorm' bottom: 'conv2' top: 'bn' batch_norm_param { scale_bias: true } }
  layer { name: 'sum' type: 'Eltwise' bottom: 'bn' bottom: 'pool' top: 'sum' }
  layer { name: 'join' type: 'Concat' bottom: 'sum' bottom: 'bn' top: 'join' }
  layer { name: 'average' type: 'Pooling' bottom: 'join' top: 'average' pooling_param { pool: AVE kernel_size: 2 } }
  layer { name: 'drop' type: 'Dropout' bottom: 'average' top: 'average' }
  layer { name: 'ip' type: 'InnerProduct' bottom: 'average' top: 'ip'
    inner_product_param { num_output: 100 weight_filler { type: 'xavier' } } }
  layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }";

/// Measurements without those of `GEMM`, whose products allocate what they pack an operand into.
struct WithoutProducts(Box<dyn Profiler>);

impl Profiler for WithoutProducts {
    fn measure(&mut self, request: &Request) -> Result<Vec<Measurement>, ProfilerError> {
        let mut rows = self.0.measure(request)?;
        rows.retain(|row| row.algorithm.as_str() != "GEMM");
        Ok(rows)
    }
}

fn solver(batch_size_policy: BatchSizePolicy, workspace_policy: WorkspacePolicy) -> Solver {
    let text = format!(
        "base_lr: 0.001 lr_policy: 'fixed' momentum: 0.9 weight_decay: 0.001 clip_gradients: 10 iter_size: 2
         max_iter: 100 random_seed: 1 test_iter: 1 test_interval: 1 net_param {{ {NET} }}"
    );
    let spec = SolverSpec::parse(Path::new("solver.prototxt"), &text).unwrap();
    let plan =
        PlanOptions { batch_size_policy, workspace_policy, limit: Bytes::mib(16), ..PlanOptions::default() };
    let device = Device::Cpu(Cpu::new(2));
    let profile = ProfileOptions { repeats: 1, at_least: Duration::ZERO, ..ProfileOptions::on(&device) };
    let profiler = WithoutProducts(profiler(&device, profile));
    let mut planning = Planning::with_profiler(header(&device), Box::new(profiler));
    let build = BuildOptions { device, seed: 1, synthetic: None };
    let (training, mut nets) = Training::build(spec, &build).unwrap();
    let mut plans = Vec::new();
    for net in &mut nets {
        let kernels = net.kernels();
        planning.complete(&kernels, &plan, |_| ()).unwrap();
        plans.push(planning.plan(&kernels, None, &plan).unwrap());
    }
    training.start(NetRun::lay_out(nets, plans, true).unwrap()).unwrap()
}

#[test]
fn an_iteration_allocates_nothing_large() {
    let _turn = TURN.lock().unwrap();
    for batch in BatchSizePolicy::ALL {
        for workspace in WorkspacePolicy::ALL {
            let mut solver = solver(batch, workspace);
            for _ in 0..2 {
                solver.step().unwrap();
                solver.test(0, &Stop::default(), |_| ()).unwrap();
            }
            let ((), usage) = measured(|| {
                for _ in 0..5 {
                    solver.step().unwrap();
                    solver.test(0, &Stop::default(), |_| ()).unwrap();
                }
            });
            assert!(usage.largest < LARGE, "{batch} {workspace}: {usage:?}");
        }
    }
}

#[test]
fn the_counter_counts() {
    let _turn = TURN.lock().unwrap();
    let (list, usage) = measured(|| std::hint::black_box(vec![1u8; 64 << 20]));
    // Threads of the test before may free at this moment what they had, far less than this: the peak is a little lower
    // then.
    assert!(usage.largest >= list.len() && usage.peak >= list.len() / 2, "{usage:?}");
}
