use super::*;

/// A time in a zone that is one hour ahead of UTC in winter.
fn now() -> Zoned {
    "2026-11-22T12:00:00+01:00[Europe/Berlin]".parse().unwrap()
}

fn ns(text: &str) -> i64 {
    i64::try_from(text.parse::<jiff::Timestamp>().unwrap().as_nanosecond()).unwrap()
}

fn target(text: &str, files: &[&str]) -> Result<(String, Option<String>, Option<String>), String> {
    let exists = |path: &Path| files.iter().any(|file| Path::new(file) == path);
    let target = parse_target(text, &now(), &exists)?;
    let version = target.version;
    let path = target.path.display().to_string();
    Ok((path, version.branch, version.moment.map(|moment| moment.text)))
}

#[test]
fn a_target_is_a_path_a_branch_and_a_moment() {
    let some = |text: &str| Some(text.to_owned());
    let files = ["/mnt", "/img"];
    assert_eq!(target("/mnt", &files), Ok(("/mnt".into(), None, None)));
    assert_eq!(target("/mnt@daily", &files), Ok(("/mnt".into(), None, some("daily"))));
    assert_eq!(target("/img:b", &files), Ok(("/img".into(), some("b"), None)));
    assert_eq!(target("/img:b@12", &files), Ok(("/img".into(), some("b"), some("12"))));
    let time = "2026-11-21T10:00";
    assert_eq!(target(&format!("/img@{time}"), &files), Ok(("/img".into(), None, some(time))));
    assert_eq!(
        target(&format!("/img:b@{time}"), &files),
        Ok(("/img".into(), some("b"), some(time)))
    );
    assert_eq!(target("/img@-15m", &files), Ok(("/img".into(), None, some("-15m"))));
    assert_eq!(target("/img@head", &files), Ok(("/img".into(), None, some("head"))));
}

#[test]
fn without_a_path_the_volume_is_meant_that_one_stands_in() {
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(target("@one", &[]), Ok((".".into(), None, some("one"))));
    assert_eq!(target(":b", &[]), Ok((".".into(), some("b"), None)));
    assert_eq!(target(":b@-5m", &[]), Ok((".".into(), some("b"), some("-5m"))));
    let time = "2026-11-21T10:00";
    assert_eq!(target(&format!("@{time}"), &[]), Ok((".".into(), None, some(time))));
    assert_eq!(target("@one", &["@one"]), Ok(("@one".into(), None, None)), "a file of that name");
    assert_eq!(target("", &[]), Ok((String::new(), None, None)));
}

#[test]
fn a_path_may_have_the_characters_that_end_it() {
    let some = |text: &str| Some(text.to_owned());
    let files = ["/me@home", "/a:b"];
    assert_eq!(target("/me@home", &files), Ok(("/me@home".into(), None, None)));
    assert_eq!(target("/me@home@s", &files), Ok(("/me@home".into(), None, some("s"))));
    assert_eq!(target("/a:b:c@s", &files), Ok(("/a:b".into(), some("c"), some("s"))));
    assert_eq!(target("/a:b", &files), Ok(("/a:b".into(), None, None)));
    assert_eq!(target("/none@s", &files), Ok(("/none".into(), None, some("s"))));
}

#[test]
fn what_can_be_neither_name_nor_time_is_refused() {
    let files = ["/mnt"];
    for text in ["/mnt@", "/mnt@a/b", "/mnt@-", "/mnt@-5", "/mnt@-5x", "/mnt@-m", "/mnt:head"] {
        assert!(target(text, &files).is_err(), "{text}");
    }
    assert!(target("/mnt@-99999999999999999999s", &files).is_err());
    assert!(target("/mnt@-900000Y", &files).is_err());
}

#[test]
fn times_are_local_unless_they_say_otherwise() {
    let time = |text: &str| parse_moment(text, &now()).unwrap().unix_ns;
    assert_eq!(time("2026-11-21T10:00"), Some(ns("2026-11-21T09:00:00Z")));
    assert_eq!(time("2026-11-21 10:00:30"), Some(ns("2026-11-21T09:00:30Z")));
    assert_eq!(time("2026-11-21"), Some(ns("2026-11-20T23:00:00Z")));
    assert_eq!(time("2026-11-21T10:00Z"), Some(ns("2026-11-21T10:00:00Z")));
    assert_eq!(time("2026-11-21T10:00-05:00"), Some(ns("2026-11-21T15:00:00Z")));
    assert_eq!(time("2026-07-01T10:00"), Some(ns("2026-07-01T08:00:00Z")), "in summer");
    assert_eq!(time("daily"), None);
    assert_eq!(time("123"), None);
    assert_eq!(time("head"), None);
}

#[test]
fn periods_count_back_from_now() {
    let time = |text: &str| parse_moment(text, &now()).unwrap().unix_ns;
    assert_eq!(time("-90s"), Some(ns("2026-11-22T10:58:30Z")));
    assert_eq!(time("-15m"), Some(ns("2026-11-22T10:45:00Z")));
    assert_eq!(time("-1d12h"), Some(ns("2026-11-20T23:00:00Z")));
    assert_eq!(time("-2w"), Some(ns("2026-11-08T11:00:00Z")));
    assert_eq!(time("-1M"), Some(ns("2026-10-22T10:00:00Z")), "the same hour, in summer time");
    assert_eq!(time("-1Y"), Some(ns("2025-11-22T11:00:00Z")));
}

