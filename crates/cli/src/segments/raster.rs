//! A drawing in pixels, as a PNG image.

use super::font::{self, GLYPH_HEIGHT, GLYPH_WIDTH};
use super::plot::{Anchor, Colour, Scene, Shape};

/// Pixels of the image for each of the drawing, so that it is sharp.
const SCALE: u32 = 2;
/// Pixels of the image for each of a letter.
const LETTER_SCALE: u32 = 3;
const PAPER: Colour = [255, 255, 255];
const INK: Colour = [40, 40, 40];

struct Canvas {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

impl Canvas {
    fn new(width: u32, height: u32) -> Self {
        let count = width as usize * height as usize;
        Self { width, height, pixels: PAPER.repeat(count) }
    }

    /// Fills what of the rectangle lies inside.
    fn fill(&mut self, (x, y): (i64, i64), (width, height): (u32, u32), colour: Colour) {
        let clamp = |at: i64, end: u32| at.clamp(0, i64::from(end)) as usize;
        let columns = clamp(x, self.width)..clamp(x + i64::from(width), self.width);
        for row in clamp(y, self.height)..clamp(y + i64::from(height), self.height) {
            let start = row * self.width as usize;
            let line = &mut self.pixels[(start + columns.start) * 3..(start + columns.end) * 3];
            for pixel in line.chunks_exact_mut(3) {
                pixel.copy_from_slice(&colour);
            }
        }
    }

    fn write(&mut self, (x, y): (i64, i64), anchor: Anchor, text: &str) {
        let advance = i64::from((GLYPH_WIDTH + 1) * LETTER_SCALE);
        let len = text.chars().count() as i64 * advance;
        let start = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x - len / 2,
            Anchor::End => x - len,
        };
        let top = y - i64::from(GLYPH_HEIGHT * LETTER_SCALE);
        for (at, letter) in (0..).zip(text.chars()) {
            let left = start + at * advance;
            for (column, row) in font::pixels(letter) {
                let place =
                    (left + i64::from(column * LETTER_SCALE), top + i64::from(row * LETTER_SCALE));
                self.fill(place, (LETTER_SCALE, LETTER_SCALE), INK);
            }
        }
    }
}

/// The bytes of the image.
pub(super) fn png(scene: &Scene) -> Result<Vec<u8>, png::EncodingError> {
    let canvas = draw(scene);
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, canvas.width, canvas.height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&canvas.pixels)?;
    writer.finish()?;
    Ok(bytes)
}

fn draw(scene: &Scene) -> Canvas {
    let mut canvas = Canvas::new(scene.width * SCALE, scene.height * SCALE);
    let place = |x: u32, y: u32| (i64::from(x * SCALE), i64::from(y * SCALE));
    for shape in &scene.shapes {
        match shape {
            Shape::Rect { x, y, width, height, colour } => {
                canvas.fill(place(*x, *y), (width * SCALE, height * SCALE), *colour);
            }
            Shape::Text { x, y, anchor, text } => canvas.write(place(*x, *y), *anchor, text),
        }
    }
    canvas
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene(shapes: Vec<Shape>) -> Scene {
        Scene { width: 40, height: 20, shapes }
    }

    fn count(canvas: &Canvas, colour: Colour) -> usize {
        canvas.pixels.chunks(3).filter(|pixel| **pixel == colour).count()
    }

    #[test]
    fn what_lies_outside_is_cut_off() {
        let red = [255, 0, 0];
        let rect = |x, y, width, height| Shape::Rect { x, y, width, height, colour: red };
        let canvas = draw(&scene(vec![rect(35, 15, 100, 100), rect(100, 100, 5, 5)]));
        assert_eq!(count(&canvas, red), (5 * 5 * SCALE * SCALE) as usize);
        let long = Shape::Text { x: 20, y: 3, anchor: Anchor::Middle, text: "W".repeat(500) };
        assert!(count(&draw(&scene(vec![long])), INK) > 0);
    }

    #[test]
    fn the_image_is_read_back_as_it_was_drawn() {
        let text = Shape::Text { x: 1, y: 18, anchor: Anchor::Start, text: "7%".into() };
        let scene = scene(vec![text]);
        let image = png(&scene).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(image)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (80, 40));
        assert!(pixels == draw(&scene).pixels);
        let letters = "7%".chars().flat_map(font::pixels).count();
        assert_eq!(count(&draw(&scene), INK), letters * (LETTER_SCALE * LETTER_SCALE) as usize);
    }
}
