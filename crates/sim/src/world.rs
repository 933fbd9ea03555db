//! What happens to files, devices and time? Steps, faults, power cuts, and recoveries that are cut short themselves.

use crate::client::{Client, end_read};
use crate::dice::{Chance, Dice};
use crate::look::{SeenTables, Verdict, Wrong, check_rows, demand, is_committed, scan_all, table_of};
use crate::model::{Model, Own, TABLES, Tables};
use crate::plan::{Act, CLIENTS, Kind, Plan};
use freshet_engine::engine::{DurableWait, Engine, Options, Part};
use freshet_engine::ids::{Cts, DeviceId, Epoch};
use freshet_engine::inspect::{self, Subject};
use freshet_engine::io::Io;
use freshet_engine::io::mem::{Call, Fault, MemClock, MemIo};
use freshet_engine::log::group::GroupHeader;
use freshet_engine::planted::Point;
use freshet_engine::txn::{Isolation, Session};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// More steps than this without an end is a loop.
const SETTLE_STEPS_MAX: usize = 20_000;
/// Turns that a paced checkpoint may take to its end.
const PACED_MAX: usize = 500;
/// Recoveries that a power cut may interrupt, one after another.
const CUT_RECOVERIES_MAX: usize = 3;

/// What a run met, to be sure that it tries something.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Tally {
    pub acts: u64,
    pub commits: u64,
    pub acknowledged: u64,
    pub waits: u64,
    pub violations: u64,
    pub serializations: u64,
    pub deadlocks: u64,
    /// Transactions that went back to a savepoint.
    pub returns: u64,
    /// Foreign keys that were refused, and unique indexes that were not built.
    pub broken: u64,
    /// Changes of the schema.
    pub definitions: u64,
    pub refusals: u64,
    pub out_of_memory: u64,
    pub checkpoints: u64,
    pub log_failures: u64,
    pub recoveries: u64,
    pub cut_recoveries: u64,
    pub flips_refused: u64,
    pub flips_harmless: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        let pairs: [(&mut u64, u64); 18] = [
            (&mut self.acts, other.acts),
            (&mut self.commits, other.commits),
            (&mut self.acknowledged, other.acknowledged),
            (&mut self.waits, other.waits),
            (&mut self.violations, other.violations),
            (&mut self.serializations, other.serializations),
            (&mut self.deadlocks, other.deadlocks),
            (&mut self.returns, other.returns),
            (&mut self.broken, other.broken),
            (&mut self.definitions, other.definitions),
            (&mut self.refusals, other.refusals),
            (&mut self.out_of_memory, other.out_of_memory),
            (&mut self.checkpoints, other.checkpoints),
            (&mut self.log_failures, other.log_failures),
            (&mut self.recoveries, other.recoveries),
            (&mut self.cut_recoveries, other.cut_recoveries),
            (&mut self.flips_refused, other.flips_refused),
            (&mut self.flips_harmless, other.flips_harmless),
        ];
        pairs.into_iter().for_each(|(sum, more)| *sum += more);
    }
}

/// An answer that waits for durability, and the largest commit that it shows.
struct Answer {
    wait: DurableWait,
    shows: Cts,
}

/// Somebody who looks at the database while another commits.
#[derive(Default)]
pub struct Watcher {
    engine: Option<Engine>,
    session: Option<Session>,
    /// What its open transaction sees.
    snapshot: Option<Rc<Tables>>,
    latest: Rc<Tables>,
    may_read: bool,
    dice: Option<Dice>,
    dead: Vec<bool>,
    wrong: Option<Wrong>,
}

