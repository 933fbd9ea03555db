//! What does a session say and hear? LISTEN, UNLISTEN and NOTIFY, which hold from the commit of the transaction they stand in.

use super::{Block, Session, SqlError, Step, done};
use crate::activity::Activity;
use crate::channel::{Mark, Notification};
use crate::route::ChannelCommand;
use freshet_engine::ids::Cts;
use std::sync::Arc;

impl Session {
    pub(super) fn channel_command(&mut self, command: &ChannelCommand) -> Result<Step, SqlError> {
        if let Some(hearing) = self.env.hearing.clone() {
            match command {
                ChannelCommand::Listen(channel) => {
                    self.has_listened = true;
                    hearing.ask_to_listen(channel);
                }
                ChannelCommand::Unlisten(channel) => hearing.ask_to_unlisten(channel.as_deref()),
                ChannelCommand::Notify { channel, payload } => {
                    hearing.say(channel, payload).inspect_err(|_| self.fail())?;
                }
            }
        }
        if self.block == Block::None {
            self.check_room().inspect_err(|_| self.settle_channels(false))?;
            self.settle_channels(true);
        }
        Ok(done(command.tag()))
    }

    pub(super) fn begin_saying(&self) {
        self.env.hearing.iter().filter(|hearing| hearing.is_busy()).for_each(|hearing| hearing.begin_statement());
    }

    /// A statement that runs again says what it says again.
    pub(super) fn say_anew(&self) {
        self.env.hearing.iter().filter(|hearing| hearing.is_busy()).for_each(|hearing| hearing.begin_run());
    }

    pub(super) fn said(&self) -> Mark {
        self.env.hearing.as_ref().map_or_else(Mark::default, |hearing| hearing.mark())
    }

    fn check_room(&self) -> Result<(), SqlError> {
        self.env.hearing.as_ref().map_or(Ok(()), |hearing| hearing.check_room(&self.cache.activity.channels))
    }

    /// Where its channels are, if the transaction that is about to commit has something to say; 54000, and its end, where there is no room for that.
    pub(super) fn speaking(&mut self) -> Result<Option<Arc<Activity>>, SqlError> {
        let Some(hearing) = self.env.hearing.as_ref().filter(|hearing| hearing.is_busy()) else { return Ok(None) };
        if !hearing.has_said() {
            return Ok(None);
        }
        if let Err(error) = self.check_room() {
            self.roll_back();
            self.leave_block(false);
            return Err(error);
        }
        Ok(Some(self.cache.activity.clone()))
    }

    /// The transaction has committed, as of `cts`.
    pub(super) fn hear_commit(&self, cts: Cts) {
        let hearing = self.env.hearing.as_ref().filter(|hearing| hearing.is_busy());
        hearing.into_iter().for_each(|hearing| hearing.commit(&self.cache.activity, cts));
    }

    /// A transaction is over; one that committed without having changed or read anything tells what it has to say here.
    pub(super) fn settle_channels(&self, committed: bool) {
        let Some(hearing) = self.env.hearing.as_ref().filter(|hearing| hearing.is_busy()) else { return };
        if committed {
            let _in_turn = self.cache.activity.channels.speak();
            hearing.commit(&self.cache.activity, Cts::ZERO);
        } else {
            hearing.roll_back();
        }
    }

    /// UNLISTEN *, outside of a transaction.
    pub(super) fn listen_no_more(&self) {
        self.env.hearing.iter().for_each(|hearing| hearing.ask_to_unlisten(None));
        self.settle_channels(true);
    }

    pub(super) fn leave_channels(&self) {
        self.env.hearing.iter().for_each(|hearing| hearing.leave(&self.cache.activity.channels));
    }

    /// What was said on channels that the session listens on, since it was asked last; nothing while a transaction is open. A program that is told of
    /// it must not act on it in a way that outlives the process before [`Notification::cts`] is durable.
    pub fn take_notifications(&mut self) -> Vec<Notification> {
        match &self.env.hearing {
            Some(hearing) if self.has_listened && self.block == Block::None && hearing.has_any() => {
                hearing.take(&self.cache.activity.channels)
            }
            _ => Vec::new(),
        }
    }
}
