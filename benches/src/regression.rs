//! Cases that became slower than in an earlier record of the same machine.

use std::collections::BTreeMap;

use girih_machine::Machine;

use crate::{Error, Report};

/// Refuses a baseline whose times say nothing about this machine.
///
/// # Errors
/// When CPU, cores or threads differ; the message has both.
pub fn check_machine(now: (&Machine, usize), then: (&Machine, usize)) -> Result<(), Error> {
    let described = |(machine, threads): (&Machine, usize)| {
        format!(
            "{}, {} cores, {threads} threads",
            machine.cpu.as_deref().unwrap_or("a CPU without a name"),
            machine.cores
        )
    };
    let (here, there) = (described(now), described(then));
    if here == there {
        return Ok(());
    }
    Err(format!("the baseline is of another machine ({there}; this run: {here}); record a baseline here").into())
}

/// One line for each case of `then` that is slower in `now` by more than `tolerance_percent`, or not there.
///
/// Least times are compared, because other programs only add to them. Cases that took no time are passed over.
///
/// # Errors
/// When the graphs differ.
pub fn regressions(now: &Report, then: &Report, tolerance_percent: f64) -> Result<Vec<String>, Error> {
    let suite = &now.suite;
    if now.graph != then.graph {
        let [now, then] = [now, then].map(|report| report.graph.as_deref().unwrap_or("none"));
        return Err(format!("{suite}: the baseline has another graph ({then}; this run: {now})").into());
    }
    let measured: BTreeMap<&str, f64> = now.cases.iter().map(|case| (case.name.as_str(), case.time.min_s)).collect();
    let line = |case: &crate::Case| {
        let (name, then_ms) = (&case.name, 1e3 * case.time.min_s);
        let Some(now_s) = measured.get(name.as_str()) else {
            return Some(format!("{suite}: {name}: {then_ms:.3} ms in the baseline, no such case in this run"));
        };
        let now_ms = 1e3 * now_s;
        let slower_percent = 100.0 * (now_ms / then_ms - 1.0);
        (then_ms > 0.0 && slower_percent > tolerance_percent).then(|| {
            format!("{suite}: {name}: {now_ms:.3} ms, {then_ms:.3} ms in the baseline: {slower_percent:.0} % slower")
        })
    };
    Ok(then.cases.iter().filter_map(line).collect())
}

/// Error that lists regressions, if there are any.
///
/// # Errors
/// With at least one line.
pub fn fail_on(lines: &[String], tolerance_percent: f64) -> Result<(), Error> {
    if lines.is_empty() {
        return Ok(());
    }
    let list = lines.join("\n  ");
    Err(format!("{} cases are slower by more than {tolerance_percent} %:\n  {list}", lines.len()).into())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use girih_machine::Ceilings;

    use super::*;
    use crate::Case;
    use crate::timing::Summary;

    fn report(cases: &[(&str, f64)]) -> Report {
        let mut report = Report::new("spmm", Path::new("/"), Ceilings::default());
        report.cases = cases.iter().map(|(name, s)| Case::new(*name, Summary::of(&[*s, 9.0, 9.0]))).collect();
        report
    }

    #[test]
    fn slower_and_missing_cases_are_named_with_both_figures() {
        let then = report(&[("a", 1.0), ("b", 1.0), ("gone", 2.0), ("free", 0.0)]);
        let now = report(&[("a", 1.4), ("b", 1.6), ("new", 7.0), ("free", 1.0)]);
        let lines = regressions(&now, &then, 50.0).unwrap();
        assert_eq!(
            lines,
            [
                "spmm: b: 1600.000 ms, 1000.000 ms in the baseline: 60 % slower",
                "spmm: gone: 2000.000 ms in the baseline, no such case in this run",
            ]
        );
        assert!(fail_on(&lines, 50.0).unwrap_err().to_string().starts_with("2 cases are slower by more than 50 %:\n"));
        fail_on(&regressions(&now, &report(&[("a", 1.0)]), 50.0).unwrap(), 50.0).unwrap();
    }

    #[test]
    fn other_graphs_and_machines_are_refused() {
        let (mut now, then) = (report(&[]), report(&[]));
        now.graph = Some("cora: 2708 nodes".to_owned());
        assert!(regressions(&now, &then, 1.0).unwrap_err().to_string().contains("cora"));
        let other = Machine { cores: now.machine.cores + 1, ..now.machine.clone() };
        check_machine((&now.machine, 2), (&then.machine, 2)).unwrap();
        for there in [(&now.machine, 1), (&other, 2)] {
            let message = check_machine((&now.machine, 2), there).unwrap_err().to_string();
            assert!(message.starts_with("the baseline is of another machine"), "{message}");
        }
    }
}
