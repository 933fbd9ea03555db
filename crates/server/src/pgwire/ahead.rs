//! Which rows will the statements of a pipeline want? Their keys are in the bytes at hand before their turn comes: so index entries and rows are
//! on their way to the cache while the statements before them run, and the cache misses of a pipeline overlap as those of a list of keys do.
//!
//! It only looks. A Bind that is broken, that names a statement which an earlier message of the pipeline makes, or that is skipped after an
//! error costs a look and nothing else; what it says is checked when its turn comes.
//!
//! 1. `seen` is where a frame begins, and `sights` are the Binds between the one whose turn it is and there, in their order.

use super::frame::{self, Bind, Format, Frame, Message};
use freshet_db::sql::{Prepared, Session, value};
use freshet_db::{Ahead, Type};
use freshet_engine::mem::touched::{note, note_start};
use std::collections::VecDeque;
use std::ops::Range;

/// Binds between the one whose turn it is and the furthest that is looked at; and those of them whose entry has had time to come.
const FAR: usize = 16;
const NEAR: usize = 8;

/// A Bind that was looked at: the key, and where in the input its statement's name is.
#[derive(Debug)]
struct Sight {
    key: i64,
    name: Range<u64>,
}

/// Places count the bytes of all that the session was ever sent.
#[derive(Default, Debug)]
pub struct Lookahead {
    /// Where the input begins now.
    taken: u64,
    /// How far was looked. Not beyond `taken`: not at all.
    seen: u64,
    /// `None`: nothing is known that could be loaded.
    sights: VecDeque<Option<Sight>>,
    /// The first ones, whose rows are on their way.
    near: usize,
}

impl Lookahead {
    /// Notes what every statement touches.
    pub fn note_touched(&self) {
        note(self);
        note_start(self.sights.as_slices().0);
    }

    /// Looks at the Binds in `input` behind its first frame, a whole Bind, whose turn it is.
    pub fn look<'s>(
        &mut self,
        bind: Frame,
        input: &[u8],
        message_bytes_max: usize,
        session: &'s Session,
        statement: impl Fn(&[u8]) -> Option<&'s Prepared>,
    ) {
        self.look_far(bind, input, message_bytes_max, |bind| {
            let prepared = statement(bind.statement)?;
            let key = key_of(bind, prepared)?;
            session.load_ahead(prepared, key, Ahead::Entry);
            Some(key)
        });
        self.look_near(input, |name, key| {
            if let Some(prepared) = statement(name) {
                session.load_ahead(prepared, key, Ahead::Row);
            }
        });
    }

    /// Calls `found` with each whole Bind up to the furthest that was not looked at yet; the key, if it has one.
    fn look_far(
        &mut self,
        bind: Frame,
        input: &[u8],
        message_bytes_max: usize,
        mut found: impl FnMut(&Bind<'_>) -> Option<i64>,
    ) {
        if self.seen <= self.taken {
            // Loading what is wanted now gains nothing.
            self.seen = self.taken + bind.length as u64;
            self.sights.push_back(None);
        }
        while self.sights.len() < FAR {
            let rest = &input[self.place(self.seen)..];
            let Ok(Some(frame)) = frame::peek(rest, message_bytes_max) else { return };
            let Some(bytes) = rest.get(..frame.length) else { return };
            if frame.kind == b'B' {
                let sight = match frame::decode(frame.kind, bytes) {
                    Ok(Message::Bind(bind)) => found(&bind).map(|key| {
                        let name = bind.place_of_statement();
                        Sight { key, name: self.seen + name.start as u64..self.seen + name.end as u64 }
                    }),
                    _ => None,
                };
                self.sights.push_back(sight);
            }
            self.seen += frame.length as u64;
        }
    }

    /// Calls `found` with the names and keys of those that came near.
    fn look_near(&mut self, input: &[u8], mut found: impl FnMut(&[u8], i64)) {
        while self.near < NEAR.min(self.sights.len()) {
            if let Some(Sight { key, name }) = &self.sights[self.near] {
                found(&input[self.place(name.start)..self.place(name.end)], *key);
            }
            self.near += 1;
        }
    }

    /// Where in the input that is.
    fn place(&self, at: u64) -> usize {
        (at - self.taken) as usize
    }

    /// The input's first frame has had its turn.
    #[inline]
    pub fn pass(&mut self, frame: Frame) {
        self.taken += frame.length as u64;
        if frame.kind == b'B' && self.sights.pop_front().is_some() {
            self.near = self.near.saturating_sub(1);
        }
    }
}

