//! How do the bytes of many sockets travel by one system call? As the sends or receives of one submission to a ring of io_uring, each of which takes
//! or gives what there is and waits for nothing.
//!
//! What it is for: a send to a client of the same machine wakes the client's thread, and so does a receive from a Unix socket whose other end is
//! watched for room, as those of event loops are. The kernel may give that thread this one's processor at the end of the call: by one call for all
//! sockets of a turn that happens once, not once for each (docs/internals/cost.md).
//!
//! Invariants:
//! 1. The ring is empty between two calls: each returns when all that it submitted is over. So the kernel reads only bytes and uses only descriptors
//!    that the call's batch lends, and writes only to the ring's own buffers; and it copies, as `send(2)` and `recv(2)` do.
//! 2. No code of the caller runs between the first entry that goes into the ring and the end of the last.
//! 3. Nothing submitted ever waits (`MSG_DONTWAIT`): it is over when the call that submits it returns. A call that fails and has begun something all
//!    the same ends the process.

use io_uring::{IoUring, opcode, squeue, types};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Sockets of one call at most.
pub const BATCH_MAX: usize = 64;

/// What one receive gives at most.
pub const RECEIVE_BYTES: usize = 4 << 10;

/// `MSG_DONTWAIT` and `MSG_NOSIGNAL` of Linux's `socket.h`, the same on every architecture.
const DONT_WAIT: i32 = 0x40;
const NO_SIGNAL: i32 = 0x4000;

/// What is sent in a batch.
pub trait Outgoing {
    fn socket(&self) -> BorrowedFd<'_>;
    fn bytes(&self) -> &[u8];
}

/// A ring for the sockets of the thread that made it.
pub struct Sockets {
    ring: IoUring,
    entries: Vec<squeue::Entry>,
    results: Vec<i32>,
    /// [`RECEIVE_BYTES`] for each socket of a batch; memory that no batch came to is none of the process's.
    received: Vec<u8>,
    is_broken: bool,
}

impl Sockets {
    /// An error where the kernel has no io_uring, is too old (5.19) or does not let this process use it, as in most containers.
    pub fn new() -> io::Result<Sockets> {
        let ring = IoUring::builder().setup_submit_all().setup_coop_taskrun().build(BATCH_MAX as u32)?;
        let (entries, results) = (Vec::with_capacity(BATCH_MAX), Vec::with_capacity(BATCH_MAX));
        Ok(Sockets { ring, entries, results, received: vec![0; BATCH_MAX * RECEIVE_BYTES], is_broken: false })
    }

    /// Whether the kernel once refused what it had allowed before. Nothing travels any more.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Sends each one's bytes, the first [`BATCH_MAX`] of the batch, and keeps how many of each have left.
    pub fn send<T: Outgoing>(&mut self, batch: &[T]) {
        self.entries.clear();
        for one in batch.iter().take(BATCH_MAX) {
            let bytes = one.bytes();
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let send = opcode::Send::new(types::Fd(one.socket().as_raw_fd()), bytes.as_ptr(), length);
            self.entries.push(send.flags(DONT_WAIT | NO_SIGNAL).build());
        }
        self.submit();
    }

    /// So many bytes of the batch's `number`th left. Where these are not all, its socket has no room for more or is broken, which a write of the rest
    /// will tell.
    pub fn sent(&self, number: usize) -> usize {
        self.results.get(number).map_or(0, |&result| usize::try_from(result).unwrap_or(0))
    }

    /// Receives from each socket, the first [`BATCH_MAX`] of the batch, at most [`RECEIVE_BYTES`], and keeps it.
    pub fn receive<T: AsFd>(&mut self, batch: &[T]) {
        self.entries.clear();
        for (one, room) in batch.iter().zip(self.received.chunks_exact_mut(RECEIVE_BYTES)) {
            let socket = types::Fd(one.as_fd().as_raw_fd());
            let receive = opcode::Recv::new(socket, room.as_mut_ptr(), RECEIVE_BYTES as u32);
            self.entries.push(receive.flags(DONT_WAIT).build());
        }
        self.submit();
    }

    /// What the batch's `number`th received. Nothing where nothing was there, where the other end is gone, or where the socket is broken, which a read
    /// will tell.
    pub fn received(&self, number: usize) -> &[u8] {
        let at = number * RECEIVE_BYTES;
        &self.received[at..at + self.sent(number)]
    }

    /// Does what the entries say, each by its place, and leaves its result.
    fn submit(&mut self) {
        let mut left = self.entries.len();
        self.results.clear();
        self.results.resize(left, 0);
        if self.is_broken {
            return;
        }
        for (number, entry) in self.entries.iter_mut().enumerate() {
            entry.set_user_data(number as u64);
        }
        // SAFETY: bytes and descriptors live as long as the batch that the caller borrows, room in `received` as long as the ring, which nobody looks
        // at meanwhile; by invariants 1 and 2 nothing of the ring outlives the call.
        let pushed = unsafe { self.ring.submission().push_multiple(&self.entries) };
        pushed.expect("the ring is empty and has room for BATCH_MAX");
        while left > 0 {
            let submitted = self.ring.submit_and_wait(left);
            for over in self.ring.completion() {
                self.results[over.user_data() as usize] = over.result();
                left -= 1;
            }
            match submitted {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.give_up(left, &error),
            }
        }
    }

