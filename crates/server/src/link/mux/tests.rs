use super::super::frame;
use super::*;
use futures::task::{ArcWake, noop_waker, waker};
use std::sync::atomic::{AtomicUsize, Ordering};

const SESSIONS_MAX: usize = 8;

fn ends() -> (Mux, Mux) {
    (Mux::new(End::Ship, SESSIONS_MAX), Mux::new(End::Server, SESSIONS_MAX))
}

/// Carries what may leave one end to the other; the sessions that it began.
fn pump(from: &Mux, to: &Mux) -> Vec<Pipe> {
    let (mut out, mut input) = (Vec::new(), BytesMut::new());
    from.take_out(&mut out);
    input.extend_from_slice(&out);
    let opened = to.receive(&mut input).expect("frames that keep the rules");
    assert!(input.is_empty(), "whole frames");
    opened
}

/// A session, seen from both ends.
fn session(ship: &Mux, server: &Mux) -> (Pipe, Pipe) {
    let near = ship.open().expect("room for one more");
    let far = pump(ship, server).pop().expect("the server hears of it");
    pump(server, ship);
    (near, far)
}

fn write(pipe: &mut Pipe, bytes: &[u8]) -> Option<usize> {
    match Pin::new(pipe).poll_write(&mut Context::from_waker(&noop_waker()), bytes) {
        Poll::Ready(written) => Some(written.expect("the link is there")),
        Poll::Pending => None,
    }
}

/// What is there, at most `most` bytes; `None`: nothing yet. Empty: the end.
fn read(pipe: &mut Pipe, most: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; most];
    let mut buffer = ReadBuf::new(&mut bytes);
    match Pin::new(pipe).poll_read(&mut Context::from_waker(&noop_waker()), &mut buffer) {
        Poll::Ready(outcome) => {
            outcome.expect("the link is there");
            Some(buffer.filled().to_vec())
        }
        Poll::Pending => None,
    }
}

/// As much as the window takes.
fn fill(pipe: &mut Pipe) -> usize {
    let mut total = 0;
    while let Some(count) = write(pipe, &[7; 5000]) {
        total += count;
    }
    total
}

/// A number may name its next session before who had the last one there has let go of it: neither meets the other's bytes.
#[test]
fn a_session_that_lingers_keeps_out_of_the_next_ones_way() {
    let (ship, server) = ends();
    let (near, mut last) = session(&ship, &server);
    last.finish();
    pump(&server, &ship);
    drop(near);
    pump(&ship, &server);
    assert!(last.has_ended());
    pump(&server, &ship);
    let (mut near, mut far) = session(&ship, &server);
    assert_eq!((last.session, far.session), (0, 0));
    assert_eq!(write(&mut near, b"next"), Some(4));
    pump(&ship, &server);
    assert_eq!(read(&mut last, 10), Some(Vec::new()), "its end, and no byte of the next one's");
    let refused = Pin::new(&mut last).poll_write(&mut Context::from_waker(&noop_waker()), b"late");
    assert!(matches!(refused, Poll::Ready(Err(_))));
    assert_eq!(server.held(), 2);
    drop(last);
    assert_eq!(server.held(), 1);
    assert_eq!(read(&mut far, 10), Some(b"next".to_vec()));
    assert_eq!(write(&mut far, b"answer"), Some(6));
    pump(&server, &ship);
    assert_eq!(read(&mut near, 10), Some(b"answer".to_vec()));
    assert!(server.lock().lingering.is_empty());
}

/// Eight sessions, both directions, pieces of all sizes: each gives what was put in, whoever reads when.
#[test]
fn bytes_come_out_as_they_went_in() {
    let (ship, server) = ends();
    let mut pairs: Vec<(Pipe, Pipe)> = (0..SESSIONS_MAX).map(|_| session(&ship, &server)).collect();
    pairs.iter().for_each(|(_, far)| far.widen());
    let mut seed = 1u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let byte = |session: usize, way: usize, at: usize| (at * 31 + session * 7 + way * 101 + at / 251) as u8;
    let mut sent = [[0usize; 2]; SESSIONS_MAX];
    let mut seen = [[0usize; 2]; SESSIONS_MAX];
    for _ in 0..30_000 {
        let (session, way) = (random(SESSIONS_MAX), random(2));
        let (near, far) = &mut pairs[session];
        let (writer, reader) = if way == 0 { (near, far) } else { (far, near) };
        match random(4) {
            0 => {
                let at = sent[session][way];
                let bytes: Vec<u8> = (at..at + 1 + random(9000)).map(|at| byte(session, way, at)).collect();
                sent[session][way] += write(writer, &bytes).unwrap_or(0);
            }
            1 => {
                for got in read(reader, 1 + random(9000)).unwrap_or_default() {
                    assert_eq!(got, byte(session, way, seen[session][way]));
                    seen[session][way] += 1;
                }
            }
            2 => drop(pump(&ship, &server)),
            _ => drop(pump(&server, &ship)),
        }
        assert!(sent[session][way] - seen[session][way] <= WINDOW_BYTES, "invariant 2 of the link");
    }
    assert!(seen.iter().flatten().all(|&count| count > WINDOW_BYTES), "credit came back: {seen:?}");
}

