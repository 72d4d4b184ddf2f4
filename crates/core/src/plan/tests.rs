//! Plans and bands as text: what is read, what is refused and how, and that nothing panics.

use super::*;
use crate::error::ErrorCode;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use proptest::prelude::*;

const FLAG: &str = "flag:park_us=50,backstop_us=1000";
const PREDICT: &str = "+predict:margin_us=50,min_sleep_us=100,max_sleep_us=20000,window=16";
const ADAPT: &str = "+adapt:late_pct=1,guard_us=5,min_sleep_us=20,max_sleep_us=20000,window=64";

/// Bad text, the column of its fault, and pieces that the message must have.
const BAD_PLANS: &[(&str, usize, &[&str])] = &[
    ("", 1, &["a plan is missing", "`block`, `poll` or `flag:park_us=50,backstop_us=1000`"]),
    ("pol", 1, &["unknown plan `pol`", "did you mean `poll`?", "A plan is"]),
    ("Poll", 1, &["unknown plan `Poll`", "did you mean `poll`?"]),
    ("spin", 1, &["unknown plan `spin`. A plan is"]),
    ("é", 1, &["unknown plan `é`"]),
    ("\0", 1, &["unknown plan `␀`"]),
    (" poll", 1, &["white space", "remove it"]),
    ("poll\n", 5, &["white space"]),
    ("flag:park_us=50, backstop_us=1000", 17, &["white space"]),
    ("poll\u{3000}", 5, &["white space"]),
    ("poll:", 5, &["`poll` takes no fields", "remove `:`"]),
    ("block:park_us=1", 6, &["`block` takes no fields"]),
    ("poll,block", 5, &["`,` is not expected here"]),
    ("poll=1", 5, &["`=` is not expected here"]),
    ("poll;rows>=32:block", 5, &["`WaitBands`"]),
    ("poll+", 6, &["a suffix is missing", "`+predict:..`, `+adapt:..`, `+warm` or `+trust`"]),
    ("poll+predikt:window=1", 6, &["unknown suffix `predikt`", "did you mean `predict`?"]),
    ("poll+trust", 5, &["only `flag` takes `+trust`"]),
    ("block+trust", 6, &["only `flag` takes `+trust`"]),
    ("block+predict:window=1", 6, &["`block` takes no `+predict`", "use `poll` or `flag`"]),
    ("flag", 5, &["`flag` lacks its fields", "written `flag:park_us=50,backstop_us=1000`"]),
    ("flag+trust", 5, &["`flag` lacks its fields"]),
    ("flag:", 6, &["the name of a field is missing", "written `flag:park_us=50,backstop_us=1000`"]),
    (
        "flag:pak_us=50,backstop_us=1000",
        6,
        &[
            "unknown field `pak_us`: did you mean `park_us`? `flag` is written `flag:park_us=50,backstop_us=1000`",
        ],
    ),
    ("flag:window=1", 6, &["unknown field `window`. `flag` is written"]),
    ("flag:park_us", 13, &["`park_us` lacks its value", "digits, from 1 to 1000000"]),
    ("flag:park_us,backstop_us=1", 13, &["`park_us` lacks its value"]),
    ("flag:park_us=", 14, &["`park_us=` lacks its number", "from 1 to 1000000"]),
    ("flag:park_us=50", 16, &["`backstop_us` is missing, and nothing is defaulted"]),
    ("flag:backstop_us=50+trust", 20, &["`park_us` is missing"]),
    ("flag:park_us=50,", 17, &["the name of a field is missing"]),
    ("flag:park_us=50,,backstop_us=100", 17, &["the name of a field is missing"]),
    ("flag:park_us=50,backstop_us=1000,", 34, &["the name of a field is missing"]),
    ("flag:park_us=50,park_us=60", 17, &["`park_us` stands here twice"]),
    ("flag:park_us=+5,backstop_us=10", 14, &["`park_us=` lacks its number: write digits only"]),
    ("flag:park_us=-5,backstop_us=10", 14, &["`park_us=-5` is not a whole number"]),
    ("flag:park_us=1.5,backstop_us=10", 15, &["`park_us=1.5` is not a whole number"]),
    ("flag:park_us=0x10,backstop_us=10", 15, &["`park_us=0x10` is not a whole number"]),
    ("flag:park_us=5us,backstop_us=10", 15, &["`park_us=5us` is not a whole number"]),
    ("flag:park_us=٥,backstop_us=10", 14, &["is not a whole number"]),
    ("flag:park_us=5=5,backstop_us=10", 15, &["`park_us=5=5` is not a whole number"]),
    ("flag:park_us=0,backstop_us=10", 14, &["`park_us=0` is out of range: from 1 to 1000000"]),
    ("flag:park_us=1000001,backstop_us=1", 14, &["out of range: from 1 to 1000000"]),
    ("flag:park_us=1,backstop_us=10000001", 28, &["out of range: from 1 to 10000000"]),
    ("flag:park_us=99999999999999999999999,backstop_us=1", 14, &["out of range: from 1 to 1000000"]),
    (
        "flag:park_us=50,backstop_us=49",
        29,
        &["`backstop_us=49` is below `park_us=50`", "from 50 to 10000000"],
    ),
    ("flag:backstop_us=49,park_us=50", 18, &["`backstop_us=49` is below `park_us=50`"]),
    ("flag:park_us=50,backstop_us=1000+trust:", 39, &["`+trust` takes no fields"]),
    ("flag:park_us=50,backstop_us=1000+trust+trust", 39, &["`+trust` stands here twice"]),
    ("flag:park_us=50,backstop_us=1000+trust+predict", 39, &["`+predict` goes before `+trust`"]),
    ("flag:park_us=50,backstop_us=1000 +trust", 33, &["white space"]),
    ("poll+predict", 13, &["`+predict` lacks its fields", "written `+predict:margin_us=50"]),
    ("poll+predict:windows=16", 14, &["unknown field `windows`: did you mean `window`?"]),
    ("poll+predict:window=0", 21, &["`window=0` is out of range: from 1 to 256"]),
    ("poll+predict:window=257", 21, &["`window=257` is out of range: from 1 to 256"]),
    ("poll+predict:margin_us=1000001", 24, &["out of range: from 0 to 1000000"]),
    ("poll+predict:min_sleep_us=0", 27, &["out of range: from 1 to 60000000"]),
    ("poll+predict:max_sleep_us=60000001", 27, &["out of range: from 1 to 60000000"]),
    (
        "poll+predict:margin_us=0,min_sleep_us=300,max_sleep_us=200,window=1",
        39,
        &["`min_sleep_us=300` is above `max_sleep_us=200`", "at most 200"],
    ),
    ("poll+predict:margin_us=0,min_sleep_us=300,max_sleep_us=400", 59, &["`window` is missing"]),
    ("block+adapt:window=1", 6, &["`block` takes no `+adapt`", "use `poll` or `flag`"]),
    ("poll+adapt", 11, &["`+adapt` lacks its fields", "written `+adapt:late_pct=1,guard_us=5"]),
    ("poll+adopt:window=1", 6, &["unknown suffix `adopt`", "did you mean `adapt`?"]),
    ("poll+adapt:late=1", 12, &["unknown field `late`: did you mean `late_pct`?"]),
    ("poll+adapt:margin_us=1", 12, &["unknown field `margin_us`", "`+adapt` is written"]),
    ("poll+adapt:late_pct=0", 21, &["`late_pct=0` is out of range: from 1 to 50"]),
    ("poll+adapt:late_pct=51", 21, &["`late_pct=51` is out of range: from 1 to 50"]),
    ("poll+adapt:late_pct=0.5", 22, &["`late_pct=0.5` is not a whole number"]),
    ("poll+adapt:guard_us=1000001", 21, &["out of range: from 0 to 1000000"]),
    ("poll+adapt:window=257", 19, &["`window=257` is out of range: from 1 to 256"]),
    (
        "poll+adapt:late_pct=1,guard_us=0,min_sleep_us=300,max_sleep_us=200,window=1",
        47,
        &["`min_sleep_us=300` is above `max_sleep_us=200`", "at most 200"],
    ),
    ("poll+adapt:late_pct=1,guard_us=0,min_sleep_us=3,max_sleep_us=4", 63, &["`window` is missing"]),
    (
        "poll+adapt:late_pct=1,guard_us=0,min_sleep_us=3,max_sleep_us=4,window=1+adapt",
        72,
        &["`+adapt` stands here twice"],
    ),
    (
        "poll+adapt:late_pct=1,guard_us=0,min_sleep_us=3,max_sleep_us=4,window=1+predict",
        72,
        &["`+predict` and `+adapt` are two ways to do the same"],
    ),
    (
        "poll+predict:margin_us=0,min_sleep_us=3,max_sleep_us=4,window=1+adapt",
        64,
        &["`+predict` and `+adapt` are two ways to do the same"],
    ),
    ("flag:park_us=50,backstop_us=1000+trust+adapt", 39, &["`+adapt` goes before `+trust`"]),
    ("poll+warm", 5, &["`+warm` needs a plan that sleeps", "behind `+predict:..` or `+adapt:..`"]),
    ("flag:park_us=50,backstop_us=1000+warm+trust", 33, &["`+warm` needs a plan that sleeps"]),
    ("flag:park_us=50,backstop_us=1000+trust+warm", 39, &["`+warm` goes before `+trust`"]),
    (
        "poll+predict:margin_us=0,min_sleep_us=3,max_sleep_us=4,window=1+warm+warm",
        69,
        &["`+warm` stands here twice"],
    ),
    (
        "poll+predict:margin_us=0,min_sleep_us=3,max_sleep_us=4,window=1+warm:us=1",
        69,
        &["`+warm` takes no fields"],
    ),
    ("poll+wram", 6, &["unknown suffix `wram`", "did you mean `warm`?"]),
];

