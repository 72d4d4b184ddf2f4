//! The table.

use std::fmt::Write;

use wakeline_benches::tune::Advice;

/// A block for each point: the plans on the front, the advised one marked, and its line.
pub(crate) fn table(advice: &[Advice]) -> String {
    let mut text = String::new();
    for one in advice {
        // Writing to a string does not fail.
        let _ = block(&mut text, one);
    }
    text
}

fn block(text: &mut String, advice: &Advice) -> std::fmt::Result {
    let Advice { workload, point, waits, residual_ns, advised, saves, least_cpu, tried } = advice;
    writeln!(text, "{workload} / {point}: {waits} waits, mean residual {:.1} us", residual_ns / 1e3)?;
    writeln!(text, "     CPU of a spin   added us     %      p99 us    late %  sleeps  plan")?;
    for tried in tried.iter().filter(|tried| tried.on_front || *tried == advised) {
        let cost = tried.cost;
        writeln!(
            text,
            "  {} {:>13.4} {:>10.3} {:>6.3} {:>10.2} {:>9.2} {:>7.1}  {}",
            if tried == advised { '>' } else { ' ' },
            cost.cpu,
            cost.added_ns / 1e3,
            100.0 * cost.added_ns / residual_ns.max(1.0),
            cost.added_p99_ns / 1e3,
            100.0 * cost.late,
            cost.sleeps,
            tried.plan
        )?;
    }
    if let Some(least) = least_cpu {
        writeln!(
            text,
            "    no way of waiting that knows their distribution, but not their order, is as close below {least:.4}"
        )?;
    }
    writeln!(text, "  take {}: it saves {:.1} % of a spin's CPU\n", advised.plan, 100.0 * saves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wakeline_benches::tune::{HostModel, Series, Step, Trace, advise, candidates};
    use wakeline_core::Nanos;

    #[test]
    fn each_point_has_a_block_with_one_plan_to_take() {
        let step = |us| Step { key: (0, 0), residual: Nanos::from_micros(us) };
        let series =
            Series { points: vec!["sample".into()], steps: (0..100).map(|us| step(3_000 + us)).collect() };
        let trace = Trace { workloads: [("decode".to_owned(), series)].into() };
        let advice = advise(&trace, &candidates(), &HostModel::h200(), true).unwrap();
        let text = table(&advice);
        assert!(text.starts_with("decode / sample: 100 waits, mean residual 3049.5 us\n"), "{text}");
        assert_eq!(text.matches("\n  > ").count(), 1, "{text}");
        assert_eq!(
            (text.matches("  take flag:").count(), text.matches("no way of waiting").count()),
            (1, 1),
            "{text}"
        );
    }
}
