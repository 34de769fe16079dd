//! What stands below the options in `--help`.

pub(super) const EXIT_CODES: &str = "\
Sizes are bytes or have a unit: 64MiB, 64M and 64Mi are 2^26 bytes, 64MB are 64,000,000.
Exit codes: 0 success, 1 failure, 2 options that cannot be honoured, 128 + N what signal N has stopped.";

pub(super) const TIME: &str = "\
Examples:
  microbatch time --model alexnet --synthetic --batch 32
  microbatch time --model net.prototxt --workspace-limit 16MiB --compare
  microbatch time --model net.prototxt --device-memory 1GiB --json";

pub(super) const TRAIN: &str = "\
Examples:
  microbatch train --solver models/lenet/solver.prototxt
  microbatch train --solver solver.prototxt --epochs 10 --log log.jsonl --resume
  microbatch train --solver solver.prototxt --snapshot snapshots/net_iter_500.solverstate.safetensors";

pub(super) const INIT: &str = "\
Examples:
  microbatch init flowers --data photos/flowers --like resnet18
  microbatch init flowers --data photos/flowers --like resnet18_torchvision --weights resnet18.safetensors";

pub(super) const TEST: &str = "\
Examples:
  microbatch test --model net.prototxt --weights snapshots/net_iter_500.safetensors --iterations 10";

pub(super) const EXPORT: &str = "\
Examples:
  microbatch export --model net.prototxt --weights snapshots/net_iter_500.safetensors --to onnx --out net.onnx
  microbatch export --model alexnet --weights alexnet.caffemodel --to torchvision --out alexnet.safetensors";

pub(super) const PREDICT: &str = "\
Examples:
  microbatch predict photo.jpg --model net.prototxt --weights snapshots/net_iter_500.safetensors
  microbatch predict photos/ --model net.prototxt --weights snapshots/net_iter_500.safetensors --top 1 --json";

pub(super) const PLAN: &str = "\
Examples:
  microbatch plan --model alexnet --batch 256 --device h200 --explain
  microbatch plan --model net.prototxt --total-workspace 100MiB --explain
  microbatch plan --conv n=256,c=64,h=27,w=27,k=192,r=5,s=5,pad=2 --op forward --explain";

pub(super) const PROFILE: &str = "\
Examples:
  microbatch profile --model net.prototxt --policy all --out table.jsonl
  microbatch profile --csv convolutions.csv --database measurements
  microbatch profile --merge table.jsonl --database measurements";

pub(super) const FIGURES: &str = "\
Examples:
  microbatch figures --out figures
  microbatch figures --only cliff --device recorded:table.jsonl --out figures
  microbatch figures --device cuda --net alexnet --out figures";