/// The same of bands; columns are of the whole text.
const BAD_BANDS: &[(&str, usize, &[&str])] = &[
    ("", 1, &["a plan is missing"]),
    (";", 1, &["a plan is missing"]),
    ("poll;", 6, &["a band is missing here", "`poll;rows>=32:block`"]),
    ("poll;;", 6, &["a band is missing here"]),
    ("poll;block", 6, &["a band is missing here"]),
    ("poll;rows>32:block", 6, &["a band is missing here"]),
    ("poll;rows>=:block", 12, &["`rows>=` lacks its number", "from 1 to 1000000000"]),
    ("poll;rows>=0:block", 12, &["`rows>=0` is out of range: from 1 to 1000000000"]),
    ("poll;rows>=1000000001:block", 12, &["out of range"]),
    ("poll;rows>=x2:block", 12, &["`rows>=x2` is not a whole number"]),
    ("poll;rows>=32", 14, &["the plan of `rows>=32` is missing"]),
    ("poll;rows>=32:", 15, &["a plan is missing here"]),
    ("poll;rows>=32:pol", 15, &["did you mean `poll`?"]),
    ("poll;rows>=32:block;rows>=32:poll", 27, &["`rows>=32` does not rise above `rows>=32`"]),
    ("poll;rows>=32:block;rows>=8:poll", 27, &["`rows>=8` does not rise above `rows>=32`"]),
    ("poll;rows>=32:block+trust", 20, &["only `flag` takes `+trust`"]),
    ("poll;rows>=32:poll, block", 20, &["white space"]),
];

