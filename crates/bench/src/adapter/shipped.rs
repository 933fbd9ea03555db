//! `freshet ship` before our own server: clients of an application's host, whose requests travel together.

use super::child::{Server, free_address};
use super::freshet_wire::program;
use super::wire::{Address, ask, lasting};
use crate::error::BenchError;
use crate::scratch::Scratch;
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

pub struct Shipped {
    address: Address,
    server: Server,
    /// Of its socket file. Not where the databases are: the path of a socket is short.
    _socket: Scratch,
}

impl Shipped {
    /// Ships to the server at `to`.
    pub fn start(dir: &Path, to: Address) -> Result<Shipped, BenchError> {
        let at = free_address()?;
        let mut command = Command::new(program()?);
        let socket = Scratch::new(&std::env::temp_dir(), "freshet-ship")?;
        command.arg("ship").args(["--listen", &at.to_string(), "--to", &to.at.to_string()]);
        command.arg("--socket").arg(socket.path());
        if let Ok(links) = std::env::var("FRESHET_SHIP_LINKS") {
            command.args(["--links", &links]);
        }
        let mut server = Server::start("freshet-ship", command, dir, Signal::INT)?;
        let address = Address { at, socket: lasting(Some(socket.path())), ..to };
        server.wait_until(|| ask(address, "SELECT 1").map(drop))?;
        Ok(Shipped { address, server, _socket: socket })
    }

    /// By its socket file.
    pub fn address(&self) -> Address {
        self.address
    }

    pub fn server(&self) -> &Server {
        &self.server
    }
}
