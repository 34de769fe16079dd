//! Nets as outlines with costs: those of the papers, small random ones, and what they take on an H200.
#![allow(dead_code, reason = "each test uses some of it")]

use memory::policy::{BelowFloor, Costs, Fate, MemoryPlan, MemoryPolicy, PassCosts};
use memory::{Outline, OutlineNode, OutlineParam, OutlineValue};
use planner::{Bytes, Cost, Curve};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub(crate) const EVERYTHING: Bytes = Bytes(1 << 50);

pub(crate) fn offloaded(plan: &MemoryPlan) -> u64 {
    let moved = plan.fates.iter().filter(|(_, _, fate)| *fate == Fate::Offloaded);
    moved.map(|(_, bytes, _)| bytes.0).sum()
}

/// The smallest budget with a joint plan, and the layer that sets it.
pub(crate) fn floor(outline: &Outline, costs: &Costs) -> BelowFloor {
    MemoryPolicy::Joint.floor(outline, costs, 0)
}

/// A blob: its number, channels, and height, which is its width too.
#[derive(Clone, Copy)]
pub(crate) struct Blob(usize, u64, u64);

/// What a device does in a millisecond.
#[derive(Clone, Copy)]
pub(crate) struct Device {
    flops: f64,
    bytes: f64,
    copied: f64,
}

pub(crate) const FP32: Device = Device { flops: 50e9, bytes: 3.8e9, copied: 55e6 };
pub(crate) const TF32: Device = Device { flops: 300e9, ..FP32 };

pub(crate) struct Net {
    pub(crate) outline: Outline,
    pub(crate) costs: Costs,
    n: u64,
    device: Device,
}

impl Net {
    pub(crate) fn new(n: u64, device: Device) -> Self {
        let costs = Costs {
            bytes_per_ms: [device.copied; 2],
            launch_ms: 0.01,
            host: Bytes(1 << 40),
            ..Costs::default()
        };
        let outline = Outline { updates: true, ..Outline::default() };
        Self { outline, costs, n, device }
    }

    /// The first node that no convolution or pooling has to do with.
    pub(crate) fn classifier(&self) -> usize {
        let products = self.outline.nodes.iter().position(|node| node.name.starts_with("product"));
        products.unwrap_or(self.outline.nodes.len())
    }

    fn bytes(&self, c: u64, h: u64) -> u64 {
        4 * self.n * c * h * h
    }

    pub(crate) fn data(&mut self, c: u64, h: u64) -> Blob {
        self.node("data", &[], c, h, OutlineNode::default(), [fixed(0.0), PassCosts::default()])
    }

    /// A node with one top that reads `bottoms`; the values get gradients but for what comes from data.
    fn node(
        &mut self,
        name: &str,
        bottoms: &[Blob],
        c: u64,
        h: u64,
        node: OutlineNode,
        costs: [PassCosts; 2],
    ) -> Blob {
        let id = self.outline.values.len();
        let wants = |blob: &Blob| self.outline.values[blob.0].needs_diff;
        let backward = !bottoms.is_empty();
        self.outline.nodes.push(OutlineNode {
            name: format!("{name}{}", self.outline.nodes.len()),
            bottoms: bottoms.iter().map(|blob| blob.0).collect(),
            tops: vec![id],
            propagates: bottoms.iter().map(wants).collect(),
            backward,
            ..node
        });
        let producer = self.outline.nodes.len() - 1;
        let bytes = Bytes(self.bytes(c, h));
        self.outline.values.push(OutlineValue {
            bytes,
            producer,
            root: id,
            needs_diff: backward,
            constant: false,
            output: false,
        });
        self.costs.nodes.push(costs);
        Blob(id, c, h)
    }

    fn pass(&self, bytes: u64) -> PassCosts {
        fixed(bytes as f64 / self.device.bytes)
    }

