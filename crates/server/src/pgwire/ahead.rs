//! Which rows will the statements of a pipeline want? Their keys are in the bytes at hand before their turn comes: so index entries and rows are
//! on their way to the cache while the statements before them run, and the cache misses of a pipeline overlap as those of a list of keys do.
//!
//! It only looks. A Bind that is broken, that names a statement which an earlier message of the pipeline makes, or that is skipped after an
//! error costs a look and nothing else; what it says is checked when its turn comes.
//!
//! 1. `bytes` of a reach end where a frame ends, and `binds` of the Binds in them have not had their turn.

use super::frame::{self, Bind, Format, Frame, Message};
use freshet_db::sql::{Prepared, Session};
use freshet_db::{Ahead, Type};

/// Binds between the one whose turn it is and the furthest that is looked at; and those of them whose entry has had time to come.
const FAR: usize = 16;
const NEAR: usize = 8;

/// How far the input was looked at, from where it begins now.
#[derive(Clone, Copy, Default, Debug)]
struct Reach {
    bytes: usize,
    binds: usize,
}

impl Reach {
    /// Passes over the frame whose turn it is, if nothing was looked at yet: loading what is wanted now gains nothing.
    fn begin_behind(&mut self, bind: Frame) {
        if self.bytes == 0 {
            *self = Reach { bytes: bind.length, binds: 1 };
        }
    }

    fn pass(&mut self, frame: Frame) {
        if self.bytes >= frame.length {
            self.binds -= usize::from(frame.kind == b'B');
        }
        self.bytes = self.bytes.saturating_sub(frame.length);
    }

    /// Calls `found` with each whole Bind up to `binds_max`.
    fn stretch(&mut self, binds_max: usize, input: &[u8], message_bytes_max: usize, found: &mut impl FnMut(&Bind<'_>)) {
        while self.binds < binds_max {
            let rest = &input[self.bytes..];
            let Ok(Some(frame)) = frame::peek(rest, message_bytes_max) else { return };
            let Some(bytes) = rest.get(..frame.length) else { return };
            if frame.kind == b'B' {
                if let Ok(Message::Bind(bind)) = frame::decode(frame.kind, bytes) {
                    found(&bind);
                }
                self.binds += 1;
            }
            self.bytes += frame.length;
        }
    }
}

#[derive(Default, Debug)]
pub struct Lookahead {
    far: Reach,
    near: Reach,
}

impl Lookahead {
    /// Looks at the Binds in `input` behind its first frame, a whole Bind, whose turn it is.
    pub fn look<'s>(
        &mut self,
        bind: Frame,
        input: &[u8],
        message_bytes_max: usize,
        session: &'s Session,
        statement: impl Fn(&[u8]) -> Option<&'s Prepared>,
    ) {
        let load = |bind: &Bind<'_>, what| {
            if let Some(prepared) = statement(bind.statement)
                && let Some(key) = key_of(bind, prepared)
            {
                session.load_ahead(prepared, key, what);
            }
        };
        self.far.begin_behind(bind);
        self.near.begin_behind(bind);
        self.far.stretch(FAR, input, message_bytes_max, &mut |bind| load(bind, Ahead::Entry));
        self.near.stretch(NEAR, input, message_bytes_max, &mut |bind| load(bind, Ahead::Row));
    }

    /// The input's first frame has had its turn.
    pub fn pass(&mut self, frame: Frame) {
        self.far.pass(frame);
        self.near.pass(frame);
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
        (Format::Text, Type::Int8 | Type::Int4) => std::str::from_utf8(bytes).ok()?.parse().ok(),
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

    fn seen(reach: &mut Reach, binds_max: usize, input: &[u8]) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        reach.stretch(binds_max, input, LIMIT, &mut |bind| names.push(bind.statement.to_vec()));
        names
    }

    #[test]
    fn every_bind_is_seen_once_and_only_so_far_ahead() {
        let input = pipeline(6);
        let (mut reach, mut at, mut names) = (Reach::default(), 0, Vec::new());
        while let Ok(Some(frame)) = frame::peek(&input[at..], LIMIT) {
            if frame.kind == b'B' {
                let fresh = seen(&mut reach, 3, &input[at..]);
                assert_eq!(fresh.len(), if at == 0 { 3 } else { usize::from(names.len() < 6) });
                names.extend(fresh);
            }
            reach.pass(frame);
            at += frame.length;
        }
        assert_eq!(names, (0..6).map(|n: usize| n.to_string().into_bytes()).collect::<Vec<_>>());
        assert_eq!((reach.bytes, reach.binds), (0, 0));
    }

    #[test]
    fn what_has_not_come_whole_is_looked_at_when_it_has() {
        let input = pipeline(2);
        let mut reach = Reach::default();
        assert_eq!(seen(&mut reach, 3, &input[..input.len() - 7]).len(), 1);
        assert_eq!(seen(&mut reach, 3, &input), [b"1"]);
        assert!(seen(&mut reach, 3, &input).is_empty());
    }

    #[test]
    fn a_frame_that_nobody_looked_at_passes() {
        let input = pipeline(1);
        let mut reach = Reach::default();
        reach.pass(frame::peek(&input, LIMIT).unwrap().unwrap());
        assert_eq!((reach.bytes, reach.binds), (0, 0));
    }

    #[test]
    fn a_bent_frame_ends_the_look() {
        let mut input = pipeline(2);
        let first = frame::peek(&input, LIMIT).unwrap().unwrap().length;
        // The Sync's kind.
        input[first] = b'!';
        assert_eq!(seen(&mut Reach::default(), 3, &input).len(), 1);
    }
}
