//! Ages as people read them, letter by letter as the real server writes them into tables.

use jiff::Timestamp;

/// How long ago a time was, such as `5m12s`; `None` when it is no time.
pub(crate) fn of(time: &str, now: Timestamp) -> Option<String> {
    let time: Timestamp = time.parse().ok()?;
    Some(duration(now.as_second() - time.as_second()))
}

/// Two units at most, and fewer the longer it is.
fn duration(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let years = days / 365;
    match seconds {
        // Clocks differ by a second; the real server shows more than that as it is: unusable.
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => two((minutes, 'm'), (seconds % 60, 's')),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two((hours, 'h'), (minutes % 60, 'm')),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two((days, 'd'), (hours % 24, 'h')),
        _ if years < 2 => format!("{days}d"),
        _ if years < 8 => two((years, 'y'), (days % 365, 'd')),
        _ => format!("{years}y"),
    }
}

fn two(large: (i64, char), small: (i64, char)) -> String {
    let (count, unit) = large;
    match small {
        (0, _) => format!("{count}{unit}"),
        (rest, small) => format!("{count}{unit}{rest}{small}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_those_of_the_real_server() {
        for (seconds, age) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (312, "5m12s"),
            (3 * 3_600 - 1, "179m"),
            (3 * 3_600 + 60, "3h1m"),
            (47 * 3_600, "47h"),
            (50 * 3_600, "2d2h"),
            (700 * 86_400, "700d"),
            (800 * 86_400, "2y70d"),
            (9 * 365 * 86_400, "9y"),
        ] {
            assert_eq!(duration(seconds), age, "{seconds}");
        }
        assert_eq!(of("yesterday", Timestamp::UNIX_EPOCH), None);
    }
}
