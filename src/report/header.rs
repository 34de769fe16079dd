//! What runs, and where.

use crate::{console::escaped, device::DeviceReport};
use figures::{Recorded, counted};
use serde::Serialize;
use std::{fmt, path::Path};
use trainer::{Net, data::DataSummary, layers::SyntheticData, spec::NetSpec};

/// The first lines of a report.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Header {
    pub(crate) command: &'static str,
    /// The device, unless measurements of another machine's are planned with.
    pub(crate) device: Option<DeviceReport>,
    /// The recorded measurements that stand in its place: all times are predictions then.
    pub(crate) recorded: Option<Recorded>,
    #[serde(flatten)]
    pub(crate) subject: Subject,
    /// What the files say without effect, and what is odd about the data.
    pub(crate) warnings: Vec<String>,
    /// Defaults that were chosen, such as a smaller mini-batch; one sentence each.
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Subject {
    Net(Box<NetReport>),
    Shapes(ShapesReport),
}

impl Header {
    /// What is planned, and whose measurements that rests on: the words of a drawing.
    pub(crate) fn words(&self) -> (String, String) {
        let what = match &self.subject {
            Subject::Net(net) => format!("{}, mini-batch {}", net.name, net.mini_batch),
            Subject::Shapes(shapes) => counted(shapes.convolutions, "convolution"),
        };
        let source = match (&self.recorded, &self.device) {
            (Some(Recorded { device, .. }), _) => {
                format!("Predicted from measurements recorded on {}", device.name)
            }
            (None, Some(DeviceReport::Cpu { name, .. } | DeviceReport::Cuda { name, .. })) => {
                format!("Measured on {name}")
            }
            (None, None) => String::new(),
        };
        (what, source)
    }
}

/// Where convolutions come from that belong to no net.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ShapesReport {
    /// The file, or the command line.
    pub(crate) source: String,
    pub(crate) convolutions: usize,
    pub(crate) kernels: usize,
}

/// What identifies a net to a reader.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NetReport {
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) phase: String,
    pub(crate) layers: usize,
    /// Elements of all learned parameters.
    pub(crate) parameters: usize,
    /// Convolution kernels that an iteration runs.
    pub(crate) kernels: usize,
    pub(crate) mini_batch: usize,
    /// What they are.
    pub(crate) data: DataReport,
    /// Those of the test nets of a training.
    pub(crate) test_data: Vec<DataReport>,
}

/// What a net is fed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DataReport {
    pub(crate) source: String,
    /// Whether that is data that was not opened, as only a plan was wanted.
    pub(crate) unopened: bool,
    /// Channels, height and width of a sample.
    pub(crate) shape: String,
    /// What a data set holds that was opened.
    #[serde(flatten)]
    pub(crate) opened: Option<DataSummary>,
}

impl NetReport {
    /// Describes `net`, which was built from `spec`, on `synthetic` images if there are some.
    pub(crate) fn new(spec: &NetSpec, net: &mut Net, synthetic: Option<SyntheticData>) -> Self {
        let file = shown(&spec.file);
        Self {
            name: Some(net.name()).filter(|name| !name.is_empty()).unwrap_or(&file).to_owned(),
            file,
            phase: net.phase().to_string(),
            layers: net.graph().nodes.len(),
            parameters: net.learned(),
            kernels: net.kernels().len(),
            mini_batch: net.mini_batch(),
            data: DataReport::new(spec, net, synthetic),
            test_data: Vec::new(),
        }
    }
}

impl DataReport {
    /// Describes what `net` is fed, which was built from `spec`, with `synthetic` images if there are some.
    pub(crate) fn new(spec: &NetSpec, net: &Net, synthetic: Option<SyntheticData>) -> Self {
        use trainer::spec::LayerKind::{Data, DummyData, ImageData};
        let file = |source: &str| shown(&spec.resolve(source));
        let mut kinds = spec.layers.iter().map(|layer| &layer.kind);
        let data = kinds.find(|kind| matches!(kind, Data(_) | ImageData(_) | DummyData(_)));
        // Their labels are not known.
        let is_given = matches!(data, Some(ImageData(params)) if !params.images.is_empty());
        let source = match data {
            Some(Data(_) | ImageData(_)) if synthetic.is_some_and(|images| !images.stand_in) => {
                "synthetic images (--synthetic)".to_owned()
            }
            Some(Data(params)) => file(&params.source),
            Some(ImageData(params)) if is_given => counted(params.images.len(), "image"),
            Some(ImageData(params)) => format!("images of {}", file(&params.source)),
            Some(DummyData(_)) => "the net's DummyData".to_owned(),
            _ => "random numbers in the net's inputs".to_owned(),
        };
        let extents = net.input().map_or(&[][..], |shape| &shape.dims()[1..]);
        let summary = net.loaders().next().map(|(_, loader)| loader.summary());
        Self {
            source,
            unopened: synthetic.is_some_and(|images| images.stand_in) && summary.is_some(),
            shape: extents.iter().map(usize::to_string).collect::<Vec<_>>().join("x"),
            opened: summary.filter(|_| synthetic.is_none() && !is_given),
        }
    }
}

/// Most names of classes in text; JSON has all of them.
const MOST_NAMES: usize = 10;

impl fmt::Display for DataReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unopened = if self.unopened { " (not opened)" } else { "" };
        write!(f, "{}{unopened}, {}", self.source, self.shape)?;
        let Some(DataSummary { images, classes, class_names, .. }) = &self.opened else { return Ok(()) };
        write!(f, ": {} of {}", counted(*images, "image"), counted(*classes, "class"))?;
        let names: Vec<String> = class_names.iter().take(*classes).map(escaped).collect();
        match &names[..] {
            [] => Ok(()),
            [.., last] if names.len() > MOST_NAMES => {
                write!(f, " ({}, … {last})", names[..MOST_NAMES - 1].join(", "))
            }
            _ => write!(f, " ({})", names.join(", ")),
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
        write!(f, "microbatch {}: ", self.command)?;
        match &self.subject {
            Subject::Net(net) => write!(f, "{} ({}), mini-batch {}", net.name, net.phase, net.mini_batch)?,
            Subject::Shapes(ShapesReport { source, convolutions, kernels }) => {
                let kernels = counted(*kernels, "kernel");
                write!(f, "{} of {source}, {kernels}", counted(*convolutions, "convolution"))?;
            }
        }
        self.device.iter().try_for_each(|device| write!(f, "\n  device      {device}"))?;
        self.recorded.iter().try_for_each(|recorded| write!(f, "\n{recorded}"))?;
        if let Subject::Net(net) = &self.subject {
            let NetReport { file, layers, parameters, kernels, data, test_data, .. } = &**net;
            let millions = *parameters as f64 / 1e6;
            let (layers, kernels) = (counted(*layers, "layer"), counted(*kernels, "convolution kernel"));
            write!(f, "\n  net         {file}: {layers}, {millions:.2} million parameters, {kernels}")?;
            write!(f, "\n  data        {data}")?;
            test_data.iter().try_for_each(|data| write!(f, "\n  test data   {data}"))?;
        }
        self.notes.iter().try_for_each(|note| write!(f, "\n  note        {note}"))
    }
}
