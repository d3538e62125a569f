//! Numbers and texts as people read them.

use super::Figure;

/// Whole numbers as they are, others with [`three_digits`].
pub(super) fn significant(value: f64) -> String {
    if value.fract() == 0.0 {
        grouped(&format!("{value:.0}"))
    } else {
        three_digits(value)
    }
}

/// Those that say something: `0.213`, `4.57`, `31.2`, `1,234`.
fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        ..1.0 => 3,
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    grouped(&format!("{value:.decimals$}"))
}

/// `812 µs`, `4.57 ms`, `1.20 s`.
pub(super) fn milliseconds(value: f64) -> String {
    if value < 1.0 {
        format!("{} µs", significant((value * 1e3).round()))
    } else if value < 1e3 {
        format!("{} ms", three_digits(value))
    } else {
        format!("{} s", three_digits(value / 1e3))
    }
}

/// A multiple: `0.31×`, `41.2×`.
pub(super) fn times(value: f64) -> String {
    let decimals = match value {
        ..1.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{}×", grouped(&format!("{value:.decimals$}")))
}

pub(super) fn figure(figure: &Figure) -> String {
    match figure.unit.as_str() {
        "ms" => milliseconds(figure.value),
        "s" => milliseconds(figure.value * 1e3),
        "" => significant(figure.value),
        unit => format!("{} {unit}", significant(figure.value)),
    }
}

/// RFC 3339 to the second: nobody compares runs by parts of it.
pub(super) fn moment(rfc3339: &str) -> String {
    match rfc3339.split_once('.') {
        Some((seconds, rest)) if rest.ends_with('Z') => format!("{seconds}Z"),
        _ => rfc3339.to_owned(),
    }
}

/// Text of programs that were measured may hold anything, such as what moves a cursor.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

fn grouped(number: &str) -> String {
    let (whole, rest) = match number.split_once('.') {
        Some((whole, _)) => (whole, &number[whole.len()..]),
        None => (number, ""),
    };
    let mut text = String::new();
    for (position, digit) in whole.chars().enumerate() {
        let left = whole.len() - position;
        if position > 0 && left.is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_say_something() {
        let shown = [0.0, 0.2134, 4.567, 31.24, 123.4, 1234.4, 1_234_567.0].map(significant);
        assert_eq!(
            shown,
            ["0", "0.213", "4.57", "31.2", "123", "1,234", "1,234,567"]
        );
        assert_eq!([-123.0, -1234.0].map(significant), ["-123", "-1,234"]);
    }

    #[test]
    fn times_take_the_unit_that_fits() {
        let shown = [0.0417, 0.812, 4.567, 231.4, 1204.0, 61_000.0].map(milliseconds);
        assert_eq!(
            shown,
            ["42 µs", "812 µs", "4.57 ms", "231 ms", "1.20 s", "61.0 s"]
        );
    }

    #[test]
    fn multiples_are_short() {
        assert_eq!(
            [0.3134, 1.0, 41.23, 1234.0].map(times),
            ["0.31×", "1.0×", "41.2×", "1,234×"]
        );
    }

    #[test]
    fn moments_are_told_to_the_second() {
        let shown = moment("2026-01-02T03:04:05.678901Z");
        assert_eq!(shown, "2026-01-02T03:04:05Z");
        assert_eq!(moment(&shown), shown);
    }

    #[test]
    fn what_would_move_a_cursor_is_not_printed() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a [2Jb c");
    }
}
