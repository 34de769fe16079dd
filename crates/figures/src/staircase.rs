//! A drawing of time against workspace.

use planner::{Bytes, Curve};
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
/// Left, right, top and bottom of the area of the curves.
const AREA: [f64; 4] = [64.0, 740.0, 44.0, 292.0];
const COLOURS: [&str; 3] = ["#b3541e", "#1e6fb3", "#3f8f4f"];

/// Planned time (upwards, from 0) under each limit (to the right, in powers of two from `limits[0]` to `limits[1]`), a
/// staircase for each curve with its name, as an SVG document.
///
/// # Panics
/// Unless `0 < limits[0] < limits[1]`.
pub fn staircase_svg(title: &str, curves: &[(&str, &Curve)], limits: [Bytes; 2]) -> String {
    assert!(Bytes(0) < limits[0] && limits[0] < limits[1], "limits from {} to {}", limits[0], limits[1]);
    let first = limits[0];
    let slowest = curves.iter().filter_map(|(_, curve)| curve.time_ms(first)).fold(0.0, f64::max);
    let scale = Scale { limits: limits.map(|limit| (limit.0 as f64).log2()), most_ms: step_of(slowest).1 };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
         <text x=\"{}\" y=\"22\" font-size=\"15\" fill=\"#222222\">{title}</text>\n",
        AREA[0]
    );
    scale.axes(&mut svg, limits, step_of(slowest).0);
    for (place, &curve) in curves.iter().enumerate() {
        scale.curve(&mut svg, curve, limits, place);
    }
    svg.push_str("</svg>\n");
    svg
}

/// A round distance between lines, and the first multiple of it that is not below `most`.
fn step_of(most: f64) -> (f64, f64) {
    let rough = (most / 5.0).max(1e-3);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|&step| step >= rough);
    let step = step.unwrap_or(10.0 * power);
    (step, (most / step).ceil() * step)
}

/// From limits and times to the drawing.
struct Scale {
    /// The logarithms of the first and last limit.
    limits: [f64; 2],
    most_ms: f64,
}

impl Scale {
    fn x(&self, limit: Bytes) -> f64 {
        let part = ((limit.0 as f64).log2() - self.limits[0]) / (self.limits[1] - self.limits[0]);
        AREA[0] + part.clamp(0.0, 1.0) * (AREA[1] - AREA[0])
    }

    fn y(&self, time_ms: f64) -> f64 {
        AREA[3] - time_ms / self.most_ms * (AREA[3] - AREA[2])
    }

    /// A line and a word for every round time and every fourth power of two.
    fn axes(&self, svg: &mut String, limits: [Bytes; 2], step_ms: f64) {
        let [left, right, top, bottom] = AREA;
        let mut line = |x: [f64; 2], y: [f64; 2]| {
            let _ = writeln!(
                svg,
                "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#dddddd\"/>",
                x[0], y[0], x[1], y[1]
            );
        };
        let times: Vec<f64> =
            (0..).map(|i| f64::from(i) * step_ms).take_while(|&t| t <= self.most_ms).collect();
        let powers = (0..64).map(|power| Bytes(1 << power));
        let marks: Vec<Bytes> =
            powers.filter(|&limit| limits[0] <= limit && limit <= limits[1]).step_by(2).collect();
        times.iter().for_each(|&time| line([left, right], [self.y(time); 2]));
        marks.iter().for_each(|&limit| line([self.x(limit); 2], [top, bottom]));
        let mut word = |x: f64, y: f64, anchor: &str, text: &str| {
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#555555\">{text}</text>"
            );
        };
        times.iter().for_each(|&time| word(left - 8.0, self.y(time) + 4.0, "end", &format!("{time}")));
        marks.iter().for_each(|&limit| word(self.x(limit), bottom + 18.0, "middle", &limit.to_string()));
        word(left - 8.0, top - 10.0, "end", "ms");
        word((left + right) / 2.0, bottom + 38.0, "middle", "workspace limit of each kernel");
    }

    /// The staircase, and its name in a legend at the top right, where curves that fall leave room.
    fn curve(&self, svg: &mut String, (name, curve): (&str, &Curve), limits: [Bytes; 2], place: usize) {
        let (colour, legend) = (COLOURS[place % COLOURS.len()], AREA[2] + 20.0 + 20.0 * place as f64);
        let Some(start) = curve.time_ms(limits[0]) else { return };
        let inside = |limit: Bytes| limits[0] < limit && limit <= limits[1];
        let mut path = format!("M{:.1} {:.1}", self.x(limits[0]), self.y(start));
        for point in curve.points().iter().filter(|point| inside(point.workspace)) {
            let _ = write!(path, "H{:.1}V{:.1}", self.x(point.workspace), self.y(point.time_ms));
        }
        let end = self.x(limits[1]);
        let _ = writeln!(
            svg,
            "<path d=\"{path}H{end:.1}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\"/>\n\
             <path d=\"M{:.1} {:.1}h24\" stroke=\"{colour}\" stroke-width=\"2.5\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#222222\">{name}</text>",
            AREA[1] - 190.0,
            legend - 4.0,
            AREA[1] - 158.0,
            legend
        );
    }
}
