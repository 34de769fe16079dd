//! What runs, and where.

use crate::device::DeviceReport;
use planner::{CostTable, DeviceHeader};
use serde::Serialize;
use std::{fmt, path::Path};
use trainer::{Net, layers::SyntheticData, spec::NetSpec};

/// The first lines of a report.
#[derive(Clone, Debug, Serialize)]
pub struct Header {
    /// The command, such as `time`.
    pub command: &'static str,
    /// The device, unless measurements of another machine's are planned with.
    pub device: Option<DeviceReport>,
    /// The recorded measurements that stand in its place: all times are predictions then.
    pub recorded: Option<RecordedReport>,
    /// The net.
    pub net: NetReport,
    /// What the files say without effect, and what is odd about the data.
    pub warnings: Vec<String>,
    /// Defaults that were chosen, such as a smaller mini-batch; one sentence each.
    pub notes: Vec<String>,
}

/// Where recorded measurements come from.
#[derive(Clone, Debug, Serialize)]
pub struct RecordedReport {
    /// The file.
    pub file: String,
    /// The device that they were made on.
    pub device: String,
    /// Versions of library and driver.
    pub library_version: String,
    /// When.
    pub date: String,
    /// By which command.
    pub command: String,
}

impl RecordedReport {
    /// Describes `table`, which was read from `file`.
    pub fn new(file: &Path, table: &CostTable) -> Self {
        let DeviceHeader { name, library_version, date, command, .. } = table.device.clone();
        Self { file: shown(file), device: name, library_version, date, command }
    }
}

impl fmt::Display for RecordedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  PREDICTION  from {}: nothing was measured on this machine", self.file)?;
        write!(f, "  recorded    on {}, {}", self.device, self.library_version)?;
        if self.date.is_empty() { Ok(()) } else { write!(f, ", {}", self.date) }
    }
}

/// Where convolutions come from that belong to no net.
#[derive(Clone, Debug, Serialize)]
pub struct ShapesReport {
    /// The file, or the command line.
    pub source: String,
    /// How many there are.
    pub convolutions: usize,
    /// How many kernels that makes.
    pub kernels: usize,
}

/// What identifies a net to a reader.
#[derive(Clone, Debug, Serialize)]
pub struct NetReport {
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: String,
    /// Its phase.
    pub phase: String,
    /// Layers of that phase.
    pub layers: usize,
    /// Elements of all learned parameters.
    pub parameters: usize,
    /// Convolution kernels that an iteration runs.
    pub kernels: usize,
    /// Samples per iteration.
    pub mini_batch: usize,
    /// What they are.
    pub data: DataReport,
    /// Those of the test nets of a training.
    pub test_data: Vec<DataReport>,
}

/// What a net is fed.
#[derive(Clone, Debug, Serialize)]
pub struct DataReport {
    /// Where it comes from.
    pub source: String,
    /// Whether that is data that was not opened, as only a plan was wanted.
    pub unopened: bool,
    /// Channels, height and width of a sample.
    pub shape: String,
    /// Samples, if they come from a data set that was opened.
    pub images: Option<usize>,
    /// Its classes.
    pub classes: Option<usize>,
    /// Their names, if they are those of folders.
    pub class_names: Vec<String>,
}

impl NetReport {
    /// Describes `net` with its `kernels`, which was built from `spec`, on `synthetic` images if there are some.
    pub fn new(spec: &NetSpec, net: &Net, kernels: usize, synthetic: Option<SyntheticData>) -> Self {
        let learned = net.graph().params.iter().filter(|param| param.declaration.learned);
        Self {
            name: net.name().to_owned(),
            file: shown(&spec.file),
            phase: net.phase().to_string(),
            layers: net.graph().nodes.len(),
            parameters: learned.map(|param| param.declaration.shape.count()).sum(),
            kernels,
            mini_batch: mini_batch(net),
            data: DataReport::new(spec, net, synthetic),
            test_data: Vec::new(),
        }
    }
}