    pub(crate) fn conv(&mut self, x: Blob, k: u64, r: u64, stride: u64) -> Blob {
        let h = x.2.div_ceil(stride);
        let flops = 2.0 * (self.n * k * h * h * x.1 * r * r) as f64;
        let moved = (self.bytes(x.1, x.2) + self.bytes(k, h)) as f64 / self.device.bytes;
        // As measured fronts are: little without workspace, all of it with about the size of what is read.
        let kernel = |part: f64| {
            let best_ms = (flops / self.device.flops).max(moved) * part;
            let steps = [(0.0, 1.35), (0.05, 1.12), (0.3, 1.03), (1.0, 1.0)];
            let cost = |(size, slower): (f64, f64)| Cost {
                workspace: Bytes((self.bytes(x.1, x.2) as f64 * size) as u64),
                time_ms: best_ms * slower,
            };
            Curve::new(steps.map(cost))
        };
        let backward = if self.outline.values[x.0].needs_diff { 2.0 } else { 1.0 };
        let costs = [
            PassCosts { fixed_ms: 0.0, front: kernel(1.0) },
            PassCosts { fixed_ms: 0.0, front: kernel(backward) },
        ];
        let gradients = vec![self.outline.params.len()];
        let node = OutlineNode { read_bottoms: 1, gradients, ..OutlineNode::default() };
        let name = format!("conv{}.0", self.outline.nodes.len());
        let bytes = Bytes(4 * x.1 * k * r * r);
        self.outline.params.push(OutlineParam {
            name,
            bytes,
            copy: Bytes::ZERO,
            trained: true,
            history: bytes,
        });
        self.node("conv", &[x], k, h, node, costs)
    }

    /// In place, and inside the layer before it going forward.
    pub(crate) fn relu(&mut self, x: Blob) -> Blob {
        let producer = self.outline.values[x.0].producer;
        // Batch normalisation does it going back, too.
        let is_norm = self.outline.nodes[producer].saved.0 > 0;
        let bytes = if is_norm { 0 } else { self.bytes(x.1, x.2) };
        let node = OutlineNode { needs_top: !is_norm, ..OutlineNode::default() };
        let top = self.node("relu", &[x], x.1, x.2, node, [fixed(0.0), self.pass(3 * bytes)]);
        self.outline.values[top.0].root = self.outline.values[x.0].root;
        top
    }

    pub(crate) fn norm(&mut self, x: Blob) -> Blob {
        let bytes = self.bytes(x.1, x.2);
        let node = OutlineNode {
            read_bottoms: 1,
            repeats_from_saved: true,
            saved: Bytes(8 * x.1),
            ..OutlineNode::default()
        };
        self.node("norm", &[x], x.1, x.2, node, [self.pass(3 * bytes), self.pass(5 * bytes)])
    }

    pub(crate) fn pool(&mut self, x: Blob, stride: u64) -> Blob {
        let (h, bytes) = (x.2.div_ceil(stride), self.bytes(x.1, x.2));
        let node = OutlineNode { saved: Bytes(self.bytes(x.1, h) / 4), ..OutlineNode::default() };
        self.node("pool", &[x], x.1, h, node, [self.pass(bytes), self.pass(bytes)])
    }

    pub(crate) fn sum(&mut self, x: Blob, y: Blob) -> Blob {
        let bytes = self.bytes(x.1, x.2);
        self.node(
            "sum",
            &[x, y],
            x.1,
            x.2,
            OutlineNode::default(),
            [self.pass(3 * bytes), self.pass(4 * bytes)],
        )
    }

    pub(crate) fn concat(&mut self, x: Blob, y: Blob) -> Blob {
        let bytes = self.bytes(x.1 + y.1, x.2);
        self.node(
            "concat",
            &[x, y],
            x.1 + y.1,
            x.2,
            OutlineNode::default(),
            [self.pass(2 * bytes), self.pass(2 * bytes)],
        )
    }

