//! [`Place`]: address of the rendezvous, and the listener at it.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::Secret;

/// Address `HOST:PORT`.
pub(super) struct Place {
    host: String,
    port: u16,
}

impl Place {
    /// # Errors
    /// When the text is no host and port.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("the rendezvous {text:?} is no HOST:PORT, such as node0:29400 or [::1]:29400");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        if host.is_empty() || (host.contains(':') && bare.is_none()) {
            return Err(wrong());
        }
        let port: u16 = port.parse().map_err(|_| wrong())?;
        if port == 0 {
            return Err(format!("the rendezvous {text:?} has port 0; give one that all ranks know"));
        }
        Ok(Self { host: host.to_owned(), port })
    }

    /// Resolves all addresses of the host.
    ///
    /// # Errors
    /// When it has none.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        let unknown = |why: &str| {
            format!("the host of the rendezvous {self} is unknown ({why}); give rank 0's host as all hosts know it")
        };
        let found: Vec<SocketAddr> =
            (self.host.as_str(), self.port).to_socket_addrs().map_err(|error| unknown(&error.to_string()))?.collect();
        if found.is_empty() { Err(unknown("it has no address")) } else { Ok(found) }
    }

    /// Listener of rank 0, bound to one address of the place only.
    ///
    /// # Errors
    /// When it cannot listen there.
    pub fn listen(&self) -> Result<TcpListener, String> {
        let mut addresses = self.addresses()?;
        // Some hosts also resolve their own name to a loopback address, where other hosts cannot reach them.
        addresses.sort_by_key(|address| address.ip().is_loopback());
        for address in &addresses {
            match TcpListener::bind(address) {
                Ok(listener) => return Ok(listener),
                Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {}
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    return Err(format!(
                        "rank 0 cannot listen at {self}: the port is taken by another program; give another one"
                    ));
                }
                Err(error) => return Err(format!("rank 0 cannot listen at {self}: {error}")),
            }
        }
        let meant: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
        let means = if self.host.parse::<IpAddr>().is_ok() {
            "the address is none of its host".to_owned()
        } else {
            format!("{} means {} there, and the address is none of its host", self.host, meant.join(", "))
        };
        Err(format!("rank 0 cannot listen at {self}: {means}; give an address of rank 0's host"))
    }

    /// Requires a secret if other hosts can connect.
    ///
    /// # Errors
    /// How to create a secret. Also when the host has no address.
    pub fn require_secret(&self, secret: &Secret) -> Result<(), String> {
        if !secret.is_none() || self.is_loopback()? {
            return Ok(());
        }
        Err(format!(
            "other hosts can connect to {self}, so ranks need a secret: make one with `openssl rand -hex 32 > FILE; chmod \
             600 FILE`, copy it to all hosts, and give --secret-file FILE or GIRIH_SECRET_FILE=FILE on all of them"
        ))
    }

    /// Whether only processes of this host can connect, as this host resolves the name.
    fn is_loopback(&self) -> Result<bool, String> {
        Ok(self.addresses()?.iter().all(|address| address.ip().is_loopback()))
    }

    /// Suffix of a message about missing ranks, if other hosts cannot reach the address that this host resolves.
    pub fn unreachable(&self) -> String {
        if self.is_this_host() || !self.is_loopback().unwrap_or(false) {
            return String::new();
        }
        format!("; {} means a loopback address on rank 0's host, which no other host reaches: give another", self.host)
    }

    /// Whether the text itself names the local host.
    fn is_this_host(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost") || self.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Connects to the first address that accepts, with at most `wait` for each.
pub(super) fn connect(addresses: &[SocketAddr], wait: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpStream::connect_timeout(address, wait) {
            // The system may give a port without a listener to this client, which then connects to itself.
            Ok(stream) if stream.local_addr()? == stream.peer_addr()? => last = ErrorKind::ConnectionRefused.into(),
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_hosts_and_ports() {
        for (text, shown, local) in [
            ("node0:29400", "node0:29400", false),
            ("127.3.2.1:1", "127.3.2.1:1", true),
            ("localhost:65535", "localhost:65535", true),
            ("[::1]:80", "[::1]:80", true),
            ("10.0.0.1:80", "10.0.0.1:80", false),
        ] {
            let place = Place::parse(text).unwrap();
            assert_eq!((place.to_string().as_str(), place.is_this_host()), (shown, local));
        }
        for text in ["", "node0", "node0:", ":80", "node0:x", "node0:70000", "::1:80", "node0:0"] {
            assert!(Place::parse(text).is_err_and(|why| why.contains(&format!("{text:?}"))), "{text}");
        }
    }
}
