//! What does TPC-H ask? Its 22 queries with the parameters that the specification validates by (clause 2.4.x.3), and with its limits on rows.

use tpchgen::q_and_a::queries;

pub struct Query {
    pub number: usize,
    /// A view that it reads, and how that goes again.
    pub before: Option<String>,
    pub undo: Option<String>,
    pub sql: String,
}

/// By query: what stands for `:1`, `:2` and so on, and how many rows are asked for.
const PARAMETERS: [(&[&str], Option<usize>); 22] = [
    (&["90"], None),
    (&["15", "BRASS", "EUROPE"], Some(100)),
    (&["BUILDING", "1995-03-15"], Some(10)),
    (&["1993-07-01"], None),
    (&["ASIA", "1994-01-01"], None),
    (&["1994-01-01", "0.06", "24"], None),
    (&["FRANCE", "GERMANY"], None),
    (&["BRAZIL", "AMERICA", "ECONOMY ANODIZED STEEL"], None),
    (&["green"], None),
    (&["1993-10-01"], Some(20)),
    // The second is 0.0001 over the scale: see `query`.
    (&["GERMANY", "FRACTION"], None),
    (&["MAIL", "SHIP", "1994-01-01"], None),
    (&["special", "requests"], None),
    (&["1995-09-01"], None),
    (&["1996-01-01"], None),
    (&["Brand#45", "MEDIUM POLISHED", "49", "14", "23", "45", "19", "3", "36", "9"], None),
    (&["Brand#23", "MED BOX"], None),
    (&["300"], Some(100)),
    (&["Brand#12", "Brand#23", "Brand#34", "1", "10", "20"], None),
    (&["forest", "1994-01-01", "CANADA"], None),
    (&["SAUDI ARABIA"], Some(100)),
    (&["13", "31", "23", "29", "30", "18", "17"], None),
];

/// A query by its number from 1.
pub fn query(number: usize, scale: f64) -> Query {
    let (parameters, limit) = PARAMETERS[number - 1];
    let text = queries::query(number as i32).expect("there are 22");
    // A precision of the leading field, which PostgreSQL's grammar does not have.
    let mut text = text.replace(" day (3)", " day").replace("revenue:s", "revenue0");
    // The last first: `:10` begins as `:1` does.
    for (at, value) in parameters.iter().enumerate().rev() {
        text = text.replace(&format!(":{}", at + 1), value);
    }
    text = text.replace("FRACTION", &format!("{:.10}", 0.0001 / scale));
    let mut statements: Vec<String> = text.split(';').map(|s| s.trim().to_owned()).filter(|s| !s.is_empty()).collect();
    let undo = (statements.len() == 3).then(|| statements.remove(2));
    let before = (statements.len() == 2).then(|| statements.remove(0));
    let mut sql = statements.swap_remove(0);
    if let Some(limit) = limit {
        sql.push_str(&format!("\nlimit {limit}"));
    }
    Query { number, before, sql, undo }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_filled_in() {
        for number in 1..=22 {
            let query = query(number, 1.0);
            assert!(query.sql.contains("select"), "{number}: {}", query.sql);
            let placeholder = |text: &str| (0..10).any(|n| text.contains(&format!(":{n}")));
            assert!(!placeholder(&query.sql) && !query.before.as_deref().is_some_and(placeholder), "{}", query.sql);
            assert_eq!(query.before.is_some(), number == 15);
            assert_eq!(query.undo.is_some(), number == 15);
        }
        assert!(query(16, 1.0).sql.contains("(49, 14, 23, 45, 19, 3, 36, 9)"));
        assert!(query(11, 0.01).sql.contains("0.0100000000"));
    }
}
