//! Runs as one HTML page that needs nothing else: styles and pictures are in it, there is no script, and nothing is loaded.
//!
//! | file | what |
//! |---|---|
//! | `head.rs` | title, checks, machine, method |
//! | `suite.rs` | a suite's pictures and numbers, in order |
//! | `cdf.rs`, `scatter.rs`, `forest.rs`, `timeline.rs` | the pictures |
//! | `tables.rs` | the numbers |
//! | `compare.rs` | what changed between two runs |
//! | `axis.rs`, `plot.rs`, `marks.rs` | scales, frames, how arms are told apart |
//! | `html.rs` | escaping and coordinates |
//! | `style.css` | light, dark, phone, print |
//!
//! The page is well-formed XML too, so that a test can take it apart. Every picture has its numbers in a table.

mod axis;
mod cdf;
mod compare;
mod forest;
mod head;
mod html;
mod marks;
mod plot;
mod scatter;
mod suite;
mod tables;
mod timeline;

use std::fmt::{self, Write};

use self::html::{Out, Text};
use self::marks::Arms;
use super::compare::Comparison;
use super::read::RunFile;

const STYLE: &str = include_str!("style.css");

/// The page of these runs; what changed between them comes first.
///
/// ```
/// let page = wakeline_benches::ab::report::page(&[], &[]);
/// assert!(page.starts_with("<!DOCTYPE html>") && !page.contains("<script"));
/// ```
pub fn page(files: &[RunFile], comparisons: &[Comparison]) -> String {
    let mut out = Out::default();
    // Writing into a string does not fail.
    let _ = write_page(&mut out, files, comparisons);
    out.into_text()
}

fn write_page(out: &mut Out, files: &[RunFile], comparisons: &[Comparison]) -> fmt::Result {
    let title = match files {
        [only] => head::title(only),
        _ => "wakeline A/B runs".to_owned(),
    };
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
         <meta name=\"color-scheme\" content=\"light dark\"/>\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\
         <title>{}</title><style>{STYLE}</style></head><body><main>",
        Text(&title)
    )?;
    if files.len() != 1 {
        write!(out, "<h1>{title}</h1><p class=\"facts\">")?;
        for (index, file) in files.iter().enumerate() {
            write!(out, "{}<code>{}</code>", if index == 0 { "" } else { " \u{b7} " }, Text(&file.name))?;
        }
        out.write_str("</p>")?;
    }
    for (index, comparison) in comparisons.iter().enumerate() {
        let later = files.iter().find(|file| file.name == comparison.after);
        let arms = Arms::new(later.map(RunFile::arms).unwrap_or_default());
        compare::comparison(out, &arms, comparison, &format!("changed-{index}"))?;
    }
    for (index, file) in files.iter().enumerate() {
        run(out, file, index)?;
    }
    head::method(out, files)?;
    out.write_str("</main></body></html>\n")
}

fn run(out: &mut Out, file: &RunFile, index: usize) -> fmt::Result {
    let arms = Arms::new(file.arms());
    let suites = file.suites();
    out.write_str("<article>")?;
    head::head(out, file)?;
    out.write_str("<nav aria-label=\"Suites\"><ul>")?;
    for (suite, name) in suites.iter().enumerate() {
        write!(out, "<li><a href=\"#suite-{index}-{suite}\">{}</a></li>", Text(name))?;
    }
    write!(out, "<li><a href=\"#machine-{index}\">Machine and run</a></li>")?;
    out.write_str("<li><a href=\"#method\">How it was measured</a></li></ul></nav>")?;
    for (suite, name) in suites.iter().enumerate() {
        suite::suite(out, &arms, file, name, &format!("suite-{index}-{suite}"))?;
    }
    head::environment(out, file, &format!("machine-{index}"))?;
    out.write_str("</article>")
}

#[cfg(test)]
mod tests {
    use super::STYLE;

    /// The relative luminance of a colour, by WCAG 2.
    fn luminance(hex: &str) -> f64 {
        let digits: Vec<u32> = hex.chars().map(|c| c.to_digit(16).unwrap()).collect();
        let pairs: Vec<u32> = match digits.len() {
            3 => digits.iter().map(|digit| digit * 17).collect(),
            _ => digits.chunks(2).map(|pair| pair[0] * 16 + pair[1]).collect(),
        };
        let linear = pairs
            .into_iter()
            .map(|byte| f64::from(byte) / 255.0)
            .map(|share| if share <= 0.040_45 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) });
        linear.zip([0.2126, 0.7152, 0.0722]).map(|(share, weight)| share * weight).sum()
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    /// Text 4.5 to 1, lines and marks 3 to 1, in the light and in the dark scheme.
    #[test]
    fn colours_have_the_contrast_that_they_need() {
        assert!(
            (contrast("000", "fff") - 21.0).abs() < 1e-9 && (contrast("777777", "fff") - 4.48).abs() < 0.01
        );
        let schemes: Vec<&str> = STYLE.split(":root {").skip(1).collect();
        assert_eq!(schemes.len(), 2);
        for scheme in schemes {
            let colour = |name: &str| {
                let after = scheme.split(&format!("--{name}: #")).nth(1).unwrap_or_else(|| panic!("{name}"));
                after.split(';').next().unwrap_or_else(|| panic!("{name}"))
            };
            for (text, page) in [
                ("ink", "page"),
                ("ink", "soft"),
                ("ink", "bad-page"),
                ("muted", "page"),
                ("muted", "soft"),
                ("link", "page"),
                ("bad", "page"),
                ("bad", "bad-page"),
                ("good", "page"),
            ] {
                let contrast = contrast(colour(text), colour(page));
                assert!(contrast >= 4.5, "{text} on {page}: {contrast}");
            }
            for mark in 0..8 {
                for page in ["page", "soft"] {
                    let contrast = contrast(colour(&format!("c{mark}")), colour(page));
                    assert!(contrast >= 3.0, "c{mark} on {page}: {contrast}");
                }
            }
        }
    }
}