/// The integer that a statement of one row is bound to.
fn key_of(bind: &Bind<'_>, prepared: &Prepared) -> Option<i64> {
    let at = usize::from(prepared.key_parameter()?);
    let bytes = bind.parameters.iter().nth(at)??;
    match (
        bind.parameter_formats.covers(bind.parameters.count()).then(|| bind.parameter_formats.get(at))?,
        prepared.parameters.get(at)?,
    ) {
        (Format::Binary, Type::Int8) => Some(i64::from_be_bytes(bytes.try_into().ok()?)),
        (Format::Binary, Type::Int4) => Some(i64::from(i32::from_be_bytes(bytes.try_into().ok()?))),
        (Format::Text, ty) => value::plain_integer(*ty, bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::pgwire::messages::Message as _;
    use ::pgwire::messages::extendedquery;
    use bytes::{Bytes, BytesMut};

    const LIMIT: usize = 1 << 20;

    /// `count` times Bind and Sync; the statement's name is the number.
    fn pipeline(count: usize) -> BytesMut {
        let mut input = BytesMut::new();
        for n in 0..count {
            let value = vec![Some(Bytes::from(n.to_string()))];
            let bind = extendedquery::Bind::new(None, Some(n.to_string()), vec![], value, vec![]);
            bind.encode(&mut input).unwrap();
            extendedquery::Sync::new().encode(&mut input).unwrap();
        }
        input
    }

    /// The names of the statements that a look finds for the first time, and of those that came near.
    fn looked(lookahead: &mut Lookahead, input: &[u8]) -> [Vec<Vec<u8>>; 2] {
        let first = frame::peek(input, LIMIT).unwrap().unwrap();
        let (mut far, mut near) = (Vec::new(), Vec::new());
        lookahead.look_far(first, input, LIMIT, |bind| {
            far.push(bind.statement.to_vec());
            Some(far.len() as i64)
        });
        lookahead.look_near(input, |name, _| near.push(name.to_vec()));
        [far, near]
    }

    fn names(range: std::ops::Range<usize>) -> Vec<Vec<u8>> {
        range.map(|n| n.to_string().into_bytes()).collect()
    }

    #[test]
    fn every_bind_is_seen_once_from_afar_and_once_near() {
        let count = 2 * FAR;
        let input = pipeline(count);
        let (mut lookahead, mut at, mut turns) = (Lookahead::default(), 0, 0);
        let [mut far, mut near] = [Vec::new(), Vec::new()];
        while let Ok(Some(frame)) = frame::peek(&input[at..], LIMIT) {
            if frame.kind == b'B' {
                let found = looked(&mut lookahead, &input[at..]);
                turns += 1;
                far.extend_from_slice(&found[0]);
                near.extend_from_slice(&found[1]);
                assert_eq!(
                    (far.len(), near.len()),
                    ((turns + FAR).min(count + 1) - 2, (turns + NEAR).min(count + 1) - 2)
                );
            }
            lookahead.pass(frame);
            at += frame.length;
        }
        assert_eq!((&far, &near), (&names(1..count), &names(1..count)));
        assert!(lookahead.sights.is_empty() && lookahead.near == 0 && lookahead.seen == lookahead.taken);
    }

    #[test]
    fn what_has_not_come_whole_is_looked_at_when_it_has() {
        let input = pipeline(3);
        let mut lookahead = Lookahead::default();
        assert_eq!(looked(&mut lookahead, &input[..input.len() - 7])[0], names(1..2));
        assert_eq!(looked(&mut lookahead, &input), [names(2..3), names(2..3)]);
        assert_eq!(looked(&mut lookahead, &input), [vec![], vec![]] as [Vec<Vec<u8>>; 2]);
    }

    #[test]
    fn a_frame_that_nobody_looked_at_passes() {
        let input = pipeline(2);
        let mut lookahead = Lookahead::default();
        let first = frame::peek(&input, LIMIT).unwrap().unwrap();
        lookahead.pass(first);
        lookahead.pass(frame::peek(&input[first.length..], LIMIT).unwrap().unwrap());
        let rest = &input[lookahead.taken as usize..];
        assert_eq!(looked(&mut lookahead, rest)[0], names(2..2), "the one whose turn it is");
        assert_eq!(lookahead.sights.len(), 1);
    }

    #[test]
    fn a_bent_frame_ends_the_look() {
        let mut input = pipeline(2);
        let first = frame::peek(&input, LIMIT).unwrap().unwrap().length;
        // The Sync's kind.
        input[first] = b'!';
        assert_eq!(looked(&mut Lookahead::default(), &input)[0], names(2..2));
    }
}
