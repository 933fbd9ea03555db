//! A client of PostgreSQL's protocol as a program in Rust would be one: tokio-postgres, prepared statements, pipelined.
//!
//! 1. A driver has up to [`super::Setup::connections`] connections. Sessions beyond share them, as over a pooler, and what several sessions of a
//!    connection ask at the same time goes out in one message and is answered in one: that is the batching of REFERENCE.md A2.
//! 2. An autocommit statement is a Sync of its own, so sessions that share a connection do not share a transaction.
//! 3. A transaction's BEGIN, statements and COMMIT are queued in one go, with nothing of another session between: the client queues a
//!    request when its future is first polled, and all are polled once before the task gives way.

use super::sql::{Say, Statements};
use super::{Answer, Completion, Driver, Fetch, Op, Submitted};
use crate::error::BenchError;
use crate::shape::TableShape;
use bytes::{Bytes, BytesMut};
use futures::future::LocalBoxFuture;
use futures::{FutureExt, SinkExt, StreamExt};
use postgres_types::{IsNull, ToSql, Type, to_sql_checked};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::LocalSet;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage, Statement};

impl From<tokio_postgres::Error> for BenchError {
    fn from(error: tokio_postgres::Error) -> BenchError {
        let said = error.as_db_error().map(|db| format!("{} {}", db.code().code(), db.message()));
        BenchError::Engine(said.unwrap_or_else(|| error.to_string()))
    }
}

/// Where a server listens, and as whom we come.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    pub at: SocketAddr,
    pub user: &'static str,
    pub database: &'static str,
    /// The directory of the server's socket file, through which its clients come rather than over loopback.
    pub socket: Option<&'static Path>,
}

/// For as long as the program runs: addresses are told by value.
pub fn lasting(socket: Option<&Path>) -> Option<&'static Path> {
    socket.map(|path| &*Box::leak(path.to_path_buf().into_boxed_path()))
}

/// A number in whatever type its column or parameter has.
#[derive(Clone, Copy, Debug)]
pub struct Cell(pub i64);

impl ToSql for Cell {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match *ty {
            Type::INT4 => i32::try_from(self.0)?.to_sql(ty, out),
            Type::INT2 => i16::try_from(self.0)?.to_sql(ty, out),
            Type::BOOL => (self.0 != 0).to_sql(ty, out),
            Type::INT8 => self.0.to_sql(ty, out),
            _ => self.0.to_string().to_sql(ty, out),
        }
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::INT8 | Type::INT4 | Type::INT2 | Type::BOOL | Type::TEXT | Type::VARCHAR | Type::BPCHAR)
    }

    to_sql_checked!();
}

pub fn runtime() -> Result<Runtime, BenchError> {
    let made = tokio::runtime::Builder::new_current_thread().enable_all().build();
    made.map_err(|error| BenchError::Machine(format!("no event loop: {error}")))
}

/// A connection whose other half runs on the local set.
pub async fn connect(address: Address) -> Result<Client, BenchError> {
    let mut config = tokio_postgres::Config::new();
    match address.socket {
        Some(directory) => config.host_path(directory),
        None => config.host(address.at.ip().to_string()),
    };
    config.port(address.at.port()).user(address.user).dbname(address.database);
    let (client, connection) = config.connect(NoTls).await?;
    // Its failure is told to whoever waits for an answer.
    tokio::task::spawn_local(connection.map(drop));
    Ok(client)
}

/// The cells of rows, as text.
pub type Cells = Vec<Vec<Option<String>>>;

/// Asks one thing over a connection of its own.
pub fn ask(address: Address, sql: &str) -> Result<Cells, BenchError> {
    let mut answers = ask_in_turn(address, std::slice::from_ref(&sql))?;
    Ok(answers.pop().map(|(rows, _)| rows).unwrap_or_default())
}

