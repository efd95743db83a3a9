//! An SVG document, written as it is drawn.

use std::fmt::Write;

/// What everything looks like. Classes with a dark twin follow the reader's colour scheme.
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
}
";

/// Where a text stands to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Area {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Area {
    pub(super) fn right(self) -> f64 {
        self.x + self.width
    }

    pub(super) fn bottom(self) -> f64 {
        self.y + self.height
    }
}

/// The document so far.
#[derive(Debug, Default)]
pub(super) struct Svg {
    body: String,
}

impl Svg {
    /// `y` is where the text stands on.
    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
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

    /// A text that is read from below, its middle at the place.
    pub(super) fn text_upwards(&mut self, (x, y): (f64, f64), text: &str) {
        let (x, y, text) = (number(x), number(y), escape(text));
        self.put(&format!(
            "<text class=\"soft\" transform=\"translate({x} {y}) rotate(-90)\" \
             text-anchor=\"middle\">{text}</text>"
        ));
    }

    /// `tip` is shown where a pointer rests on it.
    pub(super) fn rect(&mut self, class: &str, area: Area, tip: &str) {
        let [x, y, width, height] = [area.x, area.y, area.width, area.height].map(number);
        let place =
            format!("class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"");
        self.put(&shape("rect", &place, tip));
    }

    pub(super) fn dot(&mut self, class: &str, (x, y): (f64, f64), radius: f64, tip: &str) {
        let [x, y, radius] = [x, y, radius].map(number);
        let place = format!("class=\"dot {class}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"");
        self.put(&shape("circle", &place, tip));
    }

    pub(super) fn line(&mut self, class: &str, (x, y): (f64, f64), (to_x, to_y): (f64, f64)) {
        let [x, y, to_x, to_y] = [x, y, to_x, to_y].map(number);
        self.put(&format!("<path class=\"{class}\" d=\"M{x} {y}L{to_x} {to_y}\"/>"));
    }

    fn put(&mut self, element: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.body, "{element}");
    }

    /// The whole document; `label` is what a screen reader says.
    pub(super) fn finish(self, width: f64, height: f64, label: &str) -> String {
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

/// With one decimal at most.
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
