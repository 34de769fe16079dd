//! Weights and solver states.

use crate::data::{idx_images, idx_labels};
use crate::harness::{Accepted, Random, fuzz};
use crate::mutate::{Corpus, one_in};
use crate::{convolution::device, solvers::prepare};
use microbatch::trainer::snapshot::{Weights, load_solver_state, load_tensors, weights_path};
use microbatch::trainer::{NetError, NetRun, Solver, Stop, Training};
use microbatch::{
    tensor::Device, trainer::layers::BuildOptions, trainer::planning::PlanRecord, trainer::spec::SolverSpec,
};
use rand::SeedableRng;
use std::{cell::RefCell, fs, path::Path};
use tempfile::TempDir;

const NET: &str = "name: 'net'
layer { name: 'data' type: 'Data' top: 'data' top: 'label' data_param { source: 'images' batch_size: 2 } }
layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv'
  convolution_param { num_output: 2 kernel_size: 3 weight_filler { type: 'xavier' } } }
layer { name: 'norm' type: 'BatchNorm' bottom: 'conv' top: 'norm' }
layer { name: 'ip' type: 'InnerProduct' bottom: 'norm' top: 'ip'
  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }
layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }";

/// A small training, and the snapshot of its second iteration.
struct Folder {
    folder: TempDir,
}

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let images = folder.path().join("images");
        fs::create_dir(&images).unwrap();
        for phase in ["train", "t10k"] {
            fs::write(images.join(format!("{phase}-images")), idx_images()).unwrap();
            fs::write(images.join(format!("{phase}-labels")), idx_labels()).unwrap();
        }
        let training = Self { folder };
        let mut random = Random::seed_from_u64(1);
        let mut solver = training.start(&device(&mut random)).unwrap();
        solver.step().unwrap();
        solver.step().unwrap();
        solver.snapshot().unwrap();
        training
    }

    fn prefix(&self) -> std::path::PathBuf {
        self.folder.path().join("snapshot")
    }

    fn prepared(
        &self,
        device: &Device,
        recorded: Option<PlanRecord>,
    ) -> Result<(Training, NetRun), NetError> {
        let text = format!(
            "net_param {{ {NET} }} base_lr: 0.01 lr_policy: 'fixed' momentum: 0.9 max_iter: 9 test_iter: 1 \
             test_interval: 1 snapshot_prefix: '{}'",
            self.prefix().display()
        );
        let spec = SolverSpec::parse(&self.folder.path().join("solver.prototxt"), &text).unwrap();
        prepare(spec, &BuildOptions { device: device.clone(), seed: 1, synthetic: None }, recorded)
    }

    fn start(&self, device: &Device) -> Result<Solver, NetError> {
        let (training, run) = self.prepared(device, None)?;
        training.start(run)
    }

    fn file(&self, kind: &str) -> Vec<u8> {
        fs::read(self.folder.path().join(format!("snapshot_iter_2.{kind}"))).unwrap()
    }
}

/// `file` as it is, and with checksums that nobody looks for.
fn seeds(file: Vec<u8>) -> [Vec<u8>; 2] {
    let mut other = file.clone();
    (0..file.len()).filter(|&at| file[at..].starts_with(b"crc32")).for_each(|at| other[at] = b'C');
    assert_ne!(file, other, "a checksum");
    [file, other]
}

/// A damaged file: mostly only its header, as text, and then with the right length before it.
fn damaged(corpus: &Corpus, random: &mut Random) -> Vec<u8> {
    let file = corpus.seed(random);
    let (length, rest) = file.split_first_chunk::<8>().expect("a length");
    if one_in(random, 4) {
        return corpus.bytes(random);
    }
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let headers = Corpus::new([header]);
    let header = headers.text(random);
    [&(header.len() as u64).to_le_bytes(), &header[..], data].concat()
}

/// A field of a protobuf message, shorter than 128 bytes.
fn field(number: u8, body: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, body.len() as u8], body].concat()
}

/// The inner product of the net as Caffe's files of 2014 have it, with a bias alone, and one of its shape.
fn caffemodel() -> Vec<u8> {
    let blob = |dims: &[u8], values: usize| {
        let packed = field(7, &field(1, dims));
        [packed, field(5, &vec![0x3f; 4 * values])].concat()
    };
    let layer =
        [field(4, b"norm"), field(6, &blob(&[2], 2)), field(6, &blob(&[2], 2)), field(6, &blob(&[1], 1))];
    let other = [field(4, b"ip"), field(6, &blob(&[3], 3))];
    [field(1, b"net"), field(2, &layer.concat()), field(2, &other.concat())].concat()
}

#[test]
fn weights() {
    let training = Folder::new();
    let corpus = Corpus::new(seeds(training.file("safetensors")));
    let of_caffe = Corpus::new([caffemodel()]);
    let mut random = Random::seed_from_u64(1);
    let solver = training.start(&device(&mut random)).unwrap();
    let solver: RefCell<Solver> = RefCell::new(solver);
    fuzz(
        "weights",
        2000,
        |random| if one_in(random, 4) { of_caffe.bytes(random) } else { damaged(&corpus, random) },
        |input| {
            let tensors = load_tensors(input.path)?;
            for (name, shape) in tensors.shapes() {
                let bytes = tensors.bytes(name, shape)?.len();
                assert_eq!(bytes, size_of::<f32>() * shape.iter().product::<usize>());
            }
            let mut solver = solver.borrow_mut();
            solver.load_weights(&Weights::load(&[input.path.to_owned()])?)?;
            solver.step()?;
            Ok(Accepted::Used)
        },
    );
}

#[test]
fn state() {
    let training = Folder::new();
    let corpus = Corpus::new(seeds(training.file("solverstate.safetensors")));
    fuzz(
        "state",
        1000,
        |random| damaged(&corpus, random),
        |input| {
            let beside = weights_path(Path::new(&input.path.with_file_name("snapshot")), 2);
            fs::write(beside, training.file("safetensors"))?;
            let (_, history) = load_solver_state(input.path)?;
            let recorded = PlanRecord::recorded(&history)?;
            let (of_solver, run) = training.prepared(&device(&mut input.random), recorded)?;
            input.foretold = run.memory().arena.0 + run.memory().host.0;
            let mut solver = of_solver.start(run)?;
            solver.restore(input.path)?;
            solver.step()?;
            solver.test(0, &Stop::default(), |_| ())?;
            Ok(Accepted::Used)
        },
    );
}
