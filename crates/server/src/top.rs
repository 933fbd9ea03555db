//! `freshet top`: what does a server do right now? Rates, response times, log, checkpoint, locks and sessions on a terminal, over an ordinary
//! connection and the statistics views. Whoever watches needs no more rights than to connect.

use crate::ship::tls::{Security, SslMode};
use clap::Args;
use freshet_db::sql::latency::{BUCKETS, Responses};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};
use ratatui::{Frame, Terminal};
use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::mpsc::unbounded_channel;
use tokio_postgres::config::{Host, SslMode as Wanted};
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage, SimpleQueryRow};

/// Rates that the curve shows.
const HISTORY: usize = 240;

/// Watch a server: rates, latencies, sessions, waits, log and checkpoint
#[derive(Args, Debug)]
pub struct TopArgs {
    /// The server, as libpq writes it. A password is better in PGPASSWORD, where no list of processes shows it
    #[arg(long, default_value = "host=127.0.0.1 port=5433 user=freshet", value_name = "CONNECTION")]
    to: String,
    /// TLS to the server, as libpq has it [default: what the connection says, or prefer]
    #[arg(long, env = "PGSSLMODE", value_name = "MODE", value_enum)]
    sslmode: Option<SslMode>,
    /// Root certificates by which the server's is verified, in PEM
    #[arg(long, env = "PGSSLROOTCERT", value_name = "FILE")]
    sslrootcert: Option<PathBuf>,
    /// Seconds between two looks
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    interval: f64,
    /// Print one look of this interval as text and exit
    #[arg(long)]
    once: bool,
}

pub fn run(args: &TopArgs) -> ExitCode {
    match watch(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without a stderr there is nobody to tell; the code still says it.
            let _ = writeln!(std::io::stderr(), "freshet top: {}", with_causes(&*error));
            ExitCode::from(1)
        }
    }
}

type Failure = Box<dyn std::error::Error>;

/// An error and what it comes from, unless it says so itself.
fn with_causes(error: &dyn std::error::Error) -> String {
    let (mut told, mut next) = (error.to_string(), error.source());
    while let Some(cause) = next {
        let cause_told = cause.to_string();
        if !told.contains(&cause_told) {
            told = format!("{told}: {cause_told}");
        }
        next = cause.source();
    }
    told
}

fn watch(args: &TopArgs) -> Result<(), Failure> {
    if !args.interval.is_finite() || !(0.05..=3600.0).contains(&args.interval) {
        return Err("the interval is between 0.05 and 3600 seconds".into());
    }
    let interval = Duration::from_secs_f64(args.interval);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(connect(args))?;
    let mut view = View::new(runtime.block_on(Sample::take(&client))?);
    if args.once {
        std::thread::sleep(interval);
        view.advance(runtime.block_on(Sample::take(&client))?);
        return print(&view);
    }
    runtime.block_on(on_terminal(interval, &mut view, &client))
}

const CONNECT_LIMIT: Duration = Duration::from_secs(30);