    /// The kernel takes nothing more, for want of memory as a rule. What it did not take goes with the ring.
    #[cold]
    fn give_up(&mut self, left: usize, error: &io::Error) {
        let untaken = self.ring.submission().len();
        assert!(untaken == left, "invariant (io::sockets, 3): what does not wait is over at once; after {error}");
        self.is_broken = true;
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    struct Letter(UnixStream, Vec<u8>);

    impl Outgoing for Letter {
        fn socket(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        fn bytes(&self) -> &[u8] {
            &self.1
        }
    }

    /// Where the machine has no io_uring there is nothing to test.
    fn sockets() -> Option<Sockets> {
        let sockets = Sockets::new();
        sockets.map_err(|error| println!("skipped: no io_uring here: {error}")).ok()
    }

    fn pair(text: &[u8]) -> (Letter, UnixStream) {
        let (here, there) = UnixStream::pair().expect("a pair of sockets");
        (Letter(here, text.to_vec()), there)
    }

    fn received(mut socket: &UnixStream, bytes: usize) -> Vec<u8> {
        let mut text = vec![0; bytes];
        socket.read_exact(&mut text).expect("they were sent");
        text
    }

    fn sent(sockets: &mut Sockets, letters: &[Letter]) -> Vec<usize> {
        sockets.send(letters);
        (0..letters.len()).map(|number| sockets.sent(number)).collect()
    }

    fn came(sockets: &mut Sockets, from: &[&UnixStream]) -> Vec<Vec<u8>> {
        sockets.receive(from);
        (0..from.len()).map(|number| sockets.received(number).to_vec()).collect()
    }

    #[test]
    fn each_gets_its_own_and_the_ring_is_used_again_and_again() {
        let Some(mut sockets) = sockets() else { return };
        let texts = |round: usize| (0..BATCH_MAX + 3).map(move |n| format!("{round} for {n}").into_bytes());
        for round in 0..5 {
            let (letters, ends): (Vec<Letter>, Vec<UnixStream>) = texts(round).map(|text| pair(&text)).unzip();
            let sent = super::tests::sent(&mut sockets, &letters);
            assert_eq!(sent[BATCH_MAX..], [0; 3], "the first ones");
            // Back the same way: those who sent something are told what it was.
            for ((letter, mut end), sent) in letters.iter().zip(&ends).zip(&sent).take(BATCH_MAX) {
                assert_eq!((*sent, received(end, *sent)), (letter.1.len(), letter.1.clone()));
                end.write_all(&letter.1).expect("room");
            }
            let here: Vec<&UnixStream> = letters.iter().map(|letter| &letter.0).collect();
            assert_eq!(came(&mut sockets, &here[..BATCH_MAX]), texts(round).take(BATCH_MAX).collect::<Vec<_>>());
            assert_eq!(came(&mut sockets, &here[..BATCH_MAX]), vec![vec![]; BATCH_MAX], "nothing is left");
        }
        sockets.send::<Letter>(&[]);
        sockets.receive::<UnixStream>(&[]);
    }

    #[test]
    fn one_without_room_or_without_a_client_keeps_nobody() {
        let Some(mut sockets) = sockets() else { return };
        // Blocking sockets, whose sends would wait.
        let (mut full, full_end) = pair(b"");
        full.1 = vec![7; 8 << 20];
        let (gone, gone_end) = pair(b"nobody takes this");
        drop(gone_end);
        let (well, well_end) = pair(b"well");
        let letters = [full, gone, well];
        let first = sent(&mut sockets, &letters);
        assert!(first[0] > 0 && first[0] < letters[0].1.len(), "what there was room for: {}", first[0]);
        assert_eq!(first[1..], [0, 4]);
        assert_eq!(sent(&mut sockets, &letters[..1]), [0], "no room is left");
        assert_eq!(received(&well_end, 4), b"well");
        assert_eq!(received(&full_end, first[0]), vec![7; first[0]]);
        assert!(sent(&mut sockets, &letters[..1])[0] > 0 && !sockets.is_broken());
    }

    #[test]
    fn a_receive_gives_what_is_there_and_the_rest_the_next_time() {
        let Some(mut sockets) = sockets() else { return };
        let (mut full, here) = UnixStream::pair().expect("a pair of sockets");
        let (silent, silent_here) = UnixStream::pair().expect("a pair of sockets");
        let (gone, gone_here) = UnixStream::pair().expect("a pair of sockets");
        drop(gone);
        let bytes: Vec<u8> = (0..RECEIVE_BYTES + 9).map(|n| n as u8).collect();
        full.write_all(&bytes).expect("room");
        let all = [&silent_here, &here, &gone_here];
        assert_eq!(came(&mut sockets, &all), [vec![], bytes[..RECEIVE_BYTES].to_vec(), vec![]]);
        assert_eq!(came(&mut sockets, &all), [vec![], bytes[RECEIVE_BYTES..].to_vec(), vec![]]);
        drop(silent);
    }
}
