//! `microbatch plot`: learning curves.

use super::draw::write_drawing;
use crate::{Console, Error, Result};
use figures::{LearningCurve, counted, learning_curves};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Draws what trainings displayed and tested, by iteration or by the `seconds` of iterations, from their logs.
pub(super) fn plot(logs: &[PathBuf], out: &Path, seconds: bool) -> Result<()> {
    // Logs of one name are told apart by the folders that they have not in common.
    let common = logs[0].ancestors().skip(1).find(|folder| logs.iter().all(|log| log.starts_with(folder)));
    let common = common.unwrap_or(Path::new(""));
    let mut curves = Vec::new();
    for (number, log) in logs.iter().enumerate() {
        let refused = |reason: String| Error::Refused(format!("cannot plot {}: {reason}", log.display()));
        let text = fs::read_to_string(log).map_err(|error| refused(error.to_string()))?;
        let same = logs.iter().filter(|other| other.file_stem() == log.file_stem()).count();
        let apart = log.strip_prefix(common).unwrap_or(log);
        let name = if same > 1 { apart.as_os_str() } else { log.file_stem().unwrap_or_default() };
        let name = name.to_string_lossy();
        let of_log = curves_of(&text, (number, if logs.len() > 1 { &name } else { "" }), seconds);
        let of_log = of_log.map_err(|line| refused(format!("line {line} is no line of a log")))?;
        if of_log.is_empty() {
            return Err(refused("nothing that is a number was displayed or tested yet".to_owned()));
        }
        curves.extend(of_log);
    }
    let place = if seconds { "seconds of training" } else { "iteration" };
    write_drawing(out, &learning_curves(&curves, place))?;
    Console::new(false).text(format!("Wrote {} with {}", out.display(), counted(curves.len(), "curve")))
}

/// The curves of log number `log`, whose names begin with `prefix`; the number of a line that is not read.
fn curves_of(text: &str, (log, prefix): (usize, &str), seconds: bool) -> Result<Vec<LearningCurve>, usize> {
    // Each run counts its own seconds.
    let (mut earlier, mut last) = (0.0, 0.0);
    let mut curves: Vec<LearningCurve> = Vec::new();
    // The last line may be on its way to the disk.
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    for (number, line) in lines.enumerate() {
        let line: Value = serde_json::from_str(line).map_err(|_| number + 1)?;
        let Some(iteration) = line["iteration"].as_f64() else { return Err(number + 1) };
        let place = if seconds { line["seconds"].as_f64().map(|run| earlier + run) } else { Some(iteration) };
        let is_test = line["kind"] == "test";
        let mut add = |name: String, is_loss: bool, value: &Value| {
            let name = [prefix, &name].join(" ").trim_start().to_owned();
            // A loss that is no number is null.
            let (Some(place), Some(value)) = (place, value.as_f64()) else { return };
            match curves.iter_mut().find(|curve| curve.name == name) {
                Some(curve) => curve.points.push([place, value]),
                None => {
                    curves.push(LearningCurve { log, is_test, name, is_loss, points: vec![[place, value]] })
                }
            }
        };
        last = place.unwrap_or(last);
        let phase = match line["kind"].as_str() {
            Some("display") => "train".to_owned(),
            Some("test") => format!("test {}", line["net"]).replace(" 0", ""),
            Some("manifest") => {
                earlier = last;
                continue;
            }
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
    fn seconds_go_on_where_a_training_was_resumed() {
        let run = |seconds: [f64; 2]| {
            let line = |(at, seconds): (usize, &f64)| {
                format!(
                    "{{\"kind\":\"display\",\"iteration\":{at},\"seconds\":{seconds},\"smoothed_loss\":1}}\n"
                )
            };
            let lines: Vec<String> = seconds.iter().enumerate().map(line).collect();
            let lines = lines.join("{\"kind\":\"snapshot\",\"iteration\":1}\n");
            let lines = format!("{lines}{{\"kind\":\"snapshot\",\"iteration\":2,\"seconds\":3}}\n");
            format!("{{\"kind\":\"manifest\",\"iteration\":0}}\n{lines}")
        };
        let log = run([0.5, 2.0]) + &run([0.25, 1.0]);
        let curves = curves_of(&log, (0, ""), true).unwrap();
        let seconds: Vec<f64> = curves[0].points.iter().map(|point| point[0]).collect();
        assert_eq!(seconds, [0.5, 2.0, 3.25, 4.0]);
    }

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
            log: 1,
            is_test: name.contains("test"),
            name: name.to_owned(),
            is_loss,
            points: points.to_vec(),
        };
        let expected = [
            curve("train test accuracy", false, &[[0.0, 0.1]]),
            curve("train test loss", true, &[[0.0, 2.3]]),
            curve("train train loss", true, &[[0.0, 2.5], [20.0, 1.5]]),
        ];
        assert_eq!(curves_of(text, (1, "train"), false).unwrap(), expected);
        assert_eq!(curves_of("{\"kind\":\"x\"}\n", (0, ""), false), Err(1));
    }
}