fn check_bad<T: FromStr<Err = Error> + fmt::Debug>(cases: &[(&str, usize, &[&str])]) {
    for (text, column, pieces) in cases {
        let error = text.parse::<T>().unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidPlan, "{text:?}");
        let message = &error.args()[2];
        assert_eq!(error.args()[1], column.to_string(), "{text:?}: {message}");
        for piece in *pieces {
            assert!(message.contains(piece), "{text:?}: {message:?} lacks {piece:?}");
        }
    }
}

#[test]
fn a_bad_plan_is_refused_with_its_column_and_what_would_be_right() {
    check_bad::<WaitPlan>(BAD_PLANS);
}

#[test]
fn bad_bands_are_refused_with_their_column_and_what_would_be_right() {
    check_bad::<WaitBands>(BAD_BANDS);
    // Bands are as strict about each plan, one `;` aside.
    for (text, column, pieces) in BAD_PLANS.iter().filter(|(text, ..)| !text.contains(';')) {
        check_bad::<WaitBands>(&[(text, *column, pieces)]);
        check_bad::<WaitBands>(&[(&format!("block;rows>=7:{text}"), column + 14, pieces)]);
    }
}

#[test]
fn what_an_error_advises_is_right() {
    let mut examples = 0;
    for (text, ..) in BAD_BANDS.iter().chain(BAD_PLANS) {
        let Err(error) = text.parse::<WaitBands>() else { continue };
        // Every second piece stands between ticks; with a `:` it is a whole example, or has `..` for its fields.
        for quoted in error.args()[2].split('`').skip(1).step_by(2) {
            if !quoted.contains(':') || quoted == ":" || quoted.contains("..") {
                continue;
            }
            let whole = if quoted.starts_with('+') { format!("poll{quoted}") } else { quoted.to_string() };
            let whole = if quoted.starts_with("rows") { format!("poll;{quoted}") } else { whole };
            let whole = if quoted.ends_with(':') { whole + "poll" } else { whole };
            assert!(whole.parse::<WaitBands>().is_ok(), "{error} advises {whole:?}");
            examples += 1;
        }
    }
    assert!(examples > 20, "{examples}");
}

