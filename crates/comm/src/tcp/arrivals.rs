//! [`Arrivals`]: who connects to a rank and says who it is.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use super::SILENCE;
use super::frame::{Frame, Hello, LONGEST_GREETING};

/// Somebody who said hello.
pub(super) struct Arrival {
    pub stream: TcpStream,
    pub from: SocketAddr,
    pub hello: Hello,
}

/// A listener, and those who come. Whoever connects without a hello (a scanner of ports, a browser) is let go.
pub(super) struct Arrivals {
    listener: TcpListener,
    tell: Sender<Arrival>,
    told: Receiver<Arrival>,
}

impl Arrivals {
    pub fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (tell, told) = mpsc::channel();
        Ok(Self { listener, tell, told })
    }

    /// The next one, if one comes soon.
    pub fn next(&self, wait: Duration) -> Option<Arrival> {
        while let Ok((stream, from)) = self.listener.accept() {
            let tell = self.tell.clone();
            // A thread each: who says nothing keeps nobody waiting.
            let greet = move || {
                if let Ok(Frame::Hello(hello)) = first_word(&stream) {
                    // Nobody is told once all have come.
                    let _ = tell.send(Arrival { stream, from, hello });
                }
            };
            if thread::Builder::new().spawn(greet).is_err() {
                break;
            }
        }
        self.told.recv_timeout(wait).ok()
    }
}

fn first_word(stream: &TcpStream) -> io::Result<Frame> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(SILENCE))?;
    Frame::read(&mut &*stream, LONGEST_GREETING)
}

/// What lies ready at a connection: a number of bytes, its end (0) or its failure; `None` while it is silent.
pub(super) fn ready(stream: &TcpStream) -> Option<io::Result<usize>> {
    let look = || {
        stream.set_nonblocking(true)?;
        let found = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        found
    };
    match look() {
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        found => Some(found),
    }
}

/// Whether the other end is there.
pub(super) fn is_open(stream: &TcpStream) -> bool {
    !matches!(ready(stream), Some(Ok(0) | Err(_)))
}