#[test]
fn versions_and_ranges_are_read_without_a_path() {
    let of = |branch: Option<&str>, moment: Option<&str>| VersionName {
        branch: branch.map(str::to_owned),
        moment: moment.map(|text| Moment { text: text.into(), unix_ns: None }),
    };
    let parse = |text| parse_version(text, &now());
    assert_eq!(parse(""), Ok(of(None, None)));
    assert_eq!(parse("s"), Ok(of(None, Some("s"))));
    assert_eq!(parse("@s"), Ok(of(None, Some("s"))));
    assert_eq!(parse(":b"), Ok(of(Some("b"), None)));
    assert_eq!(parse(":b@s"), Ok(of(Some("b"), Some("s"))));
    assert!(parse(":@s").is_err());
    let range = |text| parse_range(text, &now());
    assert_eq!(range("a..b"), Ok((of(None, Some("a")), of(None, Some("b")))));
    assert_eq!(range("a.."), Ok((of(None, Some("a")), of(None, None))));
    assert_eq!(range("a"), Ok((of(None, Some("a")), of(None, None))));
    assert_eq!(range("a..:b"), Ok((of(None, Some("a")), of(Some("b"), None))));
}

/// Snapshots at 10 s, 20 s (called `two`) and 30 s, a branch `b` from the second, and one of it.
fn table() -> VersionTable {
    let mut table = VersionTable::new(Timestamp(0));
    table.snapshot(0, None, Timestamp(10)).unwrap();
    let two = table.snapshot(0, Some("two"), Timestamp(20)).unwrap().view();
    table.branch_off(two, "b", Timestamp(25)).unwrap();
    table.snapshot(0, Some("2026-11-21"), Timestamp(30)).unwrap();
    table.snapshot(1, Some("of-b"), Timestamp(40)).unwrap();
    table
}

fn resolved(text: &str, unix_ns: Option<i64>, branch: Option<&str>) -> Result<View, String> {
    let moment = Some(Moment { text: text.into(), unix_ns });
    let name = VersionName { branch: branch.map(str::to_owned), moment };
    resolve(&table(), table().main_head(), &name, Timestamp(100))
}

fn moment(branch: u32, epoch: u64) -> Result<View, String> {
    Ok(View { branch, epoch: Some(epoch) })
}

#[test]
fn names_epochs_and_times_mean_views() {
    assert_eq!(resolved("two", None, None), moment(0, 2));
    assert_eq!(resolved("1", None, None), moment(0, 1));
    assert_eq!(resolved("4", None, None), moment(1, 4), "an epoch has one snapshot at most");
    assert_eq!(resolved("of-b", None, None), moment(1, 4));
    assert_eq!(resolved("of-b", None, Some("b")), moment(1, 4));
    assert_eq!(resolved("two", None, Some("b")), moment(0, 2));
    assert_eq!(resolved("-5s", Some(29), None), moment(0, 2));
    assert_eq!(resolved("-5s", Some(39), Some("b")), moment(0, 2));
    assert_eq!(resolved("-5s", Some(100), None), moment(0, 3));
    assert_eq!(resolved("2026-11-21", Some(15), None), moment(0, 3), "a name wins over a time");
    assert_eq!(resolved("head", None, Some("b")), Ok(View { branch: 1, epoch: None }));
}

#[test]
fn nothing_named_is_what_is_here() {
    let here = View { branch: 0, epoch: Some(2) };
    let none = VersionName::default();
    assert_eq!(resolve(&table(), here, &none, Timestamp(100)), Ok(here));
    let branch = VersionName { branch: Some("b".into()), moment: None };
    let head = View { branch: 1, epoch: None };
    assert_eq!(resolve(&table(), here, &branch, Timestamp(100)), Ok(head));
    let before = Some(Moment { text: "-1s".into(), unix_ns: Some(90) });
    let name = VersionName { branch: None, moment: before };
    assert_eq!(resolve(&table(), here, &name, Timestamp(100)), Ok(here), "its own past ends there");
}

#[test]
fn what_is_not_there_is_said_with_what_there_is() {
    let error = |text, unix_ns, branch| resolved(text, unix_ns, branch).unwrap_err();
    assert!(error("three", None, None).contains("two"));
    assert!(error("99", None, None).contains("no snapshot called 99"));
    assert!(error("two", None, Some("c")).contains("main, b"));
    assert!(error("2026-11-21", None, Some("b")).contains("not in the past of branch b"));
    assert!(error("x", Some(101), None).contains("in the future"));
    assert!(error("x", Some(9), None).contains("1970-01-01 00:00:00Z"));
    let empty = VersionTable::new(Timestamp(0));
    let name =
        VersionName { branch: None, moment: Some(Moment { text: "x".into(), unix_ns: Some(9) }) };
    let answer = resolve(&empty, empty.main_head(), &name, Timestamp(100));
    assert!(answer.unwrap_err().contains("there is no snapshot"));
}

#[test]
fn what_was_meant_comes_first() {
    let names: Vec<String> = (0..20).map(|number| format!("backup-of-day-{number}")).collect();
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.insert(0, "before");
    for asked in ["befor", "bfore", "beforee", "Before"] {
        let said = some_of(&names, asked);
        assert!(said.starts_with("before, backup-of-day-13, "), "{said}");
        assert!(said.ends_with("backup-of-day-19 and 13 more"), "{said}");
    }
    assert!(some_of(&names, "x").starts_with("backup-of-day-12, "));
}
