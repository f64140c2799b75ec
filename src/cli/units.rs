//! Sizes for human eyes.

/// `bytes` in binary units with at most two decimals: "4 GiB", "3.71 GiB", "512 MiB". Rounded down, so that
/// nothing looks larger than it is.
pub fn human(bytes: u64) -> String {
    let mut unit = 0;
    while unit + 1 < UNITS.len() && bytes >> (10 * (unit + 1)) != 0 {
        unit += 1;
    }
    let hundredths = (u128::from(bytes) * 100) >> (10 * unit);
    let (whole, fraction) = (hundredths / 100, hundredths % 100);
    match fraction {
        0 => format!("{whole} {}", UNITS[unit]),
        _ => format!("{whole}.{fraction:02} {}", UNITS[unit]),
    }
}

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// A table with its columns aligned, two blanks apart: the first row is the header. Columns in `right` are
/// aligned to the right.
pub fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            let padded = if right.contains(&column) { pad + cell } else { format!("{cell}{pad}") };
            line += if column == 0 { "" } else { "  " };
            line += &padded;
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well_and_never_look_larger_than_they_are() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (4 << 30, "4 GiB"),
            ((4 << 30) - 1, "3.99 GiB"),
            (300 << 20, "300 MiB"),
            (1536 << 20, "1.50 GiB"),
            (u64::MAX, "15.99 EiB"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["GPU", "USED"], vec!["é", "4 GiB"], vec!["GPU-1", "-"]];
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|s| (*s).to_owned()).collect()).collect();
        assert_eq!(table(&rows, &[1]), "GPU     USED\né      4 GiB\nGPU-1      -\n");
    }
}
