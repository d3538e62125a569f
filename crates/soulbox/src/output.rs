//! Tables for people, JSON for programs.

use std::io::{self, IsTerminal, Write};

use anyhow::Result;
use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use serde::Serialize;

pub(crate) mod units;

pub(crate) fn text(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

/// Whether a person reads it.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    text(&serde_json::to_string_pretty(value)?)
}

/// One object on one line.
pub(crate) fn json_line(value: &impl Serialize) -> Result<()> {
    text(&serde_json::to_string(value)?)
}

/// Columns of words, nothing drawn around them.
pub(crate) struct Columns {
    table: Table,
}

impl Columns {
    pub(crate) fn new(names: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        // Wrapped ids cannot be copied.
        table.set_content_arrangement(ContentArrangement::Disabled);
        if !colours_wanted() {
            table.force_no_tty();
        }
        table.set_header(names.iter().map(Cell::new));
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        Self { table }
    }

    pub(crate) fn right_aligned(mut self, columns: &[usize]) -> Self {
        for index in columns {
            if let Some(column) = self.table.column_mut(*index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        self
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.table.add_row(cells);
    }

    pub(crate) fn print(&self) -> Result<()> {
        text(&self.render())
    }

    pub(crate) fn render(&self) -> String {
        let lines: Vec<String> = self
            .table
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        lines.join("\n")
    }
}

/// A cell with text that may come from inside a sandbox.
pub(crate) fn cell(text: impl AsRef<str>) -> Cell {
    Cell::new(printable(text.as_ref()))
}

pub(crate) fn state_cell(state: &str) -> Cell {
    let colour = match state {
        "running" | "ready" => Color::Green,
        "paused" | "building" | "waiting" | "not built" => Color::Yellow,
        "error" => Color::Red,
        _ => Color::Reset,
    };
    cell(state).fg(colour)
}

/// Control characters made visible: a name inside a sandbox must not be able to move the cursor
/// or retitle the user's terminal.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        let hidden = character.is_control()
            || ('\u{202a}'..='\u{202e}').contains(&character)
            || ('\u{2066}'..='\u{2069}').contains(&character);
        if hidden {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// See <https://no-color.org>.
pub(crate) fn colours_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_columns_without_borders_or_trailing_space() {
        let mut columns = Columns::new(&["ID", "MEMORY"]).right_aligned(&[1]);
        columns.row(vec![cell("i1"), cell("512")]);
        columns.row(vec![cell("i22"), cell("1")]);
        assert_eq!(columns.render(), "ID   MEMORY\ni1      512\ni22       1");
    }

    #[test]
    fn control_characters_from_inside_are_shown_not_obeyed() {
        assert_eq!(
            printable("a\x1b[2Jb\r\n\u{9b}\u{202e}é"),
            "a\\u{1b}[2Jb\\r\\n\\u{9b}\\u{202e}é"
        );
    }

    #[test]
    fn a_closed_pipe_is_recognised() {
        let error = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(is_broken_pipe(&error));
        assert!(!is_broken_pipe(&anyhow::anyhow!("other")));
    }
}