#[test]
fn the_error_of_a_long_text_is_short() {
    let text = format!("poll;rows>=1:{}", "x".repeat(10_000));
    let error = text.parse::<WaitBands>().unwrap_err();
    assert!(error.args()[0].ends_with("x... (10013 characters)"), "{}", error.args()[0]);
    assert_eq!(error.args()[1], "14");
    assert!(error.to_string().chars().count() < 500, "{error}");
}

#[test]
fn fields_come_in_any_order_and_print_in_one() {
    let plan: WaitPlan = "flag:backstop_us=1000,park_us=50+predict:window=16,max_sleep_us=20000,margin_us=50,min_sleep_us=100+trust"
        .parse()
        .unwrap();
    assert_eq!(plan.to_string(), format!("{FLAG}{PREDICT}+trust"));
    assert_eq!(
        plan,
        WaitPlan::flag(50, 1_000)
            .and_then(WaitPlan::trusted)
            .and_then(|plan| plan.with_predict(Predict::new(50, 100, 20_000, 16)?))
            .unwrap()
    );
}

#[test]
fn the_last_way_to_sleep_counts() {
    let predict = Predict::new(50, 100, 20_000, 16).unwrap();
    let adapt = Adapt::new(1, 5, 20, 20_000, 64).unwrap();
    let plan = WaitPlan::poll().with_predict(predict).unwrap().with_adapt(adapt).unwrap();
    assert_eq!((plan.predict(), plan.adapt(), plan.to_string()), (None, Some(adapt), format!("poll{ADAPT}")));
    let plan = plan.with_predict(predict).unwrap();
    assert_eq!(
        (plan.predict(), plan.adapt(), plan.to_string()),
        (Some(predict), None, format!("poll{PREDICT}"))
    );
}

#[test]
fn limits_are_inside() {
    for plan in [
        WaitPlan::flag(1, 1).unwrap(),
        WaitPlan::flag(PARK_US_MAX, BACKSTOP_US_MAX).unwrap(),
        WaitPlan::poll().with_predict(Predict::new(0, 1, 1, 1).unwrap()).unwrap(),
        WaitPlan::poll()
            .with_predict(Predict::new(MARGIN_US_MAX, SLEEP_US_MAX, SLEEP_US_MAX, WINDOW_MAX).unwrap())
            .unwrap(),
    ] {
        assert_eq!(plan.to_string().parse::<WaitPlan>().unwrap(), plan);
    }
    let above: Vec<String> = (1..64).map(|band| format!(";rows>={band}:poll")).collect();
    let full = format!("poll{}", above.concat());
    assert_eq!(full.parse::<WaitBands>().unwrap().iter().count(), BANDS_MAX);
    let error = format!("{full};rows>=64:poll").parse::<WaitBands>().unwrap_err();
    assert_eq!(error.args()[1], (full.len() + 2).to_string());
    assert!(error.args()[2].contains("at most 64"), "{error}");
}