/// Asks one thing after the other over one connection; each answer with the seconds that it took.
pub fn ask_in_turn(address: Address, statements: &[impl AsRef<str>]) -> Result<Vec<(Cells, f64)>, BenchError> {
    let runtime = runtime()?;
    LocalSet::new().block_on(&runtime, async {
        let client = connect(address).await?;
        let mut answers = Vec::with_capacity(statements.len());
        for sql in statements {
            let started = Instant::now();
            let messages = client.simple_query(sql.as_ref()).await?;
            let seconds = started.elapsed().as_secs_f64();
            let mut rows = Vec::new();
            for message in messages {
                if let SimpleQueryMessage::Row(row) = message {
                    rows.push((0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect());
                }
            }
            answers.push((rows, seconds));
        }
        Ok(answers)
    })
}

/// The numbers of the one row that is asked for.
pub fn ask_numbers(address: Address, sql: &str) -> Result<Vec<i64>, BenchError> {
    let rows = ask(address, sql)?;
    let number = |cell: &Option<String>| cell.as_deref().map_or(Ok(0), |text| text.parse::<i64>());
    let numbers = rows.first().map(|row| row.iter().map(number).collect::<Result<Vec<i64>, _>>());
    match numbers {
        Some(Ok(numbers)) => Ok(numbers),
        _ => Err(BenchError::WrongData(format!("{sql} gives no numbers: {rows:?}"))),
    }
}

/// Inserts rows over one connection, in pipelined transactions.
pub fn load(
    address: Address,
    tables: &[TableShape],
    table: usize,
    mut next: impl FnMut() -> Option<std::ops::Range<u64>>,
) -> Result<(), BenchError> {
    let runtime = runtime()?;
    LocalSet::new().block_on(&runtime, async {
        let client = connect(address).await?;
        let insert = client.prepare(&Say::Insert { table }.text(tables)).await?;
        let mut cells = Vec::new();
        while let Some(rows) = next() {
            let mut all: Vec<LocalBoxFuture<'_, Result<(), tokio_postgres::Error>>> = Vec::new();
            all.push(client.batch_execute("BEGIN").boxed_local());
            for id in rows {
                cells.clear();
                (tables[table].row)(id, &mut cells);
                let parameters: Vec<Cell> = cells.iter().copied().map(Cell).collect();
                let (client, insert) = (&client, &insert);
                all.push(async move { client.execute_raw(insert, parameters).await.map(drop) }.boxed_local());
            }
            all.push(client.batch_execute("COMMIT").boxed_local());
            in_order(all).await?;
        }
        Ok(())
    })
}

/// Copies rows in PostgreSQL's text form, as long as `more` appends some.
pub fn copy(address: Address, table: &str, mut more: impl FnMut(&mut String) -> bool) -> Result<(), BenchError> {
    let runtime = runtime()?;
    LocalSet::new().block_on(&runtime, async {
        let client = connect(address).await?;
        let sink = client.copy_in::<_, Bytes>(&format!("COPY {table} FROM STDIN")).await?;
        futures::pin_mut!(sink);
        let mut text = String::new();
        while more(&mut text) {
            sink.feed(Bytes::from(std::mem::take(&mut text))).await?;
        }
        sink.finish().await?;
        Ok(())
    })
}

/// Polls each once in order, so that they are queued in this order and together, then waits for all.
pub async fn in_order<T, E>(all: Vec<LocalBoxFuture<'_, Result<T, E>>>) -> Result<Vec<T>, BenchError>
where
    BenchError: From<E>,
{
    let mut running: Vec<_> = all.into_iter().map(futures::future::maybe_done).collect();
    std::future::poll_fn(|context| {
        running.iter_mut().for_each(|one| _ = one.poll_unpin(context));
        std::task::Poll::Ready(())
    })
    .await;
    let mut answers = Vec::with_capacity(running.len());
    for mut one in running {
        (&mut one).await;
        answers.push(std::pin::Pin::new(&mut one).take_output().expect("it was awaited")?);
    }
    Ok(answers)
}

struct Connection {
    client: Rc<Client>,
    statements: Statements<Statement>,
}

/// What the tasks of a driver tell it.
#[derive(Default)]
struct Told {
    done: RefCell<Vec<Completion>>,
    failed: RefCell<Option<BenchError>>,
    notify: Notify,
}

pub struct WireDriver<'a> {
    // Before the runtime that its tasks live on.
    local: LocalSet,
    runtime: Runtime,
    tables: &'a [TableShape],
    connections: Vec<Connection>,
    told: Rc<Told>,
}

/// A statement with its parameters, ready to be sent.
struct Request {
    statement: Statement,
    parameters: Vec<Cell>,
    /// The column that is summed of what it gives; none for a change.
    counter: Option<usize>,
}

impl<'a> WireDriver<'a> {
    /// `on_connect` is said once on every connection.
    pub fn connect(
        address: Address,
        tables: &'a [TableShape],
        connections: usize,
        on_connect: &str,
    ) -> Result<WireDriver<'a>, BenchError> {
        let (runtime, local) = (runtime()?, LocalSet::new());
        let made: Result<Vec<Connection>, BenchError> = local.block_on(&runtime, async {
            let mut made = Vec::new();
            for _ in 0..connections.max(1) {
                let client = connect(address).await?;
                client.batch_execute(on_connect).await?;
                made.push(Connection { client: Rc::new(client), statements: Statements::default() });
            }
            Ok(made)
        });
        Ok(WireDriver { local, runtime, tables, connections: made?, told: Rc::default() })
    }

    fn request(&mut self, connection: usize, op: &Op<'_>) -> Result<Request, BenchError> {
        let Connection { client, statements } = &mut self.connections[connection];
        let say = Say::of(op).ok_or_else(|| BenchError::Usage("a transaction inside a transaction".into()))?;
        let (local, runtime, tables) = (&self.local, &self.runtime, self.tables);
        let prepare = || local.block_on(runtime, client.prepare(&say.text(tables)));
        let statement = statements.get(say, prepare)?.clone();
        let (parameters, counter) = match *op {
            Op::Search { table, key, fetch, .. } => {
                (vec![Cell(key)], Some(if fetch == Fetch::Row { tables[table].counter } else { 0 }))
            }
            Op::Traverse { key, .. } => (vec![Cell(key)], Some(0)),
            Op::SearchMany { keys, .. } => (keys.iter().copied().map(Cell).collect(), Some(0)),
            Op::Update { key, add, .. } => (vec![Cell(key), Cell(add)], None),
            Op::InsertRow { table, id } => {
                let mut cells = Vec::with_capacity(tables[table].columns.len());
                (tables[table].row)(id, &mut cells);
                (cells.into_iter().map(Cell).collect(), None)
            }
            Op::Insert { cells, .. } => (cells.iter().copied().map(Cell).collect(), None),
            Op::Delete { key, .. } => (vec![Cell(key)], None),
            Op::Sum { .. } | Op::Transaction(_) => return Err(BenchError::Usage("a sum inside a transaction".into())),
        };
        Ok(Request { statement, parameters, counter })
    }

    fn spawn(&self, session: usize, work: impl Future<Output = Result<Answer, BenchError>> + 'static) {
        let told = self.told.clone();
        self.local.spawn_local(async move {
            match work.await {
                Ok(answer) => told.done.borrow_mut().push(Completion { session, answer }),
                Err(error) => drop(told.failed.borrow_mut().get_or_insert(error)),
            }
            told.notify.notify_one();
        });
    }
}

