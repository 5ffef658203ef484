//! Independent implementation of the protocol between ranks, for tests with unknown clients and misbehaving ranks.

#![allow(dead_code)] // each test program needs a part

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use girih_comm::Secret;
use girih_comm::tcp::Options;
use hmac::{Hmac, Mac};
use sha2::Sha256;

pub const SOON: Duration = Duration::from_secs(20);

/// Secret of the tests.
pub const KEY: [u8; 32] = [0x5a; 32];

pub const GREETING: usize = 44;
const STATEMENT: usize = 44 + 8 + 8 + 2 + 32;

/// Kinds of frames.
pub const WELCOME: u8 = 1;
pub const READY: u8 = 3;
pub const GO: u8 = 4;
pub const BEAT: u8 = 5;
pub const PARCEL: u8 = 6;
pub const GOODBYE: u8 = 8;
pub const PAUSE: u8 = 9;
pub const RESUME: u8 = 10;

pub fn secret(key: &[u8; 32]) -> Secret {
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    Secret::detect(None, |name| (name == Secret::VARIABLE).then(|| hex.clone())).unwrap()
}

pub fn options(rank: usize, size: usize, rendezvous: &str) -> Options {
    Options {
        rank,
        size,
        rendezvous: rendezvous.to_owned(),
        job: "test".to_owned(),
        secret: secret(&KEY),
        start_deadline: SOON,
        deadline: SOON,
    }
}

/// Encoded frame: mark, kind, length, body, and the checksum of all but the mark.
pub fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = [b"girih", &[kind][..], &(body.len() as u64).to_le_bytes(), body].concat();
    let checksum = crc32fast::hash(&frame[5..]);
    frame.extend(checksum.to_le_bytes());
    frame
}

/// Frame of a parcel for exchange `number` of the group with this path.
pub fn parcel(path: &[u64], number: u64, call: &str, bytes: &[u8]) -> Vec<u8> {
    let path: Vec<u8> = [path.len() as u64].iter().chain(path).chain(&[number]).flat_map(|n| n.to_le_bytes()).collect();
    frame(PARCEL, &[&path, &text(call)[..], bytes].concat())
}

/// Connection of rank 1 of 2, with the right secret, after the start of the job.
pub fn join(place: &str) -> TcpStream {
    let mut one = connect(place);
    assert_eq!(Client::new(1, 2).prove(&mut one), Some(true));
    one.write_all(&frame(READY, &[])).unwrap();
    read_until(&mut one, GO);
    one
}

pub fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

pub fn connect(place: &str) -> TcpStream {
    let start = Instant::now();
    loop {
        match TcpStream::connect(place) {
            Ok(stream) => return stream,
            Err(error) => assert!(start.elapsed() < SOON, "{error}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Client with the fields and the key of its claim.
#[derive(Clone, Debug)]
pub struct Client {
    pub rank: u64,
    pub size: u64,
    pub port: u16,
    pub version: String,
    pub key: [u8; 32],
    pub job: String,
    /// 0 at the rendezvous, 1 in the mesh.
    pub purpose: u8,
    pub listener: u64,
}

impl Client {
    pub fn new(rank: u64, size: u64) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { rank, size, port: 9, version, key: KEY, job: "test".to_owned(), purpose: 0, listener: 0 }
    }

    pub fn claim(&self, greeting: &[u8]) -> Vec<u8> {
        let mut version = self.version.clone().into_bytes();
        version.resize(32, 0);
        let (rank, size, port) = (self.rank.to_le_bytes(), self.size.to_le_bytes(), self.port.to_le_bytes());
        let statement = [b"girihtcp", &2u32.to_le_bytes()[..], &[3; 32], &rank, &size, &port, &version].concat();
        let proof = self.proof(1, greeting, &statement);
        [statement, proof].concat()
    }

    /// HMAC-SHA-256 of the shared facts, as the listener (role 0) or the client (role 1).
    fn proof(&self, role: u8, greeting: &[u8], statement: &[u8]) -> Vec<u8> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).unwrap();
        mac.update(b"girih ranks");
        mac.update(&[role, self.purpose]);
        mac.update(&self.listener.to_le_bytes());
        mac.update(greeting);
        mac.update(statement);
        mac.update(self.job.as_bytes());
        mac.finalize().into_bytes().to_vec()
    }

    /// Authenticates to a listener. Returns whether the listener accepts and proves itself; `None` if it disconnects.
    pub fn prove(&self, stream: &mut TcpStream) -> Option<bool> {
        let mut greeting = [0; GREETING];
        stream.read_exact(&mut greeting).ok()?;
        assert_eq!(greeting[..12], *b"girihtcp\x02\0\0\0");
        let claim = self.claim(&greeting);
        stream.write_all(&claim).ok()?;
        let mut verdict = [0; 33];
        stream.read_exact(&mut verdict).ok()?;
        let is_welcome = verdict[0] == 0;
        let expected = self.proof(0, &greeting, &claim[..STATEMENT]);
        assert_eq!(verdict[1..] == expected[..], is_welcome, "a listener that welcomes proves itself");
        Some(is_welcome)
    }
}

/// Accepts a client, as the listener.
pub fn welcome(stream: &mut TcpStream, key: [u8; 32]) {
    let greeting = [&b"girihtcp\x02\0\0\0"[..], &[4; 32]].concat();
    stream.write_all(&greeting).unwrap();
    let mut claim = [0; STATEMENT + 32];
    stream.read_exact(&mut claim).unwrap();
    let client = Client { key, ..Client::new(1, 2) };
    let proof = client.proof(0, &greeting, &claim[..STATEMENT]);
    stream.write_all(&[vec![0], proof].concat()).unwrap();
}

/// Reads frames until one of the given kind, and returns its body.
pub fn read_until(stream: &mut TcpStream, kind: u8) -> Vec<u8> {
    loop {
        let mut head = [0; 14];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(head[..5], *b"girih");
        let len = u64::from_le_bytes(head[6..].try_into().unwrap());
        let mut body = vec![0; len as usize];
        stream.read_exact(&mut body).unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
        if head[5] == kind {
            return body;
        }
    }
}

/// Addresses in the body of a welcome frame.
pub fn addresses(body: &[u8]) -> Vec<String> {
    let number = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().unwrap()) as usize;
    let mut at = 8;
    let mut next = || {
        let (from, len) = (at + 8, number(at));
        at = from + len;
        String::from_utf8(body[from..at].to_vec()).unwrap()
    };
    (0..number(0)).map(|_| next()).collect()
}

/// Listener at a free port, and its address.
pub fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap().to_string();
    (listener, place)
}
