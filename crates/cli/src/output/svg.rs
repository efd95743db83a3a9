//! Writes SVG documents.

use std::fmt::Write;
use std::path::Path;

use crate::failure::{Failure, code};

/// The width of all drawings, and their margin.
pub(crate) const WIDTH: f64 = 960.0;
pub(crate) const MARGIN: f64 = 32.0;
pub(crate) const INNER_WIDTH: f64 = WIDTH - 2.0 * MARGIN;
/// The most characters of a title.
const MAX_TITLE_CHARS: usize = 80;

/// The style sheet. Classes with a dark twin follow the reader's colour scheme.
const STYLE: &str = "\
text{font:12px system-ui,'DejaVu Sans',sans-serif;fill:#24292f}
.title{font-size:18px;font-weight:600}
.head{font-size:14px;font-weight:600}
.soft{fill:#57606a}
.page{fill:#fff}
.axis{stroke:#8c959f;fill:none}
.rule{stroke:#d8dee4;fill:none}
.clean{fill:#eaeef2}.pending{fill:#b6a5e0}.open{fill:#e8590c}
.l0{fill:#d3e5f5}.l1{fill:#bcd8ee}.l2{fill:#a2c9e6}.l3{fill:#86b8dd}.l4{fill:#6aa5d2}
.l5{fill:#5091c6}.l6{fill:#387cb7}.l7{fill:#2467a5}.l8{fill:#12518f}.l9{fill:#083a72}
.main{fill:#6e7781}.written{fill:#0d7a5f}.moved{fill:#b5179e}
.dot{fill-opacity:.65}
.heads{fill:#0969da}.snapshots{fill:#8250df}.shared{fill:#54aeff}.dead{fill:#d4a72c}
.reserve{fill:#afb8c1}.seen{fill:#d3e5f5}
.g0{fill:#0969da;stroke:#0969da}.g1{fill:#8250df;stroke:#8250df}.g2{fill:#0d7a5f;stroke:#0d7a5f}
.g3{fill:#b5179e;stroke:#b5179e}.g4{fill:#bc4c00;stroke:#bc4c00}.g5{fill:#57606a;stroke:#57606a}
.edge{fill:none;stroke-width:2}.folded{stroke-dasharray:2 4}.name{font-weight:600}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}
.soft{fill:#9ea7b3}
.page{fill:#0d1117}
.axis{stroke:#768390}
.rule{stroke:#2d333b}
.clean{fill:#21262d}.pending{fill:#7c68b8}.open{fill:#f0883e}
.l0{fill:#1b3350}.l1{fill:#1f4165}.l2{fill:#244f7b}.l3{fill:#2a5f93}.l4{fill:#336fab}
.l5{fill:#4081c1}.l6{fill:#5494d4}.l7{fill:#6fa9e3}.l8{fill:#8fc0ef}.l9{fill:#b6d9fa}
.main{fill:#adbac7}.written{fill:#3fb68b}.moved{fill:#f778ba}
.heads{fill:#79c0ff}.snapshots{fill:#a371f7}.shared{fill:#1f6feb}.dead{fill:#9e6a03}
.reserve{fill:#484f58}.seen{fill:#1b3350}
.g0{fill:#58a6ff;stroke:#58a6ff}.g1{fill:#a371f7;stroke:#a371f7}.g2{fill:#3fb68b;stroke:#3fb68b}
.g3{fill:#f778ba;stroke:#f778ba}.g4{fill:#f0883e;stroke:#f0883e}.g5{fill:#adbac7;stroke:#adbac7}
.edge{fill:none}
}
";

/// The position of a text relative to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Area {
    pub(crate) fn right(self) -> f64 {
        self.x + self.width
    }

    pub(crate) fn bottom(self) -> f64 {
        self.y + self.height
    }
}

/// The document so far.
#[derive(Debug, Default)]
pub(crate) struct Svg {
    body: String,
}

impl Svg {
    /// Adds a text; `y` is its baseline.
    pub(crate) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let text = escape(text);
        self.put(&format!(
            "<text{class} x=\"{}\" y=\"{}\"{anchor}>{text}</text>",
            number(x),
            number(y)
        ));
    }

    /// Adds a text that runs upwards, with its middle at the point.
    pub(crate) fn text_upwards(&mut self, (x, y): (f64, f64), text: &str) {
        let (x, y, text) = (number(x), number(y), escape(text));
        self.put(&format!(
            "<text class=\"soft\" transform=\"translate({x} {y}) rotate(-90)\" \
             text-anchor=\"middle\">{text}</text>"
        ));
    }

    /// Adds a rectangle; `tip` is shown while a pointer rests on it.
    pub(crate) fn rect(&mut self, class: &str, area: Area, tip: &str) {
        let [x, y, width, height] = [area.x, area.y, area.width, area.height].map(number);
        let place =
            format!("class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"");
        self.put(&shape("rect", &place, tip));
    }

    pub(crate) fn dot(&mut self, class: &str, (x, y): (f64, f64), radius: f64, tip: &str) {
        let [x, y, radius] = [x, y, radius].map(number);
        let place = format!("class=\"dot {class}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"");
        self.put(&shape("circle", &place, tip));
    }

    pub(crate) fn line(&mut self, class: &str, (x, y): (f64, f64), (to_x, to_y): (f64, f64)) {
        let [x, y, to_x, to_y] = [x, y, to_x, to_y].map(number);
        self.put(&format!("<path class=\"{class}\" d=\"M{x} {y}L{to_x} {to_y}\"/>"));
    }

    /// Adds a line from one point up to another, with a curve where it changes its column.
    pub(crate) fn curve(&mut self, class: &str, (x, y): (f64, f64), (to_x, to_y): (f64, f64)) {
        let middle = number((y + to_y) / 2.0);
        let [x, y, to_x, to_y] = [x, y, to_x, to_y].map(number);
        self.put(&format!(
            "<path class=\"{class}\" d=\"M{x} {y}C{x} {middle} {to_x} {middle} {to_x} {to_y}\"/>"
        ));
    }

    /// Adds an opaque circle.
    pub(crate) fn knot(&mut self, class: &str, (x, y): (f64, f64), radius: f64, tip: &str) {
        let [x, y, radius] = [x, y, radius].map(number);
        let place = format!("class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"");
        self.put(&shape("circle", &place, tip));
    }

    fn put(&mut self, element: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.body, "{element}");
    }

    /// The whole document; `label` is for screen readers.
    pub(crate) fn finish(self, width: f64, height: f64, label: &str) -> String {
        let (width, height) = (number(width), number(height));
        let (label, body) = (escape(label), self.body);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">\n\
             <style>\n{STYLE}</style>\n\
             <rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n{body}</svg>\n"
        )
    }
}

fn shape(kind: &str, place: &str, tip: &str) -> String {
    match tip {
        "" => format!("<{kind} {place}/>"),
        tip => format!("<{kind} {place}><title>{}</title></{kind}>", escape(tip)),
    }
}

/// Refuses a file name with the extension of another kind of drawing.
pub(crate) fn check_name(file: &Path) -> Result<(), Failure> {
    let extension = file.extension().map(|extension| extension.to_ascii_lowercase());
    if extension.is_some_and(|extension| extension == "svg") {
        return Ok(());
    }
    let why =
        "a plot is an SVG drawing, whose name ends in .svg; rsvg-convert(1) makes others of it";
    Err(Failure::new(format_args!("{}: {why}", file.display())).with_code(code::USAGE))
}

/// The end of a name that is too long.
pub(crate) fn shortened(name: &str) -> String {
    let count = name.chars().count();
    if count <= MAX_TITLE_CHARS {
        return name.to_owned();
    }
    let end: String = name.chars().skip(count - MAX_TITLE_CHARS + 1).collect();
    format!("…{end}")
}

/// A name whose middle is left out if it is too long. Both ends tell names apart, for example by a
/// time at the end.
pub(crate) fn elided(name: &str, max_chars: usize) -> String {
    let count = name.chars().count();
    if count <= max_chars {
        return name.to_owned();
    }
    let end_chars = max_chars / 2;
    let start: String = name.chars().take(max_chars - end_chars - 1).collect();
    let end: String = name.chars().skip(count - end_chars).collect();
    format!("{start}…{end}")
}

/// A number with at most one decimal.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

fn escape(text: &str) -> String {
    let is_shown = |c: &char| !c.is_control();
    let shown: String = text.chars().filter(is_shown).collect();
    shown.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_become_markup() {
        let mut svg = Svg::default();
        svg.text("", (1.0, 2.05), Anchor::End, "<&\">\u{1}");
        svg.rect("clean", Area { x: 0.0, y: 0.0, width: 1.25, height: 1.0 }, "</title>");
        let document = svg.finish(10.0, 20.0, "<b>");
        assert!(document.contains("text-anchor=\"end\">&lt;&amp;&quot;&gt;</text>"), "{document}");
        assert!(document.contains("<title>&lt;/title&gt;</title></rect>"), "{document}");
        assert!(document.contains("aria-label=\"&lt;b&gt;\""), "{document}");
        assert!(document.contains("width=\"1.2\""), "{document}");
    }

    #[test]
    fn a_long_name_is_told_from_its_end() {
        let long = format!("/{}/home.img", "directory/".repeat(20));
        assert_eq!(shortened("/srv/home.img"), "/srv/home.img");
        assert_eq!(shortened(&long).chars().count(), MAX_TITLE_CHARS);
        assert!(shortened(&long).starts_with('…') && shortened(&long).ends_with("/home.img"));
    }

    #[test]
    fn every_class_of_the_light_scheme_has_a_dark_twin() {
        let (light, dark) = STYLE.split_once("@media").unwrap();
        let classes = |style: &str| -> Vec<String> {
            let all = style.split(['}', '\n']).filter(|rule| rule.contains(":#"));
            all.map(|rule| rule.split('{').next().unwrap().to_owned()).collect()
        };
        let twins = classes(dark);
        for class in classes(light).iter().filter(|class| !class.starts_with("text")) {
            assert!(twins.contains(class), "{class} is not in the dark scheme");
        }
    }
}
