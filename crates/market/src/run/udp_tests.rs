//! A day by UDP: whole, with everything that a network does to it, and after a stop in the middle.

use super::*;
use crate::datagram::Packer;
use crate::feed::format_line;
use clap::Parser;
use std::net::{Ipv4Addr, UdpSocket};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    market: MarketArgs,
}

const MESSAGES: u64 = 3_000;

fn args(data: &Path, udp: SocketAddr) -> MarketArgs {
    let (data, udp) = (data.to_str().expect("UTF-8"), udp.to_string());
    let words =
        ["market", "--data", data, "--stocks", "12", "--messages", "3000", "--listen", "none", "--appliers", "2"];
    let words = words.into_iter().chain(["--query-sessions", "0", "--udp", &udp]);
    Cli::try_parse_from(words).expect("valid options").market
}

fn free_address() -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    socket.local_addr().expect("bound")
}

fn run(args: &MarketArgs, abandon_after: Option<u64>) -> Option<Report> {
    let terms = Terms { options: Options::small(&args.data), abandon_after };
    carry_out(args, terms, |_, _| panic!("--listen none opens no listener")).expect("the run ends")
}

/// The generated day's datagrams, some messages in each, and its end.
fn datagrams(args: &MarketArgs) -> (Vec<Vec<u8>>, Vec<u8>) {
    let day = open_day(args).expect("generated");
    let mut packer = Packer::new(*b"0000000042");
    let (mut all, mut line) = (Vec::new(), String::new());
    let mut messages = day.messages().expect("generated");
    while let Some(message) = messages.next_message().expect("generated") {
        line.clear();
        format_line(&message, &day.listing.stock(message.stock).code, &mut line);
        if !packer.has_room(line.len()) {
            all.push(packer.send(<[u8]>::to_vec));
        }
        packer.push(line.as_bytes());
    }
    all.push(packer.send(<[u8]>::to_vec));
    (all, packer.send_end(<[u8]>::to_vec))
}

/// Sends slowly enough for any receiver's buffer, and the end until nobody listens.
fn send(to: SocketAddr, datagrams: &[Vec<u8>], end: &[u8], is_over: &AtomicBool) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    // What is sent before somebody listens is lost.
    socket.connect(to).expect("an address");
    while socket.send(b"is anybody there?").is_err() || refused(&socket) {
        std::thread::sleep(Duration::from_millis(5));
    }
    for (at, datagram) in datagrams.iter().enumerate() {
        let _ = socket.send(datagram);
        if at % 10 == 9 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    while !is_over.load(Ordering::Relaxed) {
        let _ = socket.send(end);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The kernel says so, a moment later.
fn refused(socket: &UdpSocket) -> bool {
    std::thread::sleep(Duration::from_millis(5));
    socket.take_error().expect("an answer").is_some()
}

/// Runs while somebody sends.
fn run_sent(args: &MarketArgs, datagrams: &[Vec<u8>], end: &[u8], abandon_after: Option<u64>) -> Option<Report> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| send(args.udp.expect("given"), datagrams, end, &is_over));
        let report = run(args, abandon_after);
        is_over.store(true, Ordering::Relaxed);
        report
    })
}

#[test]
fn a_day_by_udp_is_applied_and_checks() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let args = args(directory.path(), free_address());
    let to = args.udp.expect("given");
    let report = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&args, None).expect("not abandoned"));
        let mut sends = 0;
        // The program's own sender; again from the start where nobody listened yet, or where the end was lost.
        while !running.is_finished() {
            let day = open_day(&args).expect("generated");
            let sent = live::send(&day, to, Speed::Max).expect("loopback");
            assert_eq!(sent.messages, MESSAGES);
            sends += 1;
            assert!(sends < 100, "nobody hears the end");
        }
        running.join().expect("it ran")
    });
    assert_eq!(report.check, "ok");
    let udp = report.udp.expect("told");
    // Where the machine was too busy to receive, that was told.
    assert_eq!(udp.messages + udp.lost_messages, MESSAGES, "{udp:?}");
    assert_eq!(report.messages, udp.messages);
}

/// Two are lost, each comes twice, neighbours change places, and others talk into it.
#[test]
fn gaps_are_counted_and_order_is_restored() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let args = args(directory.path(), free_address());
    let (sent, end) = datagrams(&args);
    let count = |at: usize| u64::from(u16::from_be_bytes([sent[at][18], sent[at][19]]));
    let lost = [40, 41, 100];
    let lost_messages: u64 = lost.iter().map(|&at| count(at)).sum();
    let mut mixed = Vec::new();
    for pair in (0..sent.len()).collect::<Vec<_>>().chunks(2) {
        for &at in pair.iter().rev().chain(pair) {
            if !lost.contains(&at) {
                mixed.push(sent[at].clone());
            }
        }
    }
    mixed.insert(50, b"rubbish".to_vec());
    let mut foreign = sent[7].clone();
    foreign[..10].copy_from_slice(b"elsewhere!");
    mixed.insert(60, foreign);
    let report = run_sent(&args, &mixed, &end, None).expect("not abandoned");
    assert_eq!(report.check, "ok");
    let udp = report.udp.expect("told");
    assert_eq!((udp.messages, udp.lost_messages), (MESSAGES - lost_messages, lost_messages), "{udp:?}");
    assert_eq!((udp.gaps, udp.foreign_datagrams), (2, 1), "{udp:?}");
    assert!(udp.malformed_datagrams >= 1 && udp.early_datagrams > 0, "{udp:?}");
    assert_eq!(report.messages, udp.messages);
    let again = run(&args, None).expect("not abandoned");
    assert_eq!((again.outcome, again.check.as_str()), ("done before", "ok"), "it is checked by what was received");
}

#[test]
fn a_run_that_was_stopped_goes_on_where_it_was() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let args = args(directory.path(), free_address());
    let (sent, end) = datagrams(&args);
    let half = sent.len() / 2;
    let half_messages: u64 = sent[..half].iter().map(|d| u64::from(u16::from_be_bytes([d[18], d[19]]))).sum();
    // Its end says that it is all, so that this run ends.
    let mut early_end = end.clone();
    early_end[10..18].copy_from_slice(&(half_messages + 1).to_be_bytes());
    assert!(run_sent(&args, &sent[..half], &early_end, Some(300)).is_none(), "abandoned");
    let report = run_sent(&args, &sent, &end, None).expect("not abandoned");
    assert_eq!(report.check, "ok");
    let udp = report.udp.expect("told");
    assert_eq!((udp.messages, udp.repeated_messages), (MESSAGES - half_messages, half_messages), "{udp:?}");
    assert_eq!(udp.gaps, 0);
    let file = MarketArgs { udp: None, ..args.clone() };
    let terms = Terms { options: Options::small(&file.data), abandon_after: None };
    let refused = carry_out(&file, terms, |_, _| panic!("no listener")).expect_err("another feed");
    assert!(refused.to_string().contains("by UDP"), "{refused}");
}
