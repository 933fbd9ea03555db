//! Whose bytes are these, and may more come? The bookkeeping of one end of a link, and the sessions' ends of it.
//!
//! One latch guards all of it. Whoever holds it only moves bytes: sessions of a link live on the thread of its driver, so that it is
//! free but while a session is let in.
//!
//! Invariants:
//! 1. `may_send` of one end is never more than `expected` of the other and what is under way.
//! 2. A number names the next session only when both ends have said that the last one ended. The server's `E` is its last word on a session,
//!    and the ship's next words may cross it: that a client is gone, or has taken something.
//!    The server may have said so, and heard it, while its session still holds its end: that one *lingers* apart, with nothing to say or to hear, and the
//!    number's next session is another's.
//! 3. Of groups one is under way: a ship sends what has gathered when the server has given the last one its turn.

use super::frame::{Frame, OPENING_BYTES, Violation, WINDOW_BYTES, violation};
use bytes::{Buf, BytesMut};
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What waits to leave, beyond which sessions wait with theirs.
pub const OUT_BYTES_MAX: usize = 1 << 20;
/// A peer that lets this much gather does not read: nor is it read.
const UNREAD_BYTES_MAX: usize = 2 * OUT_BYTES_MAX;
/// A session's own buffer beyond this is given back once it is empty.
const KEEP_BYTES: usize = 4 << 10;
/// One read of a client takes at most this much.
const FILL_BYTES: usize = 16 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Opens sessions and groups what it sends.
    Ship,
    Server,
}

struct Slot {
    /// No two of a link have the same.
    serial: u64,
    /// What has come and was not taken.
    input: BytesMut,
    /// The peer's last byte has come.
    input_ended: bool,
    /// The peer takes nothing any more.
    is_cut: bool,
    /// Our `E` or `X` is on its way.
    output_ended: bool,
    /// There is a [`Pipe`].
    is_held: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    may_send: usize,
    /// What the peer may still send, and of what it may at most.
    expected: usize,
    window: usize,
    /// Taken, and not told the peer.
    owed: usize,
    /// It is in `State::crowd`.
    is_in_crowd: bool,
}

struct State {
    end: End,
    sessions_max: usize,
    /// By number.
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// By serial (invariant 2).
    lingering: HashMap<u64, Slot>,
    last_serial: u64,
    held: usize,
    /// Frames that wait to leave.
    out: Vec<u8>,
    driver: Option<Waker>,
    /// Sessions that wait for `out` to empty.
    crowd: Vec<u32>,
    /// For what a client says, before its length is known.
    scratch: Box<[u8]>,
    /// The number of the last group, and whether it has not had its turn.
    group: u32,
    is_under_way: bool,
    /// A group whose turn is over next.
    turn: Option<u32>,
    ping: Option<Frame<'static>>,
    is_over: bool,
}

/// One end of a link.
#[derive(Clone)]
pub struct Mux(Arc<Mutex<State>>);

/// One session's end of a link; dropped, the session's connection closes.
pub struct Pipe {
    mux: Mux,
    session: u32,
    serial: u64,
}

fn gone() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

impl Slot {
    fn new(end: End, serial: u64) -> Slot {
        let (may_send, window) = match end {
            End::Ship => (OPENING_BYTES, WINDOW_BYTES),
            End::Server => (WINDOW_BYTES, OPENING_BYTES),
        };
        Slot {
            serial,
            input: BytesMut::new(),
            input_ended: false,
            is_cut: false,
            output_ended: false,
            is_held: true,
            reader: None,
            writer: None,
            may_send,
            expected: window,
            window,
            owed: 0,
            is_in_crowd: false,
        }
    }
}

impl State {
    fn slot(&mut self, session: u32) -> &mut Slot {
        self.slots[session as usize].as_mut().expect("invariant 2: a session that has a pipe has a slot")
    }

    fn begin(&mut self, session: u32) -> u64 {
        self.last_serial += 1;
        self.slots[session as usize] = Some(Slot::new(self.end, self.last_serial));
        self.held += 1;
        self.last_serial
    }

    /// Works on the session of a pipe, which may have given its number away.
    fn of<T>(&mut self, session: u32, serial: u64, work: impl FnOnce(&mut State, u32) -> T) -> T {
        let Some(lingering) = self.lingering.remove(&serial) else {
            return work(self, session);
        };
        let next = self.slots[session as usize].replace(lingering);
        let done = work(self, session);
        let left = std::mem::replace(&mut self.slots[session as usize], next);
        self.lingering.extend(left.map(|slot| (serial, slot)));
        done
    }

    fn say(&mut self, session: u32, frame: Frame<'_>) {
        frame.write(session, &mut self.out);
    }

