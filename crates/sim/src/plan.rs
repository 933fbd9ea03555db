//! What will happen? A seed becomes a plan: a world, and a list of acts.
//!
//! 1. The list is complete before anything runs, and every act draws from a seed of its own. So an act can be left out, which is how a failing
//!    schedule is made short, and the others stay what they were.
//! 2. Each plan favours other acts (swarm testing: Groce et al., ISSTA 2012): a schedule that does a little of everything never fills the log.

use crate::dice::{Chance, Dice};
use freshet_engine::engine::{Options, Part};
use freshet_engine::ids::DeviceId;
use std::path::PathBuf;

/// Sessions of a schedule.
pub const CLIENTS: usize = 4;

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The background takes a step.
    Step(Part),
    /// The background works until nothing is left to do.
    Settle,
    /// A session runs a statement of its transaction, or begins one.
    Statement(usize),
    Commit(usize),
    Rollback(usize),
    /// A read at the durable horizon.
    Read(usize),
    /// A snapshot that was taken inside a commit is looked at again.
    Watch,
    Checkpoint,
    /// Time passes.
    Time,
    /// Somebody sets the wall clock.
    Wall,
    /// A coming call meets an error.
    Fault,
    /// The file system is nearly full, or has space again.
    Space,
    /// A device stops answering.
    Dead(DeviceId),
    /// The power will fail during a coming operation.
    CutPower,
    /// The power fails now.
    Crash,
    /// The process ends now; what it wrote stays in the page cache.
    Kill,
}

#[derive(Clone, Copy, Debug)]
pub struct Act {
    pub kind: Kind,
    pub seed: u64,
}

/// A world, and what happens in it.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub devices: u16,
    /// Log directories join and leave from life to life.
    pub moves: bool,
    pub segments: u64,
    /// The longest note in bytes.
    pub note_bytes: u64,
    /// Commits in which the rest of the world takes turns: one in so many.
    pub turns: u64,
    /// Answers at pre-commit: one in so many.
    pub deferred: u64,
    pub ddl: bool,
    pub savepoints: bool,
    /// Rows of one table refer to another's.
    pub keys: bool,
    /// Whether they do is looked at when the transaction commits.
    pub deferred_keys: bool,
    /// Some transactions are SERIALIZABLE.
    pub serializable: bool,
    /// Little where it is to be refused.
    pub memory_limit_bytes: u64,
    /// Directories for images: the data directory is the first.
    pub backups: u64,
    pub image_segment_bytes: u64,
    pub checkpoint_bytes_per_s: u64,
    pub acts: Vec<Act>,
}

impl Plan {
    pub fn of(seed: u64) -> Plan {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed);
        let devices = 1 + dice.below(3) as u16;
        let mut plan = Plan {
            seed,
            devices,
            moves: Dice(seed ^ 0x30ce5).one_in(3),
            segments: 4 + dice.below(3),
            note_bytes: [40, 400, 3000, 3000, 40_000][dice.below(5) as usize],
            turns: 1 + dice.below(6),
            deferred: [2, 4, 1000][dice.below(3) as usize],
            ddl: !dice.one_in(3),
            savepoints: Dice(seed ^ 0x5a7ed).one_in(2),
            keys: Dice(seed ^ 0xf0_4e16).one_in(2),
            deferred_keys: Dice(seed ^ 0xdefe4).one_in(3),
            serializable: Dice(seed ^ 0x5e41a1).one_in(2),
            memory_limit_bytes: if dice.one_in(4) {
                little_memory(devices) + dice.below(3 << 20)
            } else {
                MEMORY_BYTES
            },
            backups: 1 + dice.below(3),
            image_segment_bytes: [4 << 10, 100 << 10, 400 << 10][dice.below(3) as usize],
            checkpoint_bytes_per_s: [0, 0, 1 << 20][dice.below(3) as usize],
            acts: Vec::new(),
        };
        let count = 80 + dice.below(320);
        let mut draw = Draw::new(&mut dice, devices);
        plan.acts = (0..count).map(|_| draw.act(&mut dice)).collect();
        plan
    }

    /// Whether transactions are mostly large.
    pub fn is_bulky(&self) -> bool {
        self.note_bytes > 10_000
    }

    pub fn has_little_memory(&self) -> bool {
        self.memory_limit_bytes < MEMORY_BYTES
    }

    /// The first of the log directories of a life: those before it have left.
    pub fn first_log(&self, life: u64) -> u64 {
        let mut dice = Dice(self.seed ^ 0x10_60);
        (0..life).filter(|_| dice.one_in(3) && self.moves).count() as u64
    }

    pub fn log_dir(number: u64) -> PathBuf {
        PathBuf::from(format!("/log{number}"))
    }

    /// Tiny segments, so that the log goes round. Each life has image directories of its own choice.
    pub fn options(&self, life: u64) -> Options {
        let mut dice = Dice(self.seed ^ life.wrapping_mul(0xda94_2042_e4dd_58b5));
        let mut backups: Vec<PathBuf> =
            ["/db", "/images1", "/images2"][..self.backups as usize].iter().map(PathBuf::from).collect();
        if backups.len() > 1 && dice.one_in(3) {
            backups.remove(dice.below(backups.len() as u64) as usize);
        }
        let first = self.first_log(life);
        Options {
            log_dirs: (first..first + u64::from(self.devices)).map(Plan::log_dir).collect(),
            retired_log_dirs: (0..first).map(Plan::log_dir).collect(),
            memory_limit_bytes: self.memory_limit_bytes,
            stage_limit_bytes: 160 << 10,
            segment_bytes: SEGMENT_BYTES,
            log_size_bytes: SEGMENT_BYTES * self.segments * u64::from(self.devices),
            sessions_max: 16,
            backup_dirs: backups,
            checkpoint_threads: 1 + dice.below(2) as usize,
            image_segment_bytes: self.image_segment_bytes,
            checkpoint_bytes_per_s: self.checkpoint_bytes_per_s,
            ..Options::small("/db")
        }
    }
}