#[test]
fn a_session_that_is_not_read_costs_its_window_and_nobody_else() {
    let (ship, server) = ends();
    let (near, mut far) = session(&ship, &server);
    let (mut other_near, mut other_far) = session(&ship, &server);
    assert_eq!(fill(&mut far), WINDOW_BYTES);
    for _ in 0..100 {
        pump(&server, &ship);
        assert_eq!(write(&mut far, b"more"), None);
        assert_eq!(write(&mut other_far, b"answer"), Some(6));
        pump(&server, &ship);
        assert_eq!(read(&mut other_near, 100), Some(b"answer".to_vec()));
    }
    drop(near);
}

/// Before the server knows who it is, a client may send less.
#[test]
fn who_is_not_known_may_send_little() {
    let (ship, server) = ends();
    let (mut near, far) = session(&ship, &server);
    assert_eq!(fill(&mut near), OPENING_BYTES);
    far.widen();
    pump(&server, &ship);
    assert_eq!(fill(&mut near), WINDOW_BYTES - OPENING_BYTES);
}

#[test]
fn the_next_group_gathers_while_one_is_under_way() {
    let (ship, server) = ends();
    let (mut near, mut far) = session(&ship, &server);
    let groups = |out: &[u8]| {
        let (mut groups, mut at) = (0, 0);
        while let Ok(Some((frame, _, length))) = frame::next(&out[at..]) {
            groups += usize::from(matches!(frame, Frame::Group(_)));
            at += length;
        }
        groups
    };
    let mut first = Vec::new();
    write(&mut near, b"one");
    assert!(ship.take_out(&mut first) && groups(&first) == 1, "at once");
    write(&mut near, b"two");
    write(&mut near, b"three");
    let mut none = Vec::new();
    assert!(!ship.take_out(&mut none), "one is under way");
    server.receive(&mut BytesMut::from(&first[..])).expect("a group");
    pump(&server, &ship);
    let mut second = Vec::new();
    assert!(ship.take_out(&mut second) && groups(&second) == 1, "both as one");
    server.receive(&mut BytesMut::from(&second[..])).expect("a group");
    assert_eq!(read(&mut far, 100), Some(b"onetwothree".to_vec()));
}

#[test]
fn numbers_name_another_session_only_when_both_ends_are_done() {
    let (ship, server) = ends();
    let (near, mut far) = session(&ship, &server);
    let number = near.session;
    write(&mut far, &[1; 40_000]);
    drop(near);
    let next = ship.open().expect("room");
    assert_ne!(next.session, number, "the server has not said that it ended");
    pump(&server, &ship);
    pump(&ship, &server);
    pump(&server, &ship);
    assert_eq!(read(&mut far, 10), Some(Vec::new()), "the client is gone");
    let written = Pin::new(&mut far).poll_write(&mut Context::from_waker(&noop_waker()), b"x");
    assert!(matches!(written, Poll::Ready(Err(_))), "nobody takes it");
    drop(far);
    pump(&server, &ship);
    pump(&ship, &server);
    let again = ship.open().expect("room");
    assert_eq!(again.session, number);
    let mut opened = pump(&ship, &server);
    pump(&server, &ship);
    let mut far = opened.pop().expect("a new session");
    assert_eq!(fill(&mut far), WINDOW_BYTES, "with a window of its own");
    drop(next);
}

#[test]
fn all_places_of_a_link_can_be_used_again_and_again() {
    let (ship, server) = ends();
    for _ in 0..100 {
        let pairs: Vec<(Pipe, Pipe)> = (0..SESSIONS_MAX).map(|_| session(&ship, &server)).collect();
        assert!(ship.open().is_none(), "no room");
        assert_eq!((ship.held(), server.held()), (SESSIONS_MAX, SESSIONS_MAX));
        for (number, (near, far)) in pairs.into_iter().enumerate() {
            // Whoever goes first.
            if number % 2 == 0 { drop((near, far)) } else { drop((far, near)) }
        }
        for _ in 0..3 {
            pump(&ship, &server);
            pump(&server, &ship);
        }
        assert_eq!((ship.held(), server.held()), (0, 0));
    }
}

struct Count(AtomicUsize);