    fn end_output(&mut self, session: u32) {
        if !std::mem::replace(&mut self.slot(session).output_ended, true) && !self.is_over {
            self.say(session, Frame::End);
        }
    }

    /// Nobody will read or write it here any more.
    fn let_go(&mut self, session: u32) {
        self.held -= 1;
        let is_ship = self.end == End::Ship;
        let slot = self.slot(session);
        slot.is_held = false;
        slot.input = BytesMut::new();
        if is_ship && !slot.input_ended && !self.is_over {
            self.slot(session).output_ended = true;
            self.say(session, Frame::Gone);
        } else {
            self.end_output(session);
        }
        self.free_if_over(session);
    }

    /// `count` bytes were taken: tells the peer, now and then. The server says nothing after its `E`.
    fn taken(&mut self, session: u32, count: usize) {
        let is_server = self.end == End::Server;
        let slot = self.slot(session);
        slot.owed += count;
        let is_final = slot.input_ended || (is_server && slot.output_ended);
        if slot.owed >= slot.window / 2 && !is_final {
            let owed = std::mem::take(&mut slot.owed);
            slot.expected += owed;
            self.say(session, Frame::Credit(owed));
        }
    }

    fn free_if_over(&mut self, session: u32) {
        let slot = self.slot(session);
        if slot.input_ended && slot.output_ended && !slot.is_held {
            self.slots[session as usize] = None;
            if self.end == End::Ship {
                self.free.push(session);
            }
        }
    }

    /// A slot of a session that is known to the sender, as far as the sender can know.
    fn known(&mut self, session: u32) -> Result<&mut Slot, Violation> {
        match self.slots.get_mut(session as usize).and_then(Option::as_mut) {
            Some(slot) => Ok(slot),
            None => violation(format!("there is no session {session}")),
        }
    }

    fn receive(&mut self, frame: Frame<'_>, session: u32, woken: &mut Vec<Waker>) -> Result<Option<u64>, Violation> {
        match (frame, self.end) {
            (Frame::Open, End::Server) => return self.opened(session).map(Some),
            (Frame::Data(bytes), _) => self.data(bytes, session, woken)?,
            (Frame::End, _) => {
                let slot = self.known(session)?;
                if std::mem::replace(&mut slot.input_ended, true) {
                    return violation(format!("session {session} ends twice"));
                }
                woken.extend(slot.reader.take());
                self.free_if_over(session);
            }
            // Invariant 2: they crossed our `E`.
            (Frame::Credit(_) | Frame::Gone, End::Server) if self.is_past(session) => {}
            (Frame::Gone, End::Server) => {
                let slot = self.known(session)?;
                slot.input_ended = true;
                if std::mem::replace(&mut slot.is_cut, true) {
                    return violation(format!("session {session} is gone twice"));
                }
                woken.extend(slot.reader.take());
                woken.extend(slot.writer.take());
                self.free_if_over(session);
            }
            (Frame::Credit(count), _) => {
                let slot = self.known(session)?;
                if count == 0 || count > WINDOW_BYTES - slot.may_send {
                    return violation(format!("credit of {count} bytes for session {session}"));
                }
                slot.may_send += count;
                woken.extend(slot.writer.take());
            }
            (Frame::Group(number), End::Server) => self.turn = Some(number),
            (Frame::Turn(number), End::Ship) if self.is_under_way && number == self.group => self.is_under_way = false,
            (Frame::Ping, End::Server) => self.ping = Some(Frame::Pong),
            (Frame::Pong, End::Ship) => {}
            (frame, _) => return violation(format!("{frame:?} is not for this end, or not now")),
        }
        Ok(None)
    }

    /// A number that no session has now.
    fn is_past(&self, session: u32) -> bool {
        self.slots.get(session as usize).is_some_and(Option::is_none)
    }

    /// The serial of a session that the peer begins.
    fn opened(&mut self, session: u32) -> Result<u64, Violation> {
        let place = session as usize;
        if place >= self.sessions_max {
            return violation(format!("session {session} is beyond {}", self.sessions_max));
        }
        if self.slots.len() <= place {
            self.slots.resize_with(place + 1, || None);
        }
        // Both ends have said that it is over; somebody has not let go of it yet.
        if let Some(last) = self.slots[place].take_if(|slot| slot.input_ended && slot.output_ended) {
            self.lingering.insert(last.serial, last);
        }
        if self.slots[place].is_some() {
            return violation(format!("session {session} is there already"));
        }
        Ok(self.begin(session))
    }

