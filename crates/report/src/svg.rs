//! Formats SVG numbers, paths and marker shapes.
//!
//! This module does not depend on axes or data. Coordinates are rounded to one decimal, which is
//! finer than a pixel and keeps pages small.

use std::fmt::Write;

/// SVG paths of the marker shapes: circle, square, triangle, diamond, inverted triangle, cross,
/// bar, pentagon. Each shape is centred on the origin and about nine units wide. The shapes can be
/// distinguished without colour.
const MARKERS: [&str; 8] = [
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "M-3.6-3.6h7.2v7.2h-7.2z",
    "M0-4.8L4.6 3.4H-4.6z",
    "M0-5L5 0L0 5L-5 0z",
    "M0 4.8L4.6-3.4H-4.6z",
    "M-1.5-4.6h3v3.1h3.1v3h-3.1v3.1h-3v-3.1h-3.1v-3h3.1z",
    "M-2-5h4v10h-4z",
    "M0-4.8L4.6-1.5L2.8 3.9H-2.8L-4.6-1.5z",
];

/// Number of marker shapes. The style sheet defines the same number of colours.
pub(crate) const HUES: usize = MARKERS.len();

/// SVG path of length zero, for the points of dense series. The path is invisible until the style
/// sheet draws it with a wide stroke, which makes it a dot.
pub(crate) const DOT: &str = "M0 0h0";

/// Returns the marker shape for the colour with number `hue`.
pub(crate) fn marker(hue: usize) -> &'static str {
    MARKERS[hue % HUES]
}

/// Formats a coordinate with at most one decimal.
pub(crate) fn number(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    if rounded == 0.0 { "0".to_string() } else { format!("{rounded}") }
}

/// Formats an SVG transform that moves a shape to a position.
pub(crate) fn translate(x: f64, y: f64) -> String {
    format!("translate({} {})", number(x), number(y))
}

/// Formats a path through points. A `None` interrupts the path. With `steps`, the path is
/// horizontal up to the x of the next point, and then vertical. Empty if there is nothing to draw.
pub(crate) fn line(places: &[Option<(f64, f64)>], steps: bool) -> String {
    let mut path = String::new();
    let mut drawing = false;
    for place in places {
        let Some((x, y)) = place else {
            drawing = false;
            continue;
        };
        let (x, y) = (number(*x), number(*y));
        let written = match (drawing, steps) {
            (false, _) => write!(path, "M{x} {y}"),
            (true, false) => write!(path, "L{x} {y}"),
            (true, true) => write!(path, "H{x}V{y}"),
        };
        written.expect("writing to a String cannot fail");
        drawing = true;
    }
    path
}

/// Formats vertical error bars with caps. Each item of `bars` contains the x, the lower y and the
/// upper y of a bar.
pub(crate) fn error_bars(bars: &[(f64, f64, f64)]) -> String {
    let mut path = String::new();
    for (x, low, high) in bars {
        let (x, low, high) = (number(*x), number(*low), number(*high));
        write!(path, "M{x} {low}V{high}m-3 0h6M{x} {low}m-3 0h6")
            .expect("writing to a String cannot fail");
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_broken_where_a_place_is_missing() {
        let places = [Some((0.0, 1.0)), Some((2.04, 3.0)), None, Some((5.0, 6.06))];
        assert_eq!(line(&places, false), "M0 1L2 3M5 6.1");
        assert_eq!(line(&places, true), "M0 1H2V3M5 6.1");
        assert_eq!(line(&[None], false), "");
    }

    #[test]
    fn numbers_are_short_and_never_minus_zero() {
        assert_eq!(number(-0.01), "0");
        assert_eq!(number(12.345), "12.3");
    }

    #[test]
    fn every_hue_has_its_own_shape() {
        let shapes: std::collections::BTreeSet<_> = (0..HUES).map(marker).collect();
        assert_eq!(shapes.len(), HUES);
        assert_eq!(marker(HUES), marker(0));
    }
}
