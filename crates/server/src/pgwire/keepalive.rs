//! What does a socket do about a peer that is silent? What the session's settings say (`tcp_keepalives_*`, `tcp_user_timeout`), as in PostgreSQL: 0
//! is what the system does by itself.

use freshet_db::sql::settings::Keepalive;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// A connection's, and what the system does by itself, once that is known.
#[derive(Default)]
pub struct Applied {
    now: Keepalive,
    usual: Option<Keepalive>,
}

impl Applied {
    /// Makes the socket do what is wanted, where that has changed.
    pub fn follow(&mut self, wanted: Keepalive, socket: &impl AsFd) {
        if self.now == wanted {
            return;
        }
        self.now = wanted;
        if let Err(error) = self.apply(wanted, socket) {
            tracing::warn!(%error, "a connection's keepalive stays as it is");
        }
    }

    fn apply(&mut self, wanted: Keepalive, socket: &impl AsFd) -> io::Result<()> {
        let socket = SockRef::from(socket);
        let usual = match self.usual {
            Some(usual) => usual,
            None => *self.usual.insert(read(&socket)?),
        };
        let or = |wanted: Duration, usual: Duration| if wanted.is_zero() { usual } else { wanted };
        let count = if wanted.count == 0 { usual.count } else { wanted.count };
        let keepalive = TcpKeepalive::new()
            .with_time(or(wanted.idle, usual.idle))
            .with_interval(or(wanted.interval, usual.interval))
            .with_retries(count);
        socket.set_tcp_keepalive(&keepalive)?;
        let timeout = or(wanted.user_timeout, usual.user_timeout);
        socket.set_tcp_user_timeout(Some(timeout).filter(|timeout| !timeout.is_zero()))
    }
}

fn read(socket: &SockRef<'_>) -> io::Result<Keepalive> {
    Ok(Keepalive {
        idle: socket.tcp_keepalive_time()?,
        interval: socket.tcp_keepalive_interval()?,
        count: socket.tcp_keepalive_retries()?,
        user_timeout: socket.tcp_user_timeout()?.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn sockets_follow_and_go_back() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let usual = read(&SockRef::from(&socket)).unwrap();
        let wanted = Keepalive {
            idle: Duration::from_secs(31),
            interval: Duration::from_secs(7),
            count: 3,
            user_timeout: Duration::from_millis(1500),
        };
        let mut applied = Applied::default();
        applied.follow(wanted, &socket);
        assert_eq!(read(&SockRef::from(&socket)).unwrap(), wanted);
        assert!(SockRef::from(&socket).keepalive().unwrap());
        applied.follow(Keepalive { count: 5, ..Keepalive::default() }, &socket);
        assert_eq!(read(&SockRef::from(&socket)).unwrap(), Keepalive { count: 5, ..usual });
        applied.follow(Keepalive::default(), &socket);
        assert_eq!(read(&SockRef::from(&socket)).unwrap(), usual);
    }
}
