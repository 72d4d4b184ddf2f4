//! Drawings of a graph.

use core::fmt::Write as _;

use crate::port::{Node, NodeKind};

/// How large a node is drawn, and how far apart they are, in pixels.
const WIDTH: usize = 180;
const HEIGHT: usize = 36;
const GAP_X: usize = 24;
const GAP_Y: usize = 40;

/// The most letters of a name that are drawn.
const LETTERS_MAX: usize = 24;

const fn color(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Kernel => "#cfe8cf",
        NodeKind::Copy => "#cfdcf2",
        NodeKind::Fill => "#f2e6cf",
        _ => "#e4e4e4",
    }
}

/// What is written on a node.
fn label(number: usize, node: &Node) -> String {
    let name = if node.name.is_empty() { node.kind.to_string() } else { node.name.clone() };
    let mut label = format!("{number}: ");
    label.extend(name.chars().take(LETTERS_MAX));
    if name.chars().count() > LETTERS_MAX {
        label.push('…');
    }
    label
}

/// In the language of Graphviz.
pub(super) fn dot(nodes: &[Node]) -> String {
    let mut text = String::from("digraph graph_of_operations {\n    node [shape=box, style=filled];\n");
    for (number, node) in nodes.iter().enumerate() {
        let label = label(number, node).replace('\\', "\\\\").replace('"', "\\\"");
        // Never an error: it is written into a text.
        let _ = writeln!(text, "    n{number} [label=\"{label}\", fillcolor=\"{}\"];", color(node.kind));
        for before in &node.after {
            let _ = writeln!(text, "    n{before} -> n{number};");
        }
    }
    text.push_str("}\n");
    text
}

/// As a picture: each node below all that it comes after.
pub(super) fn svg(nodes: &[Node]) -> String {
    // Where each is: its row and its column.
    let mut places: Vec<(usize, usize)> = Vec::with_capacity(nodes.len());
    let mut columns: Vec<usize> = Vec::new();
    for node in nodes {
        let rows = node.after.iter().filter_map(|before| places.get(*before));
        let row = rows.map(|(row, _)| row + 1).max().unwrap_or(0);
        columns.resize(columns.len().max(row + 1), 0);
        let column = columns.get_mut(row).map_or(0, |count| {
            *count += 1;
            *count - 1
        });
        places.push((row, column));
    }
    let corner =
        |place: &(usize, usize)| (GAP_X + place.1 * (WIDTH + GAP_X), GAP_Y / 2 + place.0 * (HEIGHT + GAP_Y));
    let widest = columns.iter().copied().max().unwrap_or(0).max(1);
    let (width, height) = (GAP_X + widest * (WIDTH + GAP_X), columns.len().max(1) * (HEIGHT + GAP_Y));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n"
    );
    for (node, place) in nodes.iter().zip(&places) {
        let (x, y) = corner(place);
        for (from_x, from_y) in node.after.iter().filter_map(|before| places.get(*before)).map(corner) {
            let (from_x, from_y, to_x) = (from_x + WIDTH / 2, from_y + HEIGHT, x + WIDTH / 2);
            let _ = writeln!(
                text,
                "<line x1=\"{from_x}\" y1=\"{from_y}\" x2=\"{to_x}\" y2=\"{y}\" stroke=\"#666\"/>"
            );
        }
    }
    for ((number, node), place) in nodes.iter().enumerate().zip(&places) {
        let (x, y) = corner(place);
        let label = label(number, node).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let (text_x, text_y, fill) = (x + WIDTH / 2, y + HEIGHT / 2 + 4, color(node.kind));
        let _ = writeln!(
            text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"4\" fill=\"{fill}\" stroke=\"#444\"/>\n\
             <text x=\"{text_x}\" y=\"{text_y}\" text-anchor=\"middle\">{label}</text>"
        );
    }
    text.push_str("</svg>\n");
    text
}
