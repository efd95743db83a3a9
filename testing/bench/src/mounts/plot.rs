//! The rates as points on a logarithmic scale, an operation a line, in proportion to ext4's.

use std::fmt::Write;

use super::report::Report;

const REFERENCE: &str = "ext4";
const LEFT: f64 = 330.0;
const WIDTH: f64 = 560.0;
const TOP: f64 = 64.0;
const LINE: f64 = 19.0;
const RADIUS: f64 = 5.0;
/// The scale goes from a 64th to 64 times.
const OCTAVES: f64 = 6.0;
/// Colours that the colour-blind tell apart too (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#D55E00", "#999999", "#CC79A7", "#666666", "#0072B2", "#009E73", "#E69F00", "#000000"];

/// An SVG of all that was measured on the reference too.
pub(super) fn svg(report: &Report) -> String {
    let reference = |operation: &str, clients| report.median(REFERENCE, operation, clients);
    let rows: Vec<_> = report
        .rows()
        .into_iter()
        .filter(|&(operation, clients, _)| reference(operation, clients).is_some())
        .collect();
    let height = TOP + LINE * (rows.len() as f64 + 1.0) + 30.0;
    let total = LEFT + WIDTH + 30.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {total} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    legend(&mut out, report);
    scale(&mut out, height);
    for (at, (operation, clients, _)) in rows.into_iter().enumerate() {
        let y = TOP + LINE * (at as f64 + 1.0);
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{operation}, {clients} {}</text>",
            LEFT - 14.0,
            y + 4.0,
            if clients == 1 { "client" } else { "clients" }
        );
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" stroke=\"#eeeeee\"/>",
            LEFT + WIDTH
        );
        let Some(base) = reference(operation, clients) else { continue };
        // The first target is drawn last, over the others.
        for (target, colour) in report.targets.iter().zip(COLOURS).rev() {
            if let Some(rate) = report.median(target, operation, clients) {
                point(&mut out, x(rate / base), y, colour, &format!("{target}: {rate:.0}"));
            }
        }
    }
    out.push_str("</svg>\n");
    out
}

fn x(ratio: f64) -> f64 {
    let octave = ratio.log2().clamp(-OCTAVES, OCTAVES);
    LEFT + WIDTH * (octave + OCTAVES) / (2.0 * OCTAVES)
}

fn point(out: &mut String, x: f64, y: f64, colour: &str, title: &str) {
    let _ = writeln!(
        out,
        "<circle cx=\"{x:.1}\" cy=\"{y}\" r=\"{RADIUS}\" fill=\"{colour}\" fill-opacity=\"0.8\">\
         <title>{title}</title></circle>"
    );
}

fn legend(out: &mut String, report: &Report) {
    for (at, (target, colour)) in report.targets.iter().zip(COLOURS).enumerate() {
        let left = 20.0 + 110.0 * at as f64;
        point(out, left, 18.0, colour, target);
        let _ = writeln!(out, "<text x=\"{}\" y=\"22\">{target}</text>", left + 10.0);
    }
}

fn scale(out: &mut String, height: f64) {
    for octave in -6_i32..=6 {
        let ratio = f64::from(octave).exp2();
        let at = x(ratio);
        let label = match octave {
            0 => format!("as {REFERENCE}"),
            1.. => format!("{ratio}x"),
            _ => format!("1/{}", 1.0 / ratio),
        };
        let stroke = if octave == 0 { "#888888" } else { "#dddddd" };
        let _ = writeln!(
            out,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{}\" stroke=\"{stroke}\"/>\n\
             <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            height - 12.0,
            TOP - 8.0
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_lies_in_the_middle_and_nothing_beyond_the_edges() {
        assert!((x(1.0) - (LEFT + WIDTH / 2.0)).abs() < 1e-9);
        assert!((x(1e9) - (LEFT + WIDTH)).abs() < 1e-9);
        assert!((x(1e-9) - LEFT).abs() < 1e-9);
    }
}