#[test]
fn constructors_fail_as_their_text_does() {
    let predict = Predict::new(50, 100, 20_000, 16).unwrap();
    let adapt = Adapt::new(1, 5, 20, 20_000, 64).unwrap();
    for (result, text, column) in [
        (WaitPlan::flag(0, 10), "flag:park_us=0,backstop_us=10", "14"),
        (WaitPlan::flag(20, 10), "flag:park_us=20,backstop_us=10", "29"),
        (WaitPlan::flag(1, u64::MAX), "flag:park_us=1,backstop_us=18446744073709551615", "28"),
        (WaitPlan::block().with_predict(predict), &format!("block{PREDICT}"), "6"),
        (WaitPlan::block().with_adapt(adapt), &format!("block{ADAPT}"), "6"),
        (WaitPlan::block().trusted(), "block+trust", "6"),
        (WaitPlan::poll().trusted(), "poll+trust", "5"),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.args()[..2], [text, column], "{error}");
    }
    for (result, column) in [
        (Predict::new(MARGIN_US_MAX + 1, 1, 1, 1), "19"),
        (Predict::new(0, 0, 1, 1), "34"),
        (Predict::new(0, 2, 1, 1), "34"),
        (Predict::new(0, 1, SLEEP_US_MAX + 1, 1), "49"),
        (Predict::new(0, 1, 1, 0), "58"),
    ] {
        let error = result.unwrap_err();
        assert_eq!((error.code(), &*error.args()[1]), (ErrorCode::InvalidPlan, column), "{error}");
    }
    for (result, column) in [
        (Adapt::new(0, 0, 1, 1, 1), "16"),
        (Adapt::new(LATE_PCT_MAX + 1, 0, 1, 1, 1), "16"),
        (Adapt::new(1, MARGIN_US_MAX + 1, 1, 1, 1), "27"),
        (Adapt::new(1, 0, 2, 1, 1), "42"),
        (Adapt::new(1, 0, 1, 1, 0), "66"),
    ] {
        let error = result.unwrap_err();
        assert_eq!((error.code(), &*error.args()[1]), (ErrorCode::InvalidPlan, column), "{error}");
    }
    let bands = WaitBands::from(WaitPlan::poll()).with_band(8, WaitPlan::block()).unwrap();
    for rows in [0, 8, ROWS_MAX + 1] {
        assert_eq!(
            bands.clone().with_band(rows, WaitPlan::poll()).unwrap_err().code(),
            ErrorCode::InvalidPlan
        );
    }
}

fn any_predict() -> impl Strategy<Value = Predict> {
    (0..=MARGIN_US_MAX, 1..=SLEEP_US_MAX, 1..=SLEEP_US_MAX, 1..=WINDOW_MAX)
        .prop_map(|(margin, a, b, window)| Predict::new(margin, a.min(b), a.max(b), window).unwrap())
}

fn any_plan() -> impl Strategy<Value = WaitPlan> {
    let flag = (1..=PARK_US_MAX, 1..=BACKSTOP_US_MAX, any::<bool>()).prop_map(|(park, backstop, trust)| {
        let plan = WaitPlan::flag(park, backstop.max(park)).unwrap();
        if trust { plan.trusted().unwrap() } else { plan }
    });
    let mode = prop_oneof![Just(WaitPlan::block()), Just(WaitPlan::poll()), flag];
    let late_pct = proptest::option::of(1..=LATE_PCT_MAX);
    let ahead = proptest::option::of((any_predict(), late_pct, any::<bool>()));
    (mode, ahead).prop_map(|(plan, ahead)| match ahead {
        Some((ahead, late_pct, warm)) if plan.mode() != Mode::Block => {
            let plan = match late_pct {
                None => plan.with_predict(ahead).unwrap(),
                Some(late_pct) => plan.with_adapt(Adapt { late_pct, fields: ahead }).unwrap(),
            };
            if warm { plan.warming().unwrap() } else { plan }
        }
        _ => plan,
    })
}

