//! What do the customers see meanwhile? Form 1, the chart of sixty days, and Form 2, the current quote, over random
//! stocks; two queries each, and each query a transaction of its own.

use crate::apply::latency_histogram;
use crate::bind::text;
use crate::error::{Doing, MarketError, Result};
use crate::generate::Random;
use crate::listing::{CHART_DAYS, clone_code};
use crate::schema::forms as sql;
use crate::source::Day;
use freshet_db::{Database, Datum, Session, Statement};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Rows of Form 2's history.
const HISTORY_ROWS: usize = 20;

pub struct FormTally {
    pub forms: u64,
    pub latency_us: Histogram<u64>,
}

struct Forms {
    session: Session,
    qf1: Statement,
    qf2: Statement,
    qf3: Statement,
    qf4: Statement,
}

/// The codes customers ask for, as parameters.
pub fn codes(day: &Day, clones: u32) -> Vec<Datum> {
    let stocks = day.listing.in_feed().iter();
    stocks.flat_map(|stock| (0..clones).map(|clone| text(&clone_code(&stock.code, clone)))).collect()
}

/// Shows forms until `done` is raised. `shown` counts along.
pub fn ask(db: &Database, codes: &[Datum], seed: u64, done: &AtomicBool, shown: &AtomicU64) -> Result<FormTally> {
    let mut forms = Forms::prepare(db)?;
    let mut random = Random::new(seed);
    let mut tally = FormTally { forms: 0, latency_us: latency_histogram() };
    while !done.load(Ordering::Relaxed) {
        let code = &codes[random.below(codes.len() as u64) as usize..][..1];
        let asked = Instant::now();
        if random.chance(50) {
            forms.form1(code)?;
        } else {
            forms.form2(code)?;
        }
        let latency = asked.elapsed().as_micros() as u64;
        tally.latency_us.saturating_record(latency.max(1));
        tally.forms += 1;
        shown.store(tally.forms, Ordering::Relaxed);
    }
    Ok(tally)
}

impl Forms {
    fn prepare(db: &Database) -> Result<Forms> {
        let mut session = db.session().doing("connecting")?;
        let mut prepare = |sql: &str| session.prepare(sql).doing("preparing the forms");
        Ok(Forms {
            qf1: prepare(sql::QF1)?,
            qf2: prepare(sql::QF2)?,
            qf3: prepare(&sql::qf3())?,
            qf4: prepare(sql::QF4)?,
            session,
        })
    }

    fn form1(&mut self, code: &[Datum]) -> Result<()> {
        let trade = self.session.query(&self.qf1, code).doing("QF1")?.len();
        expect_rows("QF1", trade, 1..=1)?;
        let days = self.session.query(&self.qf2, code).doing("QF2")?.len();
        expect_rows("QF2", days, 1..=CHART_DAYS)
    }

    fn form2(&mut self, code: &[Datum]) -> Result<()> {
        let quote = self.session.query(&self.qf3, code).doing("QF3")?.len();
        expect_rows("QF3", quote, 1..=1)?;
        let trades = self.session.query(&self.qf4, code).doing("QF4")?.len();
        expect_rows("QF4", trades, 0..=HISTORY_ROWS)
    }
}

fn expect_rows(query: &str, rows: usize, expected: std::ops::RangeInclusive<usize>) -> Result<()> {
    if expected.contains(&rows) {
        return Ok(());
    }
    Err(MarketError::State(format!("{query} gave {rows} rows")))
}