/// What an empty database needs with so many devices' buffers, and room for a few pages.
fn little_memory(devices: u16) -> u64 {
    (1400 << 10) + (800 << 10) * u64::from(devices)
}

/// More than any schedule takes.
const MEMORY_BYTES: u64 = 32 << 20;

/// Hardly more than the staging limit: a few workers a device.
const SEGMENT_BYTES: u64 = 208 << 10;

/// How likely each act is in one plan.
struct Draw {
    weights: [u32; 16],
    parts: Vec<(Part, u32)>,
    devices: u16,
}

impl Draw {
    fn new(dice: &mut Dice, devices: u16) -> Draw {
        // step, settle, statement, commit, rollback, read, watch, checkpoint, time, wall, fault, space, dead, cut, crash, kill
        let mut weights = [60, 8, 70, 34, 3, 10, 6, 4, 6, 1, 2, 1, 1, 2, 1, 1].map(|w: u32| w * 4);
        for weight in &mut weights {
            *weight = match dice.below(6) {
                0 => *weight / 4,
                1 => *weight * 3,
                _ => *weight,
            };
        }
        // Most schedules leave some kinds of trouble out, or nothing would live long enough to go wrong.
        for weight in &mut weights[9..] {
            if dice.one_in(2) {
                *weight = 0;
            }
        }
        let devices_of = |d: u16| Part::Device(DeviceId(d));
        let mut parts: Vec<(Part, u32)> =
            (0..devices).map(|d| (devices_of(d), [1, 8, 8][dice.below(3) as usize])).collect();
        parts.extend(
            [(Part::Prepare, 4), (Part::Garbage, 3), (Part::Checkpoint, 4)]
                .map(|(p, w)| (p, w * [0, 1, 1, 2][dice.below(4) as usize])),
        );
        Draw { weights, parts, devices }
    }

    fn act(&mut self, dice: &mut Dice) -> Act {
        let who = dice.below(CLIENTS as u64) as usize;
        let part = self.parts[dice.weighted(&self.parts.iter().map(|p| p.1).collect::<Vec<_>>())].0;
        let device = DeviceId(dice.below(u64::from(self.devices)) as u16);
        let kinds = [
            Kind::Step(part),
            Kind::Settle,
            Kind::Statement(who),
            Kind::Commit(who),
            Kind::Rollback(who),
            Kind::Read(who),
            Kind::Watch,
            Kind::Checkpoint,
            Kind::Time,
            Kind::Wall,
            Kind::Fault,
            Kind::Space,
            Kind::Dead(device),
            Kind::CutPower,
            Kind::Crash,
            Kind::Kill,
        ];
        Act { kind: kinds[dice.weighted(&self.weights)], seed: dice.next_u64() }
    }
}