fn any_bands() -> impl Strategy<Value = WaitBands> {
    let above = proptest::collection::btree_map(1..=ROWS_MAX, any_plan(), 0..BANDS_MAX);
    (any_plan(), above).prop_map(|(first, above)| {
        let above: Vec<String> = above.iter().map(|(from, plan)| format!(";rows>={from}:{plan}")).collect();
        format!("{first}{}", above.concat()).parse().unwrap()
    })
}

/// A valid text with a few characters left out, put in or swapped.
fn near_text() -> impl Strategy<Value = String> {
    let small = prop_oneof![
        any_plan().prop_map(|plan| plan.to_string()),
        (any_plan(), any_plan()).prop_map(|(a, b)| format!("{a};rows>=32:{b}")),
    ];
    let place = any::<proptest::sample::Index>();
    let token = prop_oneof![
        proptest::sample::select(
            &[
                "+", ":", ",", ";", "=", ">", "0", "9", "-", " ", "\0", "é", "rows>=", "+trust", "park_us=",
                "block"
            ][..]
        )
        .prop_map(String::from),
        any::<char>().prop_map(String::from),
    ];
    (small, proptest::collection::vec((place, 0..4_usize, token), 1..4)).prop_map(|(text, edits)| {
        let mut chars: Vec<char> = text.chars().collect();
        for (place, left_out, token) in edits {
            let at = place.index(chars.len() + 1);
            let end = (at + left_out).min(chars.len());
            chars.splice(at..end, token.chars());
        }
        chars.into_iter().collect()
    })
}

/// Whatever the text, reading it ends well, and its plan prints and reads back; or with an error whose column is
/// in the text or just behind it.
fn check_any(text: &str) -> Result<(), TestCaseError> {
    fn check<T: FromStr<Err = Error> + fmt::Display + PartialEq + fmt::Debug>(
        text: &str,
    ) -> Result<(), TestCaseError> {
        match text.parse::<T>() {
            Ok(value) => prop_assert_eq!(value.to_string().parse::<T>().ok(), Some(value)),
            Err(error) => {
                prop_assert_eq!(error.code(), ErrorCode::InvalidPlan);
                let column: usize = error.args()[1].parse().unwrap();
                prop_assert!((1..=text.chars().count() + 1).contains(&column), "{}", error);
                prop_assert!(!error.to_string().contains(char::is_control), "{}", error);
            }
        }
        Ok(())
    }
    check::<WaitPlan>(text)?;
    check::<WaitBands>(text)
}

proptest! {
    #[test]
    fn a_plan_reads_back_as_it_was_printed(plan in any_plan()) {
        prop_assert_eq!(plan.to_string().parse::<WaitPlan>().unwrap(), plan);
        prop_assert_eq!(plan.to_string().parse::<WaitBands>().unwrap(), WaitBands::from(plan));
    }

    #[test]
    fn bands_read_back_and_choose_the_last_one_reached(bands in any_bands(), rows in 0..=ROWS_MAX) {
        prop_assert_eq!(&bands.to_string().parse::<WaitBands>().unwrap(), &bands);
        let thresholds: Vec<u64> = bands.iter().map(|(from, _)| from).collect();
        for rows in thresholds.iter().flat_map(|from| [from.saturating_sub(1), *from]).chain([rows, u64::MAX]) {
            let reached = bands.iter().filter(|(from, _)| *from <= rows).last().unwrap().1;
            prop_assert_eq!(bands.choose(rows), reached);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text: String) {
        check_any(&text)?;
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        check_any(&String::from_utf8_lossy(&bytes))?;
    }

    #[test]
    fn a_nearly_valid_text_is_read_or_refused(text in near_text()) {
        check_any(&text)?;
    }
}
