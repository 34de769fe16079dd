//! The nets and solvers of `models/`, which are part of the command: `--model alexnet` means the same everywhere.

use crate::Result;
use std::path::Path;
use trainer::prototxt::{self, SpecError};
use trainer::spec::{NetSource, NetSpec, SolverSpec};

/// One folder of `models/`.
pub(crate) struct Model {
    pub(crate) name: &'static str,
    pub(crate) net: &'static str,
    solver: &'static str,
}

macro_rules! models {
    ($($name:literal)*) => {
        &[$(Model {
            name: $name,
            net: include_str!(concat!("../models/", $name, "/net.prototxt")),
            solver: include_str!(concat!("../models/", $name, "/solver.prototxt")),
        }),*]
    };
}

pub(crate) static MODELS: &[Model] = models!(
    "alexnet" "alexnet_owt" "caffe_alexnet" "cifar10_quick" "densenet40" "densenet121" "googlenet"
    "googlenet_torchvision" "lenet" "overfeat" "resnet18" "resnet18_torchvision" "resnet34" "resnet50" "resnet50_v1_5"
    "resnet101" "resnet152" "vgg16"
);

impl Model {
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        MODELS.iter().find(|model| model.name == name)
    }

    /// The net with the layers of all phases; paths in it are relative to its folder in a checkout.
    pub(crate) fn net(&self) -> Result<NetSpec, SpecError> {
        NetSpec::parse(Path::new(&format!("models/{}/net.prototxt", self.name)), self.net)
    }

    fn solver(&self) -> Result<SolverSpec, SpecError> {
        let file = format!("models/{}/solver.prototxt", self.name);
        let mut spec = SolverSpec::parse(Path::new(&file), self.solver)?;
        let net = NetSource::Inline(Box::new(self.net()?));
        spec.tests.iter_mut().for_each(|test| test.net = net.clone());
        spec.train_net = net;
        Ok(spec)
    }
}

/// The net in the file `given`, or the model of that name.
pub(crate) fn load_net(given: &Path) -> Result<NetSpec> {
    Ok(named(given)?.map_or_else(|| NetSpec::load(given), Model::net)?)
}

/// The solver in the file `given`, or of the model of that name.
pub(crate) fn load_solver(given: &Path) -> Result<SolverSpec> {
    Ok(named(given)?.map_or_else(|| SolverSpec::load(given), Model::solver)?)
}

/// The net in the file `given` with its text, or the model of that name with its solver, too.
pub(crate) fn read_template(given: &Path) -> Result<(NetSpec, String, Option<SolverSpec>)> {
    if let Some(model) = named(given)? {
        return Ok((model.net()?, model.net.to_owned(), Some(model.solver()?)));
    }
    let text = prototxt::read(given)?;
    Ok((NetSpec::parse(given, &text)?, text, None))
}

/// The model that `given` names, if it is no file. What looks like a path is one, whether anything is there or not.
fn named(given: &Path) -> Result<Option<&'static Model>> {
    let name = given.to_str().filter(|name| !name.contains(['/', '.']) && !given.is_file());
    let Some(name) = name else { return Ok(None) };
    let unknown = || {
        let names = MODELS.iter().map(|model| model.name).collect::<Vec<_>>().join(", ");
        usage!("there is neither a file nor a model named {name}; the models are {names}")
    };
    Model::find(name).map(Some).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, fs};

    #[test]
    fn every_folder_of_models_is_part_of_the_command() {
        let folders = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("models")).unwrap();
        let folders: BTreeSet<String> =
            folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(folders, MODELS.iter().map(|model| model.name.to_owned()).collect());
        for model in MODELS {
            let net = NetSource::Inline(Box::new(model.net().unwrap()));
            let solver = model.solver().unwrap();
            assert!(
                solver.train_net == net && solver.tests.iter().all(|test| test.net == net),
                "{}",
                model.name
            );
        }
    }
}