async fn run(client: &Client, request: Request) -> Result<Answer, tokio_postgres::Error> {
    let Request { statement, parameters, counter } = request;
    let Some(counter) = counter else {
        let rows = client.execute_raw(&statement, parameters).await?;
        return Ok(Answer { rows, sum: 0 });
    };
    let stream = client.query_raw(&statement, parameters).await?;
    futures::pin_mut!(stream);
    let mut answer = Answer::default();
    while let Some(row) = stream.next().await {
        answer.add(Answer { rows: 1, sum: row?.try_get::<_, i64>(counter)? });
    }
    Ok(answer)
}

/// All of them between BEGIN and COMMIT, one message each way.
async fn run_all(client: Rc<Client>, requests: Vec<Request>) -> Result<Answer, BenchError> {
    let control = |sql: &'static str| {
        let client = &client;
        async move { client.batch_execute(sql).await.map(|()| Answer::default()) }.boxed_local()
    };
    let mut all = vec![control("BEGIN")];
    all.extend(requests.into_iter().map(|request| run(&client, request).boxed_local()));
    all.push(control("COMMIT"));
    let mut total = Answer::default();
    in_order(all).await?.into_iter().for_each(|answer| total.add(answer));
    Ok(total)
}

/// `SELECT count(*), sum(..)`, whose sum has a type of its own in each system.
async fn sum(client: Rc<Client>, sql: String) -> Result<Answer, BenchError> {
    let messages = client.simple_query(&sql).await?;
    let row = messages.iter().find_map(|m| if let SimpleQueryMessage::Row(row) = m { Some(row) } else { None });
    let number = |i: usize| row.and_then(|row| row.get(i)).map_or(Ok(0), |text| text.parse::<i64>());
    match (number(0), number(1)) {
        (Ok(rows), Ok(sum)) => Ok(Answer { rows: rows as u64, sum }),
        _ => Err(BenchError::WrongData(format!("{sql} gives no numbers"))),
    }
}

impl Driver for WireDriver<'_> {
    fn submit(&mut self, session: usize, op: &Op<'_>) -> Result<Submitted, BenchError> {
        let connection = session % self.connections.len();
        let client = self.connections[connection].client.clone();
        match *op {
            Op::Transaction(ops) => {
                let requests: Result<Vec<_>, _> = ops.iter().map(|op| self.request(connection, op)).collect();
                self.spawn(session, run_all(client, requests?));
            }
            Op::Sum { table } => self.spawn(session, sum(client, Say::Sum { table }.text(self.tables))),
            _ => {
                let request = self.request(connection, op)?;
                self.spawn(session, async move { Ok(run(&client, request).await?) });
            }
        }
        Ok(Submitted::InFlight)
    }

    fn completions(&mut self, wait: bool, done: &mut Vec<Completion>) -> Result<(), BenchError> {
        let told = &self.told;
        self.local.block_on(&self.runtime, async {
            if wait && told.done.borrow().is_empty() && told.failed.borrow().is_none() {
                told.notify.notified().await;
            } else {
                tokio::task::yield_now().await;
            }
        });
        if let Some(error) = told.failed.borrow_mut().take() {
            return Err(error);
        }
        done.append(&mut told.done.borrow_mut());
        Ok(())
    }
}