async fn connect(args: &TopArgs) -> Result<Client, Failure> {
    let mut config: Config = args.to.parse()?;
    config.application_name("freshet top");
    if config.get_password().is_none()
        && let Some(password) = std::env::var_os("PGPASSWORD")
    {
        config.password(password.into_encoded_bytes());
    }
    let (address, port) = (config.get_hostaddrs().first(), config.get_ports().first().copied().unwrap_or(5432));
    let host = match (config.get_hosts().first(), address) {
        (Some(Host::Tcp(host)), _) => host.clone(),
        (None, Some(address)) => address.to_string(),
        // What does not leave the machine is not encrypted.
        (Some(Host::Unix(_)), _) | (None, None) => {
            let (client, connection) = config.connect(NoTls).await?;
            // Its end is seen by the next query.
            tokio::spawn(connection);
            return Ok(client);
        }
    };
    let said = match config.get_ssl_mode() {
        Wanted::Disable => SslMode::Disable,
        Wanted::Require => SslMode::Require,
        _ => SslMode::Prefer,
    };
    let security = Security { mode: args.sslmode.unwrap_or(said), roots: args.sslrootcert.clone() };
    let to = address.map_or_else(|| host.clone(), ToString::to_string);
    let made = async {
        let socket = TcpStream::connect((to.as_str(), port)).await?;
        socket.set_nodelay(true)?;
        security.secure(socket, &format!("{host}:{port}")).await
    };
    let limit = config.get_connect_timeout().copied().unwrap_or(CONNECT_LIMIT);
    let made = tokio::time::timeout(limit, made).await.map_err(|_| format!("{host}:{port} does not answer"))?;
    let socket = made.map_err(|error| format!("cannot connect to {host}:{port}: {error}"))?;
    // It is encrypted already, where it is to be.
    let (client, connection) = config.ssl_mode(Wanted::Disable).connect_raw(socket, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// A frame as text.
fn print(view: &View) -> Result<(), Failure> {
    let mut terminal = Terminal::new(ratatui::backend::TestBackend::new(120, 30))?;
    terminal.draw(|frame| draw(frame, view))?;
    let mut out = std::io::stdout().lock();
    for line in lines(&terminal) {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn lines(terminal: &Terminal<ratatui::backend::TestBackend>) -> Vec<String> {
    let buffer = terminal.backend().buffer();
    let width = usize::from(buffer.area.width);
    buffer.content().chunks(width).map(|row| row.iter().map(|cell| cell.symbol()).collect()).collect()
}

/// Until a key ends it, also while the server does not answer.
async fn on_terminal(interval: Duration, view: &mut View, client: &Client) -> Result<(), Failure> {
    use ratatui::termion::event::Key;
    use ratatui::termion::input::TermRead;
    use ratatui::termion::raw::IntoRawMode;
    use ratatui::termion::screen::IntoAlternateScreen;
    let screen = std::io::stdout().into_raw_mode()?.into_alternate_screen()?;
    let mut terminal = Terminal::new(ratatui::backend::TermionBackend::new(screen))?;
    let (keys, mut pressed) = unbounded_channel();
    std::thread::spawn(move || {
        for key in std::io::stdin().keys().map_while(Result::ok) {
            if keys.send(key).is_err() {
                return;
            }
        }
    });
    loop {
        terminal.draw(|frame| draw(frame, view))?;
        let next = async {
            tokio::time::sleep(interval).await;
            Sample::take(client).await
        };
        let quit = async {
            while let Some(key) = pressed.recv().await {
                if matches!(key, Key::Char('q') | Key::Esc | Key::Ctrl('c')) {
                    return;
                }
            }
            // The channel is closed where stdin is no terminal.
            std::future::pending().await
        };
        tokio::select! {
            () = quit => return Ok(()),
            sample = next => view.advance(sample?),
        }
    }
}

// ---- what is seen

#[derive(Clone, PartialEq, Debug, Default)]
struct SessionLine {
    pid: String,
    user: String,
    application: String,
    state: String,
    wait: String,
    seconds: f64,
    query: String,
}

/// Counts of one moment.
#[derive(Clone, Debug)]
struct Sample {
    at: Instant,
    commits: u64,
    rollbacks: u64,
    returned: u64,
    changed: u64,
    deadlocks: u64,
    log_bytes: u64,
    flushes: u64,
    log_used: u64,
    log_capacity: u64,
    checkpoint: String,
    locks_waiting: u64,
    lock_waits: u64,
    version_bytes: u64,
    held_back_epochs: u64,
    responses: Responses,
    sessions: Vec<SessionLine>,
}

async fn rows(client: &Client, sql: &str) -> Result<Vec<SimpleQueryRow>, tokio_postgres::Error> {
    let messages = client.simple_query(sql).await?;
    let row = |message| if let SimpleQueryMessage::Row(row) = message { Some(row) } else { None };
    Ok(messages.into_iter().filter_map(row).collect())
}

fn number(row: &SimpleQueryRow, at: usize) -> u64 {
    row.get(at).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn text(row: &SimpleQueryRow, at: usize) -> String {
    row.get(at).unwrap_or_default().to_owned()
}

impl Sample {
    async fn take(client: &Client) -> Result<Sample, Failure> {
        let one = async |sql: &str| -> Result<SimpleQueryRow, Failure> {
            rows(client, sql).await?.into_iter().next().ok_or_else(|| format!("no row: {sql}").into())
        };
        let work =
            one("select xact_commit, xact_rollback, tup_returned, tup_inserted + tup_updated + tup_deleted, deadlocks
             from pg_stat_database")
            .await?;
        let log = one("select commit_record_bytes, flushes, used_bytes, capacity_bytes from freshet_log").await?;
        let checkpoint = one(
            "select running, pages_done, pages_total, dirty_pages, finished, failed_attempts from freshet_checkpoint",
        )
        .await?;
        let locks = one("select waiting, waits from freshet_stat_locks").await?;
        let garbage = one("select version_bytes, held_back_epochs from freshet_stat_garbage").await?;
        let mut responses = Responses::default();
        let counts = rows(client, "select responses from freshet_stat_latency order by below_us").await?;
        for (count, row) in responses.counts.iter_mut().zip(&counts) {
            *count = number(row, 0);
        }
        let sessions = rows(
            client,
            "select pid, usename, application_name, state, wait_event_type, wait_event,
             extract(epoch from clock_timestamp() - query_start), query
             from pg_stat_activity where pid <> pg_backend_pid()",
        )
        .await?;
        let mut sessions: Vec<SessionLine> = sessions.iter().map(session).collect();
        sessions.sort_by(|a, b| (a.state == "idle", &b.state).cmp(&(b.state == "idle", &a.state)));
        Ok(Sample {
            at: Instant::now(),
            commits: number(&work, 0),
            rollbacks: number(&work, 1),
            returned: number(&work, 2),
            changed: number(&work, 3),
            deadlocks: number(&work, 4),
            log_bytes: number(&log, 0),
            flushes: number(&log, 1),
            log_used: number(&log, 2),
            log_capacity: number(&log, 3),
            checkpoint: checkpoint_line(&checkpoint),
            locks_waiting: number(&locks, 0),
            lock_waits: number(&locks, 1),
            version_bytes: number(&garbage, 0),
            held_back_epochs: number(&garbage, 1),
            responses,
            sessions,
        })
    }
}

fn session(row: &SimpleQueryRow) -> SessionLine {
    let wait = match (row.get(4), row.get(5)) {
        // What an idle session waits for says its state.
        (Some("Client") | None, _) => String::new(),
        (Some(kind), event) => format!("{kind}: {}", event.unwrap_or_default()),
    };
    SessionLine {
        pid: text(row, 0),
        user: text(row, 1),
        application: text(row, 2),
        state: text(row, 3),
        wait,
        seconds: row.get(6).and_then(|seconds| seconds.parse().ok()).unwrap_or(0.0),
        query: text(row, 7).split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

fn checkpoint_line(row: &SimpleQueryRow) -> String {
    let failed = number(row, 5);
    if row.get(0) == Some("t") {
        format!("running, {} of {} pages", number(row, 1), number(row, 2))
    } else if failed > 0 {
        format!("{failed} attempts failed")
    } else {
        format!("{} done, {} pages are dirty", number(row, 4), number(row, 3))
    }
}

/// What is shown: two moments, and the curve of those before.
struct View {
    before: Sample,
    now: Sample,
    /// Commits per second.
    history: VecDeque<u64>,
}

impl View {
    fn new(first: Sample) -> View {
        View { before: first.clone(), now: first, history: VecDeque::new() }
    }

    fn advance(&mut self, next: Sample) {
        self.before = std::mem::replace(&mut self.now, next);
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(self.rate(|sample| sample.commits) as u64);
    }

    fn rate(&self, of: impl Fn(&Sample) -> u64) -> f64 {
        let seconds = (self.now.at - self.before.at).as_secs_f64();
        if seconds > 0.0 { of(&self.now).saturating_sub(of(&self.before)) as f64 / seconds } else { 0.0 }
    }
}

fn scaled(value: f64) -> String {
    match value {
        v if v >= 1e7 => format!("{:.1} M", v / 1e6),
        v if v >= 1e4 => format!("{:.1} K", v / 1e3),
        v => format!("{v:.0}"),
    }
}

fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let at = (0..units.len() - 1).find(|&at| value < 1024f64.powi(at as i32 + 1)).unwrap_or(units.len() - 1);
    let scaled = value / 1024f64.powi(at as i32);
    if at == 0 { format!("{scaled:.0} B") } else { format!("{scaled:.1} {}", units[at]) }
}

fn latency(responses: &Responses, share: f64) -> String {
    match responses.quantile_us(share) {
        None if responses.count() == 0 => "-".to_owned(),
        None => format!("> {} s", (1u64 << (BUCKETS - 2)) / 1_000_000),
        Some(us) if us >= 1_000_000 => format!("< {:.1} s", us as f64 / 1e6),
        Some(us) if us >= 1000 => format!("< {:.1} ms", us as f64 / 1e3),
        Some(us) => format!("< {us} us"),
    }
}

fn draw(frame: &mut Frame<'_>, view: &View) {
    let [head, curve, sessions] =
        Layout::vertical([Constraint::Length(7), Constraint::Length(5), Constraint::Min(3)]).areas(frame.area());
    let [rates, times, state] = Layout::horizontal([Constraint::Ratio(1, 3); 3]).areas(head);
    panel(frame, rates, "per second", work_lines(view));
    panel(frame, times, "response times", time_lines(view));
    panel(frame, state, "log, checkpoint, versions", state_lines(view));
    let points: Vec<u64> = view.history.iter().rev().take(usize::from(curve.width)).rev().copied().collect();
    frame.render_widget(Sparkline::default().block(Block::bordered().title("commits per second")).data(&points), curve);
    draw_sessions(frame, sessions, view);
}

fn panel(frame: &mut Frame<'_>, area: Rect, title: &'static str, lines: Vec<String>) {
    let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), area);
}

fn work_lines(view: &View) -> Vec<String> {
    let of = |name: &str, of: fn(&Sample) -> u64| format!("{name:<10} {:>12}", scaled(view.rate(of)));
    vec![
        of("commits", |s| s.commits),
        of("rollbacks", |s| s.rollbacks),
        of("rows given", |s| s.returned),
        of("changed", |s| s.changed),
        of("lock waits", |s| s.lock_waits),
    ]
}

fn time_lines(view: &View) -> Vec<String> {
    let responses = view.now.responses.since(&view.before.responses);
    let mut lines: Vec<String> = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("worst", 1.0)]
        .map(|(name, share)| format!("{name:<10} {:>12}", latency(&responses, share)))
        .to_vec();
    lines.push(format!("{:<10} {:>12}", "waiting", format!("{} locks", view.now.locks_waiting)));
    lines
}

fn state_lines(view: &View) -> Vec<String> {
    let now = &view.now;
    let percent = now.log_used * 100 / now.log_capacity.max(1);
    vec![
        format!("log        {}/s, {} flushes/s", bytes(view.rate(|s| s.log_bytes)), scaled(view.rate(|s| s.flushes))),
        format!("log used   {} of {} ({percent}%)", bytes(now.log_used as f64), bytes(now.log_capacity as f64)),
        format!("checkpoint {}", now.checkpoint),
        format!("versions   {}, held {} epochs", bytes(now.version_bytes as f64), now.held_back_epochs),
        format!("deadlocks  {}", now.deadlocks),
    ]
}

fn draw_sessions(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let all = &view.now.sessions;
    let active = all.iter().filter(|session| session.state == "active").count();
    let row = |s: &SessionLine| {
        let seconds = format!("{:.1}", s.seconds);
        let cells = [&s.pid, &s.user, &s.application, &s.state, &s.wait, &seconds, &s.query];
        Row::new(cells.map(|cell| cell.chars().filter(|c| !c.is_control()).collect::<String>()))
    };
    let widths = [6, 12, 16, 20, 22, 9].map(Constraint::Length).into_iter().chain([Constraint::Min(20)]);
    let head = Row::new(["pid", "user", "application", "state", "waits for", "seconds", "query"]);
    let title = format!("{} sessions, {active} active (q quits)", all.len());
    let table = Table::new(all.iter().map(row), widths)
        .header(head.style(Style::new().add_modifier(Modifier::BOLD)))
        .block(Block::bordered().title(title));
    frame.render_widget(table, area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::backend::TestBackend;

    fn sample(at: Instant, commits: u64) -> Sample {
        let waiting = SessionLine {
            pid: "7".into(),
            user: "ann".into(),
            application: "shop".into(),
            state: "active".into(),
            wait: "Lock: tuple".into(),
            seconds: 2.25,
            query: "update t set v = 1".into(),
        };
        let mut responses = Responses::default();
        responses.counts[7] = commits;
        responses.counts[11] = commits / 100;
        Sample {
            at,
            commits,
            rollbacks: 2,
            returned: 30_000_000 * (commits / 1000),
            changed: commits,
            deadlocks: 1,
            log_bytes: commits * 1024,
            flushes: commits / 10,
            log_used: 3 << 20,
            log_capacity: 64 << 20,
            checkpoint: "running, 4 of 9 pages".into(),
            locks_waiting: 1,
            lock_waits: 5,
            version_bytes: 1 << 20,
            held_back_epochs: 12,
            responses,
            sessions: vec![
                waiting,
                SessionLine { state: "idle".into(), query: "a\u{1b}[2J".into(), ..Default::default() },
            ],
        }
    }

    fn drawn(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        lines(&terminal).join("\n")
    }

    #[test]
    fn rates_and_sessions_are_shown() {
        let start = Instant::now();
        let mut view = View::new(sample(start, 1000));
        assert!(drawn(&view, 120, 30).contains("commits               0"), "nothing has happened yet");
        view.advance(sample(start + Duration::from_secs(2), 41_000));
        let text = drawn(&view, 120, 30);
        for part in [
            "commits          20.0 K",
            "rollbacks             0",
            "rows given      600.0 M",
            "p50            < 128 us",
            "worst          < 2.0 ms",
            "19.5 MiB/s, 2000 flushes/s",
            "3.0 MiB of 64.0 MiB (4%)",
            "running, 4 of 9 pages",
            "1.0 MiB, held 12 epochs",
            "2 sessions, 1 active",
            "Lock: tuple",
            "update t set v = 1",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(text.contains("a[2J") && !text.contains('\u{1b}'), "control characters of a query stay out");
    }

    #[test]
    fn any_size_is_drawn() {
        let start = Instant::now();
        let mut view = View::new(sample(start, 0));
        for round in 1..300 {
            view.advance(sample(start + Duration::from_millis(10 * round), round * 7));
        }
        assert_eq!(view.history.len(), HISTORY);
        for (width, height) in [(1, 1), (20, 5), (80, 24), (300, 100)] {
            drawn(&view, width, height);
        }
    }
}
