//! What happens after the last trade? The day's row of every stock in TRADE_DAILY_AGGREGATE, computed by SQL from
//! TRADE_HISTORY, and the day's totals in STOCK_MASTER.
//!
//! One transaction, with the mark that the day is done in it: killed in the middle, the end of the day happens again as a
//! whole.

use crate::bind::{date, int, owned};
use crate::error::{Doing, MarketError, Result};
use crate::forms;
use crate::schema::closing as sql;
use crate::source::Day;
use freshet_db::{Database, Datum, Session, SqlError, Statement, Transaction};

struct Statements {
    aggregate: Statement,
    first: Statement,
    last: Statement,
    first_and_last: Statement,
    day_of: Statement,
    totals: Statement,
    done: Statement,
}

impl Statements {
    fn prepare(session: &mut Session) -> std::result::Result<Statements, SqlError> {
        Ok(Statements {
            aggregate: session.prepare(sql::AGGREGATE)?,
            first: session.prepare(sql::FIRST)?,
            last: session.prepare(sql::LAST)?,
            first_and_last: session.prepare(sql::FIRST_AND_LAST)?,
            day_of: session.prepare(sql::DAY_OF)?,
            totals: session.prepare(sql::TOTALS)?,
            done: session.prepare(sql::DONE)?,
        })
    }
}

/// Closes the day; returns the number of stocks that traded.
pub fn close_day(db: &Database, day: &Day, clones: u32) -> Result<u64> {
    let mut session = db.session().doing("connecting")?;
    let statements = Statements::prepare(&mut session).doing("preparing the end of the day")?;
    let mut transaction = session.begin().doing("closing the day")?;
    let today = [date(day.date()), int(day.date().weekday())];
    let traded = transaction.execute(&statements.aggregate, &today).doing("aggregating the day")?;
    let mut found = 0;
    for code in forms::codes(day, clones) {
        found += u64::from(complete(&mut transaction, &statements, &code, &today[0]).doing("closing the day")?);
    }
    if found != traded {
        return Err(MarketError::State(format!(
            "{traded} stocks were aggregated, but {found} of the feed's have trades"
        )));
    }
    transaction.execute(&statements.done, &[]).doing("closing the day")?;
    transaction.commit().doing("closing the day")?;
    Ok(traded)
}

/// Adds first and last price to a code's row and its totals to STOCK_MASTER. False if it did not trade.
fn complete(
    transaction: &mut Transaction<'_>,
    statements: &Statements,
    code: &Datum,
    today: &Datum,
) -> std::result::Result<bool, SqlError> {
    let by_code = std::slice::from_ref(code);
    let first = match transaction.query(&statements.first, by_code)? {
        rows if rows.is_empty() => return Ok(false),
        rows => owned(rows.get(0, 0)),
    };
    let rows = transaction.query(&statements.last, by_code)?;
    let (last, change) = (owned(rows.get(0, 0)), owned(rows.get(0, 1)));
    transaction.execute(&statements.first_and_last, &[code.clone(), today.clone(), first, last, change])?;
    let rows = transaction.query(&statements.day_of, &[code.clone(), today.clone()])?;
    let (volume, amount) = (owned(rows.get(0, 0)), owned(rows.get(0, 1)));
    transaction.execute(&statements.totals, &[code.clone(), volume, amount])?;
    Ok(true)
}
