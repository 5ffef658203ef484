//! [`Place`]: where ranks meet, and what they listen at.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// `HOST:PORT`.
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

    /// All addresses of the host.
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

    /// Rank 0's end.
    ///
    /// # Errors
    /// When it cannot listen there.
    pub fn listen(&self) -> Result<TcpListener, String> {
        self.addresses()?;
        let listener = match self.host.parse::<IpAddr>() {
            Ok(ip) => TcpListener::bind((ip, self.port)),
            Err(_) if self.is_this_host() => TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)),
            // A name may mean another address here than elsewhere.
            Err(_) => everywhere(self.port),
        };
        listener.map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => {
                format!("rank 0 cannot listen at {self}: the port is taken by another program; give another one")
            }
            ErrorKind::AddrNotAvailable => {
                format!("rank 0 cannot listen at {self}: the address is none of its host; give that of rank 0's host")
            }
            _ => format!("rank 0 cannot listen at {self}: {error}"),
        })
    }

    /// Any port, for other ranks; reachable from other hosts where the place is.
    pub fn listen_nearby(&self) -> io::Result<TcpListener> {
        match self.host.parse() {
            Ok(IpAddr::V6(ip)) if ip.is_loopback() => TcpListener::bind((ip, 0)),
            _ if self.is_this_host() => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)),
            _ => everywhere(0),
        }
    }

    /// Whether only processes of one host can meet there.
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

/// A listener on all interfaces: both protocols, or the older one where the newer is missing.
fn everywhere(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).or_else(|error| match error.kind() {
        ErrorKind::AddrInUse => Err(error),
        _ => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
    })
}

/// A connection to the first address that takes one, each tried for at most `wait`.
pub(super) fn connect(addresses: &[SocketAddr], wait: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpStream::connect_timeout(address, wait) {
            // A port that nobody listens at may be given to the caller, who then meets itself.
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