impl Watcher {
    /// A turn inside a commit: the background works, or the watcher reads.
    #[cfg_attr(not(feature = "planted"), expect(dead_code, reason = "turns inside a commit come with the feature"))]
    fn turn(&mut self, point: Point) {
        // A change in one go that has drawn nothing: whoever looks now sees what he would have seen before it.
        if point == Point::Copied {
            return;
        }
        let (Some(mut dice), Some(engine)) = (self.dice.take(), self.engine.clone()) else { return };
        if self.may_read && dice.one_in(2) {
            if let Err(Wrong(what)) = self.look() {
                self.wrong.get_or_insert(Wrong(format!("a watcher at {point:?}: {what}")));
            }
        } else {
            for _ in 0..dice.below(12) {
                let device = DeviceId(dice.below(self.dead.len() as u64) as u16);
                if !self.dead[usize::from(device.0)] {
                    engine.step_part(Part::Device(device));
                }
            }
        }
        self.dice = Some(dice);
    }

    /// Looks at the snapshot of the transaction that is open, or opens one.
    fn look(&mut self) -> Verdict {
        let Some(session) = &mut self.session else { return Ok(()) };
        if self.snapshot.is_none() {
            session.begin(Isolation::RepeatableRead, true);
            self.snapshot = Some(self.latest.clone());
        }
        session.begin_statement();
        if session.check_snapshot().is_err() {
            session.rollback();
            self.snapshot = None;
            return Ok(());
        }
        let snapshot = self.snapshot.as_ref().expect("just set");
        for (at, name) in TABLES.iter().enumerate() {
            match Own::default().view(snapshot, &self.latest, at) {
                Some(rows) => check_rows(session, at, &rows)?,
                None => demand!(table_of(session, at).is_none(), "table {name} is there"),
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Verdict {
        match (&mut self.session, self.snapshot.take()) {
            (Some(session), Some(_)) if session.check_snapshot().is_err() => {
                session.rollback();
                Ok(())
            }
            (Some(session), Some(_)) => end_read(session),
            _ => Ok(()),
        }
    }
}

/// Everything of one run.
pub struct World {
    pub plan: Plan,
    pub model: Model,
    pub clients: Vec<Client>,
    pub tally: Tally,
    /// Something was planned that excuses a failing log.
    pub may_fail: bool,
    io: MemIo,
    clock: Arc<MemClock>,
    engine: Option<Engine>,
    watcher: Rc<RefCell<Watcher>>,
    answers: Vec<Answer>,
    dead: Vec<bool>,
    has_failed: bool,
    history: Option<Vec<String>>,
    /// Openings so far.
    life: u64,
}

impl World {
    /// A new database. With a `history` it says what happens.
    pub fn new(plan: &Plan, with_history: bool) -> World {
        World {
            plan: plan.clone(),
            model: Model::new(),
            clients: Vec::new(),
            tally: Tally::default(),
            may_fail: false,
            io: MemIo::seeded(plan.seed),
            clock: MemClock::new(),
            engine: None,
            watcher: Rc::default(),
            answers: Vec::new(),
            dead: vec![false; usize::from(plan.devices)],
            has_failed: false,
            history: with_history.then(Vec::new),
            life: 0,
        }
    }

    pub fn say(&mut self, what: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            history.push(what());
        }
    }

    pub fn history(&mut self) -> Vec<String> {
        self.history.take().unwrap_or_default()
    }

    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("opened before the first act, and by every recovery")
    }

    pub fn connect(&self) -> Verdict<Session> {
        self.engine().connect().map_err(|e| Wrong(format!("no session: {e}")))
    }

    // ---- the run

    pub fn run(&mut self, acts: &[Act]) -> Verdict {
        let mut dice = Dice(self.plan.seed ^ 0x0be9);
        self.recover(&mut dice)?;
        for (number, act) in acts.iter().enumerate() {
            self.tally.acts += 1;
            self.say(|| format!("{number}: {:?}", act.kind));
            self.act(act)?;
            self.after_act(&mut Dice(act.seed ^ 0xaf7e4))?;
        }
        self.finish(&mut dice)
    }

    fn act(&mut self, act: &Act) -> Verdict {
        let mut dice = Dice(act.seed);
        match act.kind {
            Kind::Step(part) => (0..1 + dice.below(8)).for_each(|_| self.step(part)),
            Kind::Settle => self.settle()?,
            Kind::Statement(who) => self.statement(who, &mut dice)?,
            Kind::Commit(who) => self.commit(who, &mut dice)?,
            Kind::Rollback(who) => self.rollback(who),
            Kind::Read(who) => {
                self.read(who)?;
                self.read_short(who, &mut dice)?;
            }
            Kind::Watch => self.watch(&mut dice)?,
            Kind::Checkpoint => self.engine().request_checkpoint_within(Duration::ZERO),
            Kind::Time => self.clock.advance_us([100, 3_000, 11_000, 2_000_000][dice.below(4) as usize]),
            Kind::Wall => self.clock.set_wall_offset_us(dice.below(2_000_000_000) as i64 - 1_000_000_000),
            Kind::Fault => self.plan_fault(&mut dice),
            Kind::Space => self.plan_space(&mut dice),
            Kind::Dead(device) => self.dead[usize::from(device.0)] = true,
            Kind::CutPower => {
                self.may_fail = true;
                self.io.cut_power_after(self.io.operations() + dice.below(40));
            }
            Kind::Crash => self.crash(&mut dice)?,
            Kind::Kill => self.kill(&mut dice)?,
        }
        Ok(())
    }

    fn step(&mut self, part: Part) {
        if let Part::Device(device) = part
            && self.dead[usize::from(device.0)]
        {
            return;
        }
        self.engine().step_part(part);
    }

    /// The background works until nothing is left to do; devices that are dead do not.
    pub fn settle(&mut self) -> Verdict {
        let devices = (0..self.plan.devices).map(|d| Part::Device(DeviceId(d)));
        let alive = devices.filter(|p| !matches!(p, Part::Device(d) if self.dead[usize::from(d.0)]));
        let parts: Vec<Part> = alive.chain([Part::Prepare, Part::Garbage, Part::Checkpoint]).collect();
        for _ in 0..SETTLE_STEPS_MAX {
            // Not `any`: all of them have to have nothing to do.
            let worked = parts.iter().filter(|part| self.engine().step_part(**part)).count();
            if worked == 0 {
                return Ok(());
            }
        }
        Err(Wrong("the background never comes to rest".into()))
    }

    fn after_act(&mut self, dice: &mut Dice) -> Verdict {
        self.poll_answers();
        if self.io.is_dark() {
            self.say(|| "the power has failed".into());
            return self.crash(dice);
        }
        if self.has_failed || self.engine().failure().is_none() {
            return Ok(());
        }
        let reason = self.engine().failure().unwrap_or_default();
        demand!(self.may_fail, "{reason}, and nothing was wrong with any device");
        self.say(|| reason);
        self.has_failed = true;
        self.tally.log_failures += 1;
        match dice.below(3) {
            0 => self.kill(dice),
            1 => self.crash(dice),
            _ => Ok(()),
        }
    }

    /// Lets everything end, and looks at what is left; then once more after a crash.
    fn finish(&mut self, dice: &mut Dice) -> Verdict {
        self.say(|| "the end".into());
        self.io.free_space();
        // The log tries again after a while.
        self.clock.advance_us(2_000_000);
        if dice.one_in(2) || self.has_failed || self.dead.contains(&true) || self.may_fail {
            self.crash(dice)?;
        }
        self.check_quiet()?;
        self.crash(dice)?;
        self.check_quiet()
    }

    fn check_quiet(&mut self) -> Verdict {
        (0..self.clients.len()).for_each(|who| self.rollback(who));
        self.clients.clear();
        self.watcher.borrow_mut().end()?;
        self.settle()?;
        for _ in 0..PACED_MAX {
            if !self.engine().checkpoint_progress().running {
                break;
            }
            // It waits for its time.
            self.clock.advance_us(20_000);
            self.settle()?;
        }
        self.poll_answers();
        demand!(self.answers.is_empty(), "{} answers wait for ever", self.answers.len());
        self.check_committed()?;
        let schema = self.engine().schema();
        for (at, table) in self.model.latest().iter().enumerate() {
            let (Some(model), Some(table)) = (table, schema.table(TABLES[at])) else { continue };
            for index in &table.indexes {
                let (entries, rows) = (index.entries(), model.rows.len() as u64);
                demand!(entries == rows, "{} has {entries} entries for {rows} rows", index.def.name);
            }
        }
        self.watcher.borrow_mut().session = None;
        let stats = self.engine().stats();
        demand!(stats.version_bytes == 0, "versions are left when all is quiet: {stats:?}");
        self.connect_all()
    }

    // ---- answers

    /// An answer that shows commits up to `shows` leaves when `cts` is durable.
    pub fn await_durable(&mut self, cts: Cts, shows: Cts) {
        let wait = self.engine().wait_durable(cts);
        self.answers.push(Answer { wait, shows });
    }

    fn poll_answers(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        let (model, tally) = (&mut self.model, &mut self.tally);
        self.answers.retain_mut(|answer| match Pin::new(&mut answer.wait).poll(&mut context) {
            Poll::Ready(Ok(())) => {
                model.acknowledge(answer.shows);
                tally.acknowledged += 1;
                false
            }
            Poll::Ready(Err(_)) => false,
            Poll::Pending => true,
        });
    }

    // ---- turns inside a commit

    /// Does `work`, in which the rest of the world may take turns.
    pub fn with_turns<T>(&mut self, on: bool, seed: u64, may_read: bool, work: impl FnOnce(&mut World) -> T) -> T {
        if !on {
            return work(self);
        }
        {
            let mut watcher = self.watcher.borrow_mut();
            watcher.latest = self.model.latest().clone();
            watcher.may_read = may_read;
            watcher.dead.clone_from(&self.dead);
            watcher.dice = Some(Dice(seed));
        }
        set_turn(Some(self.watcher.clone()));
        let done = work(self);
        set_turn(None);
        done
    }

    pub fn watched(&mut self) -> Verdict {
        self.watcher.borrow_mut().wrong.take().map_or(Ok(()), Err)
    }

    fn watch(&mut self, dice: &mut Dice) -> Verdict {
        let mut watcher = self.watcher.borrow_mut();
        watcher.latest = self.model.latest().clone();
        if watcher.snapshot.is_some() {
            watcher.look().map_err(|wrong| Wrong(format!("a watcher later: {}", wrong.0)))?;
        }
        if dice.one_in(2) { watcher.end() } else { Ok(()) }
    }

    // ---- trouble

    fn plan_fault(&mut self, dice: &mut Dice) {
        let (call, fault) = match dice.below(11) {
            0 | 1 => (Call::Sync, Fault::Eio),
            2 => (Call::Sync, Fault::Enospc),
            3 => (Call::Write, Fault::Eio),
            4 => (Call::Write, Fault::Enospc),
            5..=7 => (Call::Name, Fault::Eio),
            _ => (Call::Write, Fault::Short(dice.below(6000) as usize)),
        };
        let nth = dice.below(20);
        self.may_fail = true;
        if dice.one_in(3) {
            // One device fails, the others do not.
            let device = self.plan.first_log(self.life) + dice.below(u64::from(self.plan.devices));
            let dir = Plan::log_dir(device);
            self.say(|| format!("  {call:?} {nth} from now in {} meets {fault:?}", dir.display()));
            self.io.plan_fault_in(&dir, call, nth, fault);
        } else {
            self.say(|| format!("  {call:?} {nth} from now meets {fault:?}"));
            self.io.plan_fault(call, nth, fault);
        }
    }

    fn plan_space(&mut self, dice: &mut Dice) {
        // A group never grows a file; what a full file system may fail is preparing and imaging.
        match dice.below(6) {
            0 | 1 => self.io.free_space(),
            2 => {
                // One device is full, the others are not.
                let device = self.plan.first_log(self.life) + dice.below(u64::from(self.plan.devices));
                let dir = Plan::log_dir(device);
                self.say(|| format!("  {} is full", dir.display()));
                self.io.fill_dir(&dir);
            }
            _ => self.io.set_space_bytes(self.io.used_bytes() + dice.below(500 << 10)),
        }
    }

    // ---- ends and beginnings

    fn end_process(&mut self) {
        self.tally.checkpoints += self.engine.as_ref().map_or(0, |e| e.stats().checkpoints);
        self.poll_answers();
        self.answers.clear();
        *self.watcher.borrow_mut() = Watcher::default();
        self.clients.clear();
        self.engine = None;
        self.has_failed = false;
        self.may_fail = false;
        self.dead.fill(false);
        self.io.clear_faults();
        self.io.free_space();
    }

    fn kill(&mut self, dice: &mut Dice) -> Verdict {
        self.say(|| "the process is killed".into());
        self.end_process();
        self.io.keep_power();
        self.recover(dice)
    }

    fn crash(&mut self, dice: &mut Dice) -> Verdict {
        let seed = dice.next_u64();
        self.io.cut_power_after(0);
        self.end_process();
        self.io = self.io.crash(seed);
        if dice.one_in(2) {
            self.flip_bits(dice)?;
        }
        self.recover(dice)
    }

    /// Opens the database, now and then with a power cut on the way, and compares what is there with what was committed.
    fn recover(&mut self, dice: &mut Dice) -> Verdict {
        self.tally.recoveries += 1;
        self.life += 1;
        for _ in 0..CUT_RECOVERIES_MAX {
            if !dice.one_in(4) {
                break;
            }
            self.tally.cut_recoveries += 1;
            if dice.one_in(3) {
                self.meet_fault(dice);
            } else {
                self.cut_recovery(dice)?;
            }
        }
        let other = dice.one_in(3).then(|| (self.io.fork(), 1 + dice.below(3) as usize, 1 + dice.below(1 << 32)));
        // Buffers of more threads may not fit.
        let other =
            other.map(|(io, threads, order)| (io, if self.plan.has_little_memory() { 1 } else { threads }, order));
        let inspected = dice.one_in(3).then(|| self.io.fork());
        let engine = self.open(&self.io, 1, 0).map_err(|e| Wrong(format!("the database does not open: {e}")))?;
        let seen = look_at(&engine)?;
        if let Some((io, threads, order)) = other {
            let other =
                self.open(&io, threads, order).map_err(|e| Wrong(format!("{threads} threads cannot open it: {e}")))?;
            let differing = look_at(&other)?;
            demand!(differing == seen, "{threads} threads recover {differing:?}, one {seen:?}");
        }
        if let Some(io) = inspected.filter(|_| self.model.acknowledged > Cts::ZERO) {
            let found = self.inspect(io);
            demand!(found.is_empty(), "a check finds damage in what opens: {found}");
        }
        self.engine = Some(engine);
        let oldest = self.model.index_at(self.model.acknowledged);
        let at = self.find(&seen, oldest)?;
        self.model.states.truncate(at + 1);
        self.model.acknowledged = self.model.latest_cts();
        self.model.deferred = Cts::ZERO;
        let found = self.model.latest_cts();
        self.say(|| format!("opened as of {found:?}"));
        self.check_committed()?;
        self.connect_all()
    }

    fn cut_recovery(&mut self, dice: &mut Dice) -> Verdict {
        self.io.cut_power_after(self.io.operations() + dice.below(30));
        let opened = self.open(&self.io, 1, 0).map(drop);
        let seed = dice.next_u64();
        if let (Err(reason), false) = (&opened, self.io.is_dark()) {
            return Err(Wrong(format!("the database does not open: {reason}")));
        }
        self.say(|| "the power fails during a recovery".into());
        self.io = self.io.crash(seed);
        Ok(())
    }

    /// A recovery meets a device's error, and the process ends; what it wrote stays in the page cache, until the power fails too.
    fn meet_fault(&mut self, dice: &mut Dice) {
        let call = [Call::Sync, Call::Write, Call::Read, Call::Name][dice.below(4) as usize];
        self.io.plan_fault(call, dice.below(12), Fault::Eio);
        let opened = self.open(&self.io, 1, 0).map(drop);
        self.io.clear_faults();
        self.say(|| format!("a recovery meets an error of {call:?}: {opened:?}"));
        if dice.one_in(2) {
            self.io = self.io.crash(dice.next_u64());
        }
    }

    fn connect_all(&mut self) -> Verdict {
        self.clients = (0..CLIENTS).map(|_| Ok(Client::new(self.connect()?))).collect::<Verdict<_>>()?;
        let session = self.connect()?;
        let watcher = Watcher { engine: self.engine.clone(), session: Some(session), ..Watcher::default() };
        *self.watcher.borrow_mut() = watcher;
        Ok(())
    }

    /// What an offline check calls damage; nothing if all is well.
    fn inspect(&self, io: MemIo) -> String {
        let mut options = self.options(&io);
        // One that is about to join is nothing to be checked yet.
        options.log_dirs.retain(|dir| !self.plan.moves || io.exists(dir).unwrap_or(false));
        if options.log_dirs.is_empty() {
            options.log_dirs.extend(options.retired_log_dirs.pop());
        }
        let subject = Subject {
            data_dir: options.data_dir,
            log_dirs: options.log_dirs,
            retired_log_dirs: options.retired_log_dirs,
            backup_dirs: Vec::new(),
        };
        let io: Arc<dyn Io> = Arc::new(io);
        match inspect::check(&io, &subject, &mut |_| {}) {
            Ok(report) if !report.is_damaged() => String::new(),
            Ok(report) => format!("{:?}", report.findings),
            Err(error) => error.to_string(),
        }
    }

    /// Directories that no life came to use are not there to retire.
    fn options(&self, io: &MemIo) -> Options {
        let mut options = self.plan.options(self.life);
        options.retired_log_dirs.retain(|dir| io.exists(dir).unwrap_or(false));
        options
    }

    fn open(&self, io: &MemIo, threads: usize, order: u64) -> Result<Engine, String> {
        let options = Options { recovery_threads: threads, recovery_seed: order, ..self.options(io) };
        Engine::open_with(Arc::new(io.clone()), self.clock.clone(), options).map_err(|e| e.to_string())
    }

    /// The state that it is; of equal ones the oldest, so that nothing is taken for durable that may not be.
    fn find(&self, seen: &SeenTables, oldest: usize) -> Verdict<usize> {
        let states = &self.model.states;
        if let Some(at) = self.model.recoverable(oldest).filter(|at| is_state(seen, &states[*at].1)).last() {
            return Ok(at);
        }
        let acknowledged = self.model.acknowledged;
        let older = (0..oldest).rev().find(|at| is_state(seen, &states[*at].1));
        let within = (oldest..states.len()).rev().find(|at| is_state(seen, &states[*at].1));
        Err(Wrong(match (within, older) {
            (Some(at), _) => {
                format!("half an epoch is there: up to {:?} of {:?}", states[at].0, self.model.latest_cts())
            }
            (_, Some(at)) => format!("{acknowledged:?} was acknowledged, {:?} is there", states[at].0),
            _ => format!("{seen:?} is there, which was never committed; acknowledged is {acknowledged:?}"),
        }))
    }

    // ---- decay

    /// One bit of what was written flips, in a copy of the world: refused, or nothing is missing that can be known to be.
    fn flip_bits(&mut self, dice: &mut Dice) -> Verdict {
        let io = self.io.fork();
        let names = io.names();
        if names.is_empty() {
            return Ok(());
        }
        let path = names[dice.below(names.len() as u64) as usize].clone();
        let blocks = io.written_blocks(&path).unwrap_or_default();
        if blocks.is_empty() {
            return Ok(());
        }
        // The end of a log is where damage and a torn tail look alike.
        let block =
            if dice.one_in(2) { blocks[dice.below(blocks.len() as u64) as usize] } else { blocks[blocks.len() - 1] };
        let offset = block + if dice.one_in(2) { dice.below(200) } else { dice.below(4096) };
        // Beyond the file's end the flip changes nothing.
        io.flip_bit(&path, offset, dice.below(8) as u32).map_err(|e| Wrong(format!("no file to damage: {e}")))?;
        let witnessed = largest_witness(&io);
        match self.open(&io, 1, 0) {
            Err(reason) => {
                self.tally.flips_refused += 1;
                let is_told = !self.inspect(io).is_empty();
                demand!(is_told, "a check finds nothing at {offset} of {}, an open: {reason}", path.display());
            }
            Ok(engine) => {
                self.tally.flips_harmless += 1;
                let acknowledged = self.model.acknowledged.epoch();
                let old = Cts::last_of(Epoch(acknowledged.0.saturating_sub(2)));
                let oldest = self.model.index_at(old.max(Cts::last_of(witnessed)).min(self.model.acknowledged));
                let served = look_at(&engine).and_then(|seen| self.find(&seen, oldest));
                served.map_err(|wrong| {
                    Wrong(format!("a bit flipped at {offset} of {} is served: {}", path.display(), wrong.0))
                })?;
            }
        }
        Ok(())
    }
}

/// The largest horizon that any group of any log says was acknowledged: read here, so that the engine is not asked about itself.
fn largest_witness(io: &MemIo) -> Epoch {
    let mut largest = Epoch(0);
    for path in io.names().iter().filter(|p| p.extension().is_some_and(|e| e == "seg")) {
        let number = path.file_stem().and_then(|s| s.to_str()?.strip_prefix("log-")?.parse::<u64>().ok());
        let Ok(bytes) = io.contents(path) else { continue };
        for offset in io.written_blocks(path).unwrap_or_default() {
            let Some(block) = bytes.get(offset as usize..offset as usize + 4096) else { continue };
            if let Ok(header) = GroupHeader::decode(block)
                && (Some(header.segment.0), header.offset) == (number, offset)
                && body_checks(&header, &bytes)
            {
                largest = largest.max(header.witness);
            }
        }
    }
    largest
}

fn body_checks(header: &GroupHeader, file: &[u8]) -> bool {
    let start = header.offset as usize + header.bytes();
    file.get(start..start + header.body_bytes as usize).is_some_and(|body| crc32c::crc32c(body) == header.body_crc)
}

/// Everything that a fresh session sees.
fn look_at(engine: &Engine) -> Verdict<SeenTables> {
    let mut session = engine.connect().map_err(|e| Wrong(format!("no session: {e}")))?;
    session.begin(Isolation::RepeatableRead, true);
    session.begin_statement();
    let seen = scan_all(&mut session)?;
    end_read(&mut session)?;
    Ok(seen)
}

pub fn is_state(seen: &SeenTables, state: &Tables) -> bool {
    seen.iter().zip(state).all(|(seen, table)| match (seen, table) {
        (Some(seen), Some(table)) => seen.is(&table.def) && is_committed(&seen.rows, &table.rows),
        (None, None) => true,
        _ => false,
    })
}

#[cfg(feature = "planted")]
fn set_turn(watcher: Option<Rc<RefCell<Watcher>>>) {
    let turn = watcher.map(|watcher| Box::new(move |point| watcher.borrow_mut().turn(point)) as Box<dyn FnMut(Point)>);
    freshet_engine::planted::on_turn(turn);
}

/// Without the feature the engine gives no turns.
#[cfg(not(feature = "planted"))]
fn set_turn(_: Option<Rc<RefCell<Watcher>>>) {}