    pub(crate) fn product(&mut self, x: Blob, k: u64) -> Blob {
        let ms = (2 * self.n * k * x.1 * x.2 * x.2) as f64 / self.device.flops;
        let node = OutlineNode { read_bottoms: 1, ..OutlineNode::default() };
        self.node("product", &[x], k, 1, node, [fixed(ms), fixed(2.0 * ms)])
    }

    pub(crate) fn loss(mut self, x: Blob) -> Self {
        let node = OutlineNode { saved: Bytes(self.bytes(x.1, 1)), ..OutlineNode::default() };
        let loss = self.node("loss", &[x], 1, 1, node, [fixed(0.02), fixed(0.02)]);
        (self.outline.values[loss.0].output, self.outline.values[loss.0].needs_diff) = (true, false);
        self.outline.nodes[loss.0].scratch[0] = Bytes(1000);
        self
    }
}

/// A pass without convolutions.
fn fixed(fixed_ms: f64) -> PassCosts {
    PassCosts { fixed_ms, front: Curve::default() }
}

/// ResNet with bottlenecks: so many blocks in each stage.
pub(crate) fn resnet(blocks: [usize; 4], n: u64, device: Device) -> Net {
    let mut net = Net::new(n, device);
    let data = net.data(3, 224);
    let mut x = net.conv(data, 64, 7, 2);
    x = net.norm(x);
    x = net.relu(x);
    x = net.pool(x, 2);
    for (stage, &count) in blocks.iter().enumerate() {
        let width = 64 << stage;
        for block in 0..count {
            let stride = if block == 0 && stage > 0 { 2 } else { 1 };
            let mut y = x;
            for (k, r, stride) in [(width, 1, stride), (width, 3, 1)] {
                y = net.conv(y, k, r, stride);
                y = net.norm(y);
                y = net.relu(y);
            }
            y = net.conv(y, 4 * width, 1, 1);
            y = net.norm(y);
            if block == 0 {
                x = net.conv(x, 4 * width, 1, stride);
                x = net.norm(x);
            }
            x = net.sum(x, y);
            x = net.relu(x);
        }
    }
    x = net.pool(x, 7);
    x = net.product(x, 1000);
    net.loss(x)
}

/// VGG with so many more convolutions in each of its five groups than VGG-16 has.
pub(crate) fn vgg(more: usize, n: u64, device: Device) -> Net {
    let mut net = Net::new(n, device);
    let mut x = net.data(3, 224);
    for (k, count) in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)] {
        for _ in 0..count + more {
            x = net.conv(x, k, 3, 1);
            x = net.relu(x);
        }
        x = net.pool(x, 2);
    }
    for k in [4096, 4096] {
        x = net.product(x, k);
        x = net.relu(x);
    }
    x = net.product(x, 1000);
    net.loss(x)
}

/// A few layers of any kind, with branches.
pub(crate) fn random(seed: u64, layers: usize) -> Net {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let copied = [5e6, 20e6, 55e6][rng.random_range(0..3)];
    let mut net = Net::new(16, Device { copied, ..FP32 });
    let data = net.data(16, 32);
    let mut blobs = vec![net.conv(data, 32, 3, 1)];
    for _ in 0..layers {
        let x = *blobs.last().unwrap();
        let other = blobs[rng.random_range(0..blobs.len())];
        let top = match rng.random_range(0..7) {
            0 | 1 => net.conv(x, 16 << rng.random_range(0..3), [1, 3, 3][rng.random_range(0..3)], 1),
            2 | 3 => net.norm(x),
            4 if net.outline.values[x.0].root == x.0 => net.relu(x),
            5 if other.1 == x.1 && other.2 == x.2 && other.0 != x.0 => net.sum(x, other),
            5 => net.concat(x, other),
            _ => net.norm(x),
        };
        // A blob that something worked on in place has nothing else to read it.
        blobs.retain(|blob| net.outline.values[top.0].root == top.0 || blob.0 != x.0);
        blobs.push(top);
    }
    let x = *blobs.last().unwrap();
    let x = net.product(x, 10);
    net.loss(x)
}