impl ArcWake for Count {
    fn wake_by_ref(count: &Arc<Count>) {
        count.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn everybody_hears_that_a_link_ended() {
    let (ship, server) = ends();
    let (near, mut far) = session(&ship, &server);
    let (mut writer, _far) = session(&ship, &server);
    write(&mut far, b"last words");
    pump(&server, &ship);
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = waker(count.clone());
    let mut cx = Context::from_waker(&waker);
    fill(&mut writer);
    assert!(Pin::new(&mut writer).poll_write(&mut cx, b"x").is_pending());
    ship.end();
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert!(near.has_ended() && ship.is_over() && ship.open().is_none());
    let mut near = near;
    assert_eq!(read(&mut near, 100), Some(b"last words".to_vec()), "what had come is read");
    let mut rest = [0; 10];
    let mut rest = ReadBuf::new(&mut rest);
    assert!(matches!(Pin::new(&mut near).poll_read(&mut cx, &mut rest), Poll::Ready(Err(_))));
    assert!(matches!(Pin::new(&mut writer).poll_write(&mut cx, b"x"), Poll::Ready(Err(_))));
    drop((near, writer));
    assert_eq!(ship.held(), 0);
}

/// A peer that asks and does not read is not read.
#[test]
fn answers_that_nobody_reads_stop_the_reading() {
    let server = Mux::new(End::Server, SESSIONS_MAX);
    let mut frames = Vec::new();
    Frame::Open.write(0, &mut frames);
    Frame::End.write(0, &mut frames);
    for _ in 0..UNREAD_BYTES_MAX {
        if !server.may_read() {
            break;
        }
        let mut opened = server.receive(&mut BytesMut::from(&frames[..])).expect("allowed");
        let told = fill(&mut opened[0]);
        assert!(told <= WINDOW_BYTES);
    }
    assert!(!server.may_read());
    assert!(server.lock().out.len() <= 2 * OUT_BYTES_MAX + WINDOW_BYTES);
}

/// Frames that the format allows and the moment does not.
#[test]
fn frames_that_break_a_rule_are_refused() {
    let to_server: [&[(u32, Frame<'static>)]; 16] = [
        &[(0, Frame::Open), (0, Frame::Open)],
        &[(SESSIONS_MAX as u32, Frame::Open)],
        &[(u32::MAX, Frame::Open)],
        &[(0, Frame::Data(b"x"))],
        &[(3, Frame::End)],
        &[(0, Frame::Open), (1, Frame::Data(b"x"))],
        &[(0, Frame::Open), (0, Frame::End), (0, Frame::End)],
        &[(0, Frame::Open), (0, Frame::End), (0, Frame::Data(b"x"))],
        &[(0, Frame::Open), (0, Frame::Gone), (0, Frame::Data(b"x"))],
        &[(0, Frame::Gone)],
        &[(0, Frame::Open), (0, Frame::Data(&[0; OPENING_BYTES])), (0, Frame::Data(b"x"))],
        &[(0, Frame::Open), (0, Frame::Credit(1))],
        &[(0, Frame::Open), (0, Frame::Credit(u32::MAX as usize))],
        &[(0, Frame::Open), (0, Frame::Credit(0))],
        &[(0, Frame::Turn(0))],
        &[(0, Frame::Pong)],
    ];
    for frames in to_server {
        let server = Mux::new(End::Server, SESSIONS_MAX);
        assert!(outcome(&server, frames).is_err(), "{:?}", frames.last());
        // All but the last were fine.
        let server = Mux::new(End::Server, SESSIONS_MAX);
        assert_eq!(outcome(&server, &frames[..frames.len() - 1]), Ok(()));
    }
    let to_ship: [(u32, Frame<'static>); 10] = [
        (0, Frame::Open),
        (1, Frame::Data(b"x")),
        (1, Frame::End),
        (0, Frame::Credit(WINDOW_BYTES)),
        (0, Frame::Group(1)),
        (0, Frame::Turn(2)),
        (0, Frame::Ping),
        (0, Frame::Gone),
        (u32::MAX, Frame::Credit(1)),
        (u32::MAX, Frame::Data(b"x")),
    ];
    for frame in to_ship {
        let ship = Mux::new(End::Ship, SESSIONS_MAX);
        let _pipe = ship.open().expect("room");
        assert!(ship.take_out(&mut Vec::new()), "group 1 is under way");
        assert!(outcome(&ship, &[frame]).is_err(), "{frame:?}");
    }
}

/// A client that has said all may still read; one that is gone does not, whenever that is heard.
#[test]
fn a_client_that_said_all_is_answered_and_one_that_is_gone_is_not() {
    let (ship, server) = ends();
    let (mut near, mut far) = session(&ship, &server);
    near.finish();
    pump(&ship, &server);
    assert_eq!(read(&mut far, 10), Some(Vec::new()));
    assert_eq!(write(&mut far, b"answer"), Some(6));
    pump(&server, &ship);
    assert_eq!(read(&mut near, 10), Some(b"answer".to_vec()));
    // They cross.
    drop((near, far));
    pump(&server, &ship);
    pump(&ship, &server);
    pump(&server, &ship);
    let (near, far) = session(&ship, &server);
    assert_eq!((near.session, far.session), (0, 0), "its number is free again");
}

fn outcome(mux: &Mux, frames: &[(u32, Frame<'_>)]) -> Result<(), Violation> {
    let mut bytes = Vec::new();
    frames.iter().for_each(|(session, frame)| frame.write(*session, &mut bytes));
    mux.receive(&mut BytesMut::from(&bytes[..])).map(drop)
}