    fn data(&mut self, bytes: &[u8], session: u32, woken: &mut Vec<Waker>) -> Result<(), Violation> {
        let slot = self.known(session)?;
        if slot.input_ended || bytes.len() > slot.expected {
            return violation(format!("{} bytes for session {session} are beyond its credit or end", bytes.len()));
        }
        slot.expected -= bytes.len();
        if slot.is_held {
            slot.input.extend_from_slice(bytes);
            woken.extend(slot.reader.take());
        }
        // Where nobody wants it, it goes: the peer hears that the session is over.
        Ok(())
    }

    /// Whether a session may add to what leaves; if not, it is woken when it may.
    fn has_room(&mut self, session: u32, waker: &Waker) -> bool {
        let is_full = self.out.len() >= OUT_BYTES_MAX;
        let slot = self.slot(session);
        if slot.may_send > 0 && !is_full {
            return true;
        }
        set(&mut slot.writer, waker);
        if is_full && !std::mem::replace(&mut slot.is_in_crowd, true) {
            self.crowd.push(session);
        }
        false
    }
}

fn set(place: &mut Option<Waker>, waker: &Waker) {
    match place {
        Some(known) => known.clone_from(waker),
        None => *place = Some(waker.clone()),
    }
}

impl Mux {
    pub fn new(end: End, sessions_max: usize) -> Mux {
        Mux(Arc::new(Mutex::new(State {
            end,
            sessions_max,
            slots: Vec::new(),
            free: Vec::new(),
            lingering: HashMap::new(),
            last_serial: 0,
            held: 0,
            out: Vec::new(),
            driver: None,
            crowd: Vec::new(),
            scratch: match end {
                End::Ship => vec![0; FILL_BYTES].into(),
                End::Server => Box::default(),
            },
            group: 0,
            is_under_way: false,
            turn: None,
            ping: None,
            is_over: false,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every step under the latch leaves the state whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session, unless the link has as many as it may or is over.
    pub fn open(&self) -> Option<Pipe> {
        let mut state = self.lock();
        if state.is_over {
            return None;
        }
        let session = match state.free.pop() {
            Some(session) => session,
            None if state.slots.len() < state.sessions_max => {
                state.slots.push(None);
                (state.slots.len() - 1) as u32
            }
            None => return None,
        };
        let serial = state.begin(session);
        state.say(session, Frame::Open);
        let driver = state.driver.take();
        drop(state);
        driver.into_iter().for_each(Waker::wake);
        Some(Pipe { mux: self.clone(), session, serial })
    }

    pub fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Sessions that somebody holds.
    pub fn held(&self) -> usize {
        self.lock().held
    }

    // ---- the driver's side

    /// Takes whole frames off the input and wakes whom they concern; the sessions that were opened.
    pub fn receive(&self, input: &mut BytesMut) -> Result<Vec<Pipe>, Violation> {
        let (mut woken, mut opened) = (Vec::new(), Vec::new());
        let mut state = self.lock();
        let mut taken = 0;
        let read = loop {
            match super::frame::next(&input[taken..]) {
                Ok(Some((frame, session, length))) => {
                    match state.receive(frame, session, &mut woken) {
                        Ok(serial) => {
                            opened.extend(serial.map(|serial| Pipe { mux: self.clone(), session, serial }));
                        }
                        Err(violation) => break Err(violation),
                    }
                    taken += length;
                }
                Ok(None) => break Ok(()),
                Err(violation) => break Err(violation),
            }
        };
        drop(state);
        input.advance(taken);
        woken.into_iter().for_each(Waker::wake);
        read.map(|()| opened)
    }

    /// Who is woken when there is something to write.
    pub fn register(&self, waker: &Waker) {
        set(&mut self.lock().driver, waker);
    }

    /// Whether the peer reads what is written.
    pub fn may_read(&self) -> bool {
        self.lock().out.len() < UNREAD_BYTES_MAX
    }

    pub fn ping(&self) {
        self.lock().ping = Some(Frame::Ping);
    }

    /// Puts what may leave now into `empty`; false if there is nothing.
    pub fn take_out(&self, empty: &mut Vec<u8>) -> bool {
        let mut state = self.lock();
        let mut woken = Vec::new();
        match state.end {
            End::Server => {
                std::mem::swap(&mut state.out, empty);
                if let Some(number) = state.turn.take() {
                    Frame::Turn(number).write(0, empty);
                }
            }
            End::Ship if !state.is_under_way && !state.out.is_empty() => {
                std::mem::swap(&mut state.out, empty);
                state.group = state.group.wrapping_add(1);
                state.is_under_way = true;
                Frame::Group(state.group).write(0, empty);
            }
            End::Ship => {}
        }
        if let Some(ping) = state.ping.take() {
            ping.write(0, empty);
        }
        if state.out.len() < OUT_BYTES_MAX {
            let crowd = std::mem::take(&mut state.crowd);
            for session in crowd {
                if let Some(slot) = state.slots[session as usize].as_mut() {
                    slot.is_in_crowd = false;
                    woken.extend(slot.writer.take());
                }
            }
        }
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        !empty.is_empty()
    }

    /// Invariant 5 of the link.
    pub fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        state.out = Vec::new();
        let mut woken = Vec::new();
        let State { slots, lingering, .. } = &mut *state;
        for slot in slots.iter_mut().flatten().chain(lingering.values_mut()) {
            woken.extend(slot.reader.take());
            woken.extend(slot.writer.take());
        }
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Pipe {
    /// Works on this session's state, and lets the driver write what that made.
    fn with<T>(&self, work: impl FnOnce(&mut State, u32) -> T) -> T {
        let mut state = self.mux.lock();
        let before = state.out.len();
        let done = state.of(self.session, self.serial, work);
        let driver = if state.out.len() > before { state.driver.take() } else { None };
        drop(state);
        driver.into_iter().for_each(Waker::wake);
        done
    }

    /// The client is known: it may send as much ahead as any.
    pub fn widen(&self) {
        self.with(|state, session| {
            let slot = state.slot(session);
            let more = WINDOW_BYTES - slot.window;
            slot.window = WINDOW_BYTES;
            if more > 0 && !slot.input_ended && !slot.output_ended {
                slot.expected += more;
                state.say(session, Frame::Credit(more));
            }
        });
    }

    /// Says that nothing more will be written.
    pub fn finish(&self) {
        self.with(State::end_output);
    }

    /// Whether all that will come has come; some of it may wait to be taken.
    pub fn has_ended(&self) -> bool {
        self.with(|state, session| state.is_over || state.slot(session).input_ended)
    }

    /// Hands what has come to `write`, which says how much it took. 0: all was taken, and no more will come.
    pub fn poll_deliver(
        &self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&mut Context<'_>, &[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.with(|state, session| {
            let is_over = state.is_over;
            let slot = state.slot(session);
            if slot.input.is_empty() {
                if is_over {
                    return Poll::Ready(Err(gone()));
                }
                if slot.input_ended {
                    return Poll::Ready(Ok(0));
                }
                set(&mut slot.reader, cx.waker());
                return Poll::Pending;
            }
            match write(cx, &slot.input) {
                Poll::Ready(Ok(count)) if count > 0 => {
                    slot.input.advance(count);
                    if slot.input.is_empty() && slot.input.capacity() > KEEP_BYTES {
                        slot.input = BytesMut::new();
                    }
                    state.taken(session, count);
                    Poll::Ready(Ok(count))
                }
                Poll::Ready(Ok(_)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                other => other,
            }
        })
    }

    /// Sends what `read` finds, as much as there is room for. 0: `read` found the end.
    pub fn poll_fill(
        &self,
        cx: &mut Context<'_>,
        mut read: impl FnMut(&mut Context<'_>, &mut ReadBuf<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<usize>> {
        self.with(|state, session| {
            if state.is_over {
                return Poll::Ready(Err(gone()));
            }
            if !state.has_room(session, cx.waker()) {
                return Poll::Pending;
            }
            let room = state.slot(session).may_send.min(FILL_BYTES);
            let mut scratch = std::mem::take(&mut state.scratch);
            let mut buffer = ReadBuf::new(&mut scratch[..room]);
            let outcome = read(cx, &mut buffer).map_ok(|()| buffer.filled().len());
            if let Poll::Ready(Ok(count)) = outcome
                && count > 0
            {
                state.slot(session).may_send -= count;
                state.say(session, Frame::Data(&scratch[..count]));
            }
            state.scratch = scratch;
            outcome
        })
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.with(State::let_go);
        // The driver of a server that stops waits for the last one.
        let driver = self.mux.lock().driver.take();
        driver.into_iter().for_each(Waker::wake);
    }
}

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = self.poll_deliver(cx, |_, bytes| {
            let count = bytes.len().min(buffer.remaining());
            buffer.put_slice(&bytes[..count]);
            Poll::Ready(Ok(count))
        });
        read.map_ok(drop)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.with(|state, session| {
            let slot = state.slot(session);
            if slot.output_ended || slot.is_cut || state.is_over {
                return Poll::Ready(Err(gone()));
            }
            if bytes.is_empty() {
                return Poll::Ready(Ok(0));
            }
            if !state.has_room(session, cx.waker()) {
                return Poll::Pending;
            }
            let slot = state.slot(session);
            let count = bytes.len().min(slot.may_send);
            slot.may_send -= count;
            state.say(session, Frame::Data(&bytes[..count]));
            Poll::Ready(Ok(count))
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
