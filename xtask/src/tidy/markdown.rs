//! The parts of our own documents that are read by tidy: marked fenced blocks, tables, and what is outside of blocks.

/// The lines, with their numbers from 1, of the fenced block after the line `<!-- tidy: name -->`.
/// Empty lines and those that begin with `#` are left out.
pub(crate) fn marked_block<'t>(text: &'t str, name: &str) -> Option<Vec<(usize, &'t str)>> {
    let marker = format!("<!-- tidy: {name} -->");
    let mut lines = text.lines().enumerate().skip_while(|(_, line)| line.trim() != marker).skip(1);
    let fence = lines.by_ref().find(|(_, line)| !line.trim().is_empty())?;
    if !fence.1.trim_start().starts_with("```") {
        return None;
    }
    let inside = lines.take_while(|(_, line)| line.trim() != "```");
    let told = inside.filter(|(_, line)| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    Some(told.map(|(index, line)| (index + 1, line.trim())).collect())
}

/// The lines outside of fenced blocks, with their numbers from 1.
pub(crate) fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_fence = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        in_fence ^= fence;
        (!in_fence && !fence).then_some((index + 1, line))
    })
}

/// A fenced block: what is said of it behind the fence, its text, and the line of its fence, from 1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block<'t> {
    pub(crate) kind: &'t str,
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// All fenced blocks.
pub(crate) fn blocks(text: &str) -> impl Iterator<Item = Block<'_>> {
    let mut lines = text.lines().enumerate();
    std::iter::from_fn(move || {
        let (index, kind) =
            lines.find_map(|(index, line)| Some((index, line.trim().strip_prefix("```")?)))?;
        let inside = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```");
        let text = inside.collect::<Vec<_>>().join("\n");
        Some(Block { kind: kind.trim(), text, line: index + 1 })
    })
}

/// A table: its header's cells and its rows, with their line numbers from 1.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Table<'t> {
    pub(crate) header: Vec<&'t str>,
    pub(crate) rows: Vec<(usize, Vec<&'t str>)>,
}

impl Table<'_> {
    /// The index of the column with that header.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|cell| *cell == name)
    }
}

/// All tables outside of fenced blocks.
pub(crate) fn tables(text: &str) -> Vec<Table<'_>> {
    let mut found = Vec::new();
    let mut current: Option<Table<'_>> = None;
    let mut in_fence = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        in_fence ^= line.starts_with("```");
        let is_row = !in_fence && line.starts_with('|');
        match (&mut current, is_row) {
            (None, true) => current = Some(Table { header: cells(line), rows: Vec::new() }),
            (Some(table), true) if !is_rule(line) => table.rows.push((index + 1, cells(line))),
            (_, true) => {}
            (_, false) => found.extend(current.take()),
        }
    }
    found.extend(current);
    found
}

/// The line between a table's header and its rows.
fn is_rule(line: &str) -> bool {
    line.contains('-') && line.chars().all(|c| "|-: ".contains(c))
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_blocks_are_read_with_their_lines() {
        let text = "x\n<!-- tidy: arrows -->\n\n```text\na -> b\n# why\n\nc -> d\n```\ne -> f\n";
        assert_eq!(marked_block(text, "arrows"), Some(vec![(5, "a -> b"), (8, "c -> d")]));
        assert_eq!(marked_block(text, "unsafe"), None);
        assert_eq!(marked_block("<!-- tidy: arrows -->\nno fence\n", "arrows"), None);
    }

    #[test]
    fn tables_are_read_with_their_lines() {
        let text = "```text\n| no | table |\n```\n| case | tests |\n|---|:--|\n| case 3 | a#b |\n\n| row | tests |\n|---|---|\n";
        let all = tables(text);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0], Table { header: vec!["case", "tests"], rows: vec![(6, vec!["case 3", "a#b"])] });
        assert_eq!((all[1].column("tests"), all[1].rows.len()), (Some(1), 0));
    }
}
