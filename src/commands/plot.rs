//! `microbatch plot`: learning curves.

use super::draw::write_drawing;
use crate::Error;
use figures::study::{LearningCurve, learning_curves};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Draws what trainings displayed and tested, by iteration, from their logs.
pub(super) fn plot(logs: &[PathBuf], out: &Path) -> Result<(), Error> {
    let mut curves = Vec::new();
    for log in logs {
        let refused = |reason: String| Error::Refused(format!("cannot plot {}: {reason}", log.display()));
        let text = fs::read_to_string(log).map_err(|error| refused(error.to_string()))?;
        let name = log.file_stem().unwrap_or_default().to_string_lossy();
        let of_log = curves_of(&text, if logs.len() > 1 { &name } else { "" });
        let of_log = of_log.map_err(|line| refused(format!("line {line} is no line of a log")))?;
        if of_log.is_empty() {
            return Err(refused("nothing was displayed or tested yet".to_owned()));
        }
        curves.extend(of_log);
    }
    write_drawing(out, &learning_curves(&curves))
}

/// The curves of a log, whose names begin with `prefix`; the number of a line that is not read.
fn curves_of(text: &str, prefix: &str) -> Result<Vec<LearningCurve>, usize> {
    let mut curves: Vec<LearningCurve> = Vec::new();
    // The last line may be on its way to the disk.
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    for (number, line) in lines.enumerate() {
        let line: Value = serde_json::from_str(line).map_err(|_| number + 1)?;
        let Some(iteration) = line["iteration"].as_f64() else { return Err(number + 1) };
        let mut add = |name: String, is_loss: bool, value: &Value| {
            let name = [prefix, &name].join(" ").trim_start().to_owned();
            // A loss that is no number is null.
            let Some(value) = value.as_f64() else { return };
            match curves.iter_mut().find(|curve| curve.name == name) {
                Some(curve) => curve.points.push([iteration, value]),
                None => curves.push(LearningCurve { name, is_loss, points: vec![[iteration, value]] }),
            }
        };
        let phase = match line["kind"].as_str() {
            Some("display") => "train".to_owned(),
            Some("test") => format!("test {}", line["net"]).replace(" 0", ""),
            _ => continue,
        };
        add(format!("{phase} loss"), true, &line["smoothed_loss"]);
        for output in line["outputs"].as_array().into_iter().flatten() {
            if let [value] = &output["values"].as_array().map_or(&[][..], Vec::as_slice) {
                let is_loss = output["loss_weight"].as_f64() != Some(0.0);
                add(format!("{phase} {}", output["name"].as_str().unwrap_or_default()), is_loss, value);
            }
        }
    }
    Ok(curves)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_those_of_the_log() {
        let text = r#"{"kind":"manifest","iteration":0}
{"kind":"test","iteration":0,"net":0,"outputs":[{"name":"accuracy","values":[0.1],"loss_weight":0.0},{"name":"loss","values":[2.3],"loss_weight":1.0},{"name":"prob","values":[0.5,0.5],"loss_weight":0.0}]}
{"kind":"display","iteration":0,"smoothed_loss":2.5,"outputs":[]}
{"kind":"display","iteration":10,"smoothed_loss":null,"outputs":[]}
{"kind":"display","iteration":20,"smoothed_loss":1.5,"outputs":[]}
{"kind":"snapshot","iteration":20,"path":"x"}
[1, 2"#;
        let curve = |name: &str, is_loss, points: &[[f64; 2]]| LearningCurve {
            name: name.to_owned(),
            is_loss,
            points: points.to_vec(),
        };
        let expected = [
            curve("a test accuracy", false, &[[0.0, 0.1]]),
            curve("a test loss", true, &[[0.0, 2.3]]),
            curve("a train loss", true, &[[0.0, 2.5], [20.0, 1.5]]),
        ];
        assert_eq!(curves_of(text, "a").unwrap(), expected);
        assert_eq!(curves_of("{\"kind\":\"x\"}\n", ""), Err(1));
    }
}