/// Samples per iteration.
pub(crate) fn mini_batch(net: &Net) -> usize {
    input(net).map_or(1, |shape| shape.n())
}

/// The shape of what the net is fed.
fn input(net: &Net) -> Option<&tensor::TensorType> {
    let graph = net.graph();
    let source = graph.nodes.iter().find(|node| node.bottoms.is_empty())?;
    source.tops.first().map(|&top| &graph.values[top].shape)
}

impl DataReport {
    /// Describes what `net` is fed, which was built from `spec`, with `synthetic` images if there are some.
    pub fn new(spec: &NetSpec, net: &Net, synthetic: Option<SyntheticData>) -> Self {
        use trainer::spec::LayerKind::{Data, DummyData, ImageData};
        let shape = input(net).map(|shape| {
            let extents: Vec<String> = shape.dims()[1..].iter().map(usize::to_string).collect();
            extents.join("x")
        });
        let source = spec.layers.iter().find_map(|layer| match &layer.kind {
            Data(_) | ImageData(_) if synthetic.is_some_and(|images| !images.stand_in) => {
                Some("synthetic images (--synthetic)".to_owned())
            }
            Data(params) => Some(shown(&spec.resolve(&params.source))),
            ImageData(params) => Some(format!("images of {}", shown(&spec.resolve(&params.source)))),
            DummyData(_) => Some("the net's DummyData".to_owned()),
            _ => None,
        });
        let stands_in = |synthetic: SyntheticData| synthetic.stand_in && net.data().next().is_some();
        let opened = net.data().next().filter(|_| synthetic.is_none()).map(|(_, summary)| summary);
        Self {
            source: source.unwrap_or_else(|| "random numbers in the net's inputs".to_owned()),
            unopened: synthetic.is_some_and(stands_in),
            shape: shape.unwrap_or_default(),
            images: opened.as_ref().map(|summary| summary.images),
            classes: opened.as_ref().map(|summary| summary.classes),
            class_names: opened.map(|summary| summary.class_names).unwrap_or_default(),
        }
    }
}

/// Most names of classes in text; JSON has all of them.
const MOST_NAMES: usize = 10;

impl fmt::Display for DataReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unopened = if self.unopened { " (not opened)" } else { "" };
        write!(f, "{}{unopened}, {}", self.source, self.shape)?;
        let (Some(images), Some(classes)) = (self.images, self.classes) else { return Ok(()) };
        write!(f, ": {images} images of {classes} classes")?;
        let Some((last, first)) = self.class_names[..classes.min(self.class_names.len())].split_last() else {
            return Ok(());
        };
        match first {
            [] => write!(f, " ({last})"),
            _ if first.len() < MOST_NAMES => write!(f, " ({}, {last})", first.join(", ")),
            _ => write!(f, " ({}, … {last})", first[..MOST_NAMES - 1].join(", ")),
        }
    }
}

/// A path as short as it gets from the current folder.
pub(crate) fn shown(path: &Path) -> String {
    let straight = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let here = std::env::current_dir().and_then(|here| here.canonicalize()).unwrap_or_default();
    straight.strip_prefix(here).unwrap_or(&straight).display().to_string()
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NetReport { name, file, phase, layers, parameters, kernels, mini_batch, data, test_data } =
            &self.net;
        let millions = *parameters as f64 / 1e6;
        writeln!(f, "microbatch {}: {name} ({phase}), mini-batch {mini_batch}", self.command)?;
        if let Some(device) = &self.device {
            writeln!(f, "  device      {device}")?;
        }
        if let Some(recorded) = &self.recorded {
            writeln!(f, "{recorded}")?;
        }
        writeln!(
            f,
            "  net         {file}: {layers} layers, {millions:.2} million parameters, {kernels} convolution kernels"
        )?;
        write!(f, "  data        {data}")?;
        test_data.iter().try_for_each(|data| write!(f, "\n  test data   {data}"))?;
        self.notes.iter().try_for_each(|note| write!(f, "\n  note        {note}"))
    }
}
