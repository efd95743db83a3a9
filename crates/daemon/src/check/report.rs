//! Reports of the last check of the mounted volume.

use dendro_base::Timestamp;
use dendro_control::Facts;
use dendro_control::check::{CheckInfo, CheckState};

use crate::metrics::exposition::gauges;

/// Names and numbers, for `dendro stat`.
pub(crate) fn facts(info: &CheckInfo) -> Facts {
    Facts::from([
        ("check_running".to_owned(), (info.state == CheckState::Running).into()),
        ("check_last_unix_ns".to_owned(), info.ended_unix_ns.into()),
        ("check_last_errors".to_owned(), info.error_count.into()),
        ("check_last_warnings".to_owned(), info.warning_count.into()),
        ("check_problem".to_owned(), info.problem.clone().into()),
    ])
}

/// The same in Prometheus's text format. Numbers of findings are missing where the last check did
/// not come to the end, so that nobody takes them for those of a sound volume.
pub(crate) fn exposition(info: &CheckInfo) -> String {
    let is_broken_off = info.ended_unix_ns.is_some() && info.error_count.is_none();
    let ended_s = info.ended_unix_ns.map_or(0, |ns| Timestamp(ns).secs());
    let running = u64::from(info.state == CheckState::Running);
    let metrics = [
        ("running", "Whether a check runs.", Some(running.to_string())),
        (
            "last_timestamp_seconds",
            "When the last check ended; 0: never.",
            Some(ended_s.to_string()),
        ),
        (
            "last_failed",
            "Whether the last check did not come to the end.",
            Some(u64::from(is_broken_off).to_string()),
        ),
        ("last_errors", "Errors that it found.", info.error_count.map(|count| count.to_string())),
        (
            "last_warnings",
            "Warnings that it found.",
            info.warning_count.map(|count| count.to_string()),
        ),
    ];
    gauges("check", metrics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_was_broken_off_has_found_no_number_of_errors() {
        let never = exposition(&CheckInfo::default());
        assert!(never.contains("dendro_check_last_timestamp_seconds 0\n"), "{never}");
        assert!(never.contains("dendro_check_last_failed 0\n"), "{never}");
        assert!(!never.contains("dendro_check_last_errors"), "{never}");

        let broken_off = CheckInfo {
            state: CheckState::NotDone,
            ended_unix_ns: Some(9_000_000_000),
            problem: Some("the daemon ends".into()),
            ..CheckInfo::default()
        };
        let text = exposition(&broken_off);
        assert!(text.contains("dendro_check_last_timestamp_seconds 9\n"), "{text}");
        assert!(text.contains("dendro_check_last_failed 1\n"), "{text}");
        assert!(!text.contains("dendro_check_last_errors"), "{text}");
        assert_eq!(facts(&broken_off)["check_last_errors"], serde_json::Value::Null);

        let (error_count, warning_count) = (Some(2), Some(1));
        let ended =
            CheckInfo { state: CheckState::Ended, error_count, warning_count, ..broken_off };
        let again = CheckInfo { state: CheckState::Running, ..ended.clone() };
        for (info, running) in [(ended, 0), (again, 1)] {
            let text = exposition(&info);
            assert!(text.contains(&format!("dendro_check_running {running}\n")), "{text}");
            assert!(text.contains("dendro_check_last_failed 0\n"), "{text}");
            assert!(text.contains("dendro_check_last_errors 2\n"), "{text}");
            assert!(text.contains("dendro_check_last_warnings 1\n"), "{text}");
        }
    }
}
