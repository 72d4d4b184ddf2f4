//! Writing the page: text that cannot become markup, coordinates, names that are used once.

use std::fmt::{self, Display, Write};

use crate::plain;

/// The page as far as it is written.
#[derive(Debug, Default)]
pub(super) struct Out {
    text: String,
    ids: u32,
}

impl Out {
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// A name for an element that no other has.
    pub(super) fn id(&mut self) -> u32 {
        self.ids += 1;
        self.ids
    }

    /// Begins a picture of this size, with what it is for whoever does not see it.
    pub(super) fn begin_svg(
        &mut self,
        (width, height): (f64, f64),
        title: &str,
        description: &str,
    ) -> fmt::Result {
        let id = self.id();
        let (width, height) = (Px(width), Px(height));
        write!(
            self,
            "<svg class=\"plot\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"t{id} d{id}\">\
             <title id=\"t{id}\">{}</title><desc id=\"d{id}\">{}</desc>",
            Text(title),
            Text(description),
        )
    }
}

impl Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text.push_str(text);
        Ok(())
    }
}

/// Foreign text, as text: in an element or in a quoted attribute. What would turn the text around it is
/// written out, and what a document cannot hold is shown as a replacement character.
#[derive(Debug)]
pub(super) struct Text<T>(pub(super) T);

impl<T: AsRef<str>> Display for Text<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.as_ref().replace(['\n', '\t', '\r'], " ");
        for c in plain(&text).chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\u{fffe}' | '\u{ffff}' => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A name of the file in an element, with places to break a long one at: behind a comma, before a plus, between the words of an
/// identifier.
#[derive(Debug)]
pub(super) struct Name<'a>(pub(super) &'a str);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = break_after(rest) {
            let (before, after) = rest.split_at(at);
            write!(f, "{}<wbr/>", Text(before))?;
            rest = after;
        }
        write!(f, "{}", Text(rest))
    }
}

/// Where a name may be broken for the first time, in bytes.
fn break_after(name: &str) -> Option<usize> {
    let mut chars = name.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let end = at + c.len_utf8();
        match chars.peek() {
            Some((_, next)) if ",;:/".contains(c) && !next.is_whitespace() => return Some(end),
            Some((_, next))
                if (*next == '+' && !c.is_whitespace()) || (c.is_lowercase() && next.is_uppercase()) =>
            {
                return Some(end);
            }
            _ => {}
        }
    }
    None
}

/// A coordinate: a tenth of a unit is enough.
#[derive(Clone, Copy, Debug)]
pub(super) struct Px(pub(super) f64);

impl Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0 * 10.0).round();
        if tenths % 10.0 == 0.0 {
            write!(f, "{:.0}", tenths / 10.0)
        } else {
            write!(f, "{:.1}", tenths / 10.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_is_not_markup() {
        assert_eq!(Text("<a b=\"c\">'&").to_string(), "&lt;a b=&quot;c&quot;&gt;&#39;&amp;");
        assert_eq!(Text("a\nb\u{0}\u{ffff}").to_string(), "a b\\u{0}\u{fffd}");
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!(
            [Px(3.0), Px(0.04), Px(12.345), Px(-1.26)].map(|px| px.to_string()),
            ["3", "0", "12.3", "-1.3"]
        );
    }

    #[test]
    fn names_break_where_they_read_well() {
        let name = Name("flag:a=5,b=6+trust, cuStreamWait <x>").to_string();
        assert_eq!(name, "flag:<wbr/>a=5,<wbr/>b=6<wbr/>+trust, cu<wbr/>Stream<wbr/>Wait &lt;x&gt;");
        assert_eq!(Name("").to_string(), "");
    }

    proptest! {
        #[test]
        fn any_text_comes_back_as_one_text_and_one_attribute(text: String) {
            let page = format!("<p a=\"{0}\">x{0}</p>", Text(&text));
            let document = roxmltree::Document::parse(&page).unwrap();
            let shown = plain(&text.replace(['\n', '\t', '\r'], " ")).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}");
            prop_assert_eq!(document.root_element().attribute("a"), Some(shown.as_str()));
            let text = document.root_element().text();
            prop_assert_eq!(text.and_then(|text| text.strip_prefix('x')), Some(shown.as_str()));
        }
    }
}
