//! Seeds of stores, specifications and frames.

use girih_compress::CompressedFeatures;
use girih_graph_format::Matrix;

use super::written_one;
use crate::Input;

pub(crate) fn stores() -> Vec<Input> {
    let rows = Matrix::new(12, 16, (0..12 * 16).map(|i| (i * 7 % 31) as f32 - 15.0).collect::<Vec<_>>()).expect("rows");
    let store = |spec: &&str| {
        let features = CompressedFeatures::fitted(spec.parse().expect("a codec"), &rows, 1).expect("codes");
        written_one("features.codes", |path| features.save(path).expect("a file"))
    };
    ["topk:8", "topk-residual:8", "f16", "int8", "int4", "pca:2", "pq:2"].iter().map(store).collect()
}

pub(crate) fn specs() -> Vec<Input> {
    let texts = [
        "synth:planted,nodes=12,degree=3,features=3,classes=3",
        "synth:rmat,scale=4,degree=2",
        "synth:yelp@0.00003,features=4,degree=3",
        "synth:igbh-tiny@0.002,features=2,classes=3",
        "synth:aifb-like@0.05,classes=2,seed=7",
        "synth:planted,nodes=9,degree=3,train=0.5,val=0.25,test=0.25,mix=0.1,gamma=2.5,seed=7,features=2",
        "topk:8",
        "random-walk:16",
        "10,5,-1",
    ];
    texts.iter().map(|text| Input::one("spec.txt", text.as_bytes())).collect()
}

/// Frame: mark, kind, length, body, and the checksum of the last three.
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let checked = [&[kind][..], &(body.len() as u64).to_le_bytes(), body].concat();
    [b"girih", &checked[..], &crc32fast::hash(&checked).to_le_bytes()].concat()
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

pub(crate) fn frames() -> Vec<Input> {
    let number = |n: u64| n.to_le_bytes().to_vec();
    let welcome = frame(1, &[number(2), text("127.0.0.1:9"), text("[::1]:80")].concat());
    let parcel = frame(6, &[number(2), number(1), number(0), number(7), text("all_reduce"), vec![3; 40]].concat());
    let failed = frame(7, &[number(3), text("out of memory")].concat());
    let all = [welcome.clone(), frame(3, &[]), frame(4, &[]), frame(5, &[]), parcel.clone(), frame(8, &[])].concat();
    let seeds = [welcome, frame(2, &text("too late")), parcel, failed, all];
    seeds.into_iter().map(|bytes| Input::one("frames.bin", bytes)).collect()
}

pub(crate) fn greetings() -> Vec<Input> {
    let greeting = [&b"girihtcp\x02\0\0\0"[..], &[4; 32]].concat();
    let mut version = b"0.1.0".to_vec();
    version.resize(32, 0);
    let (rank, size, port) = (1u64.to_le_bytes(), 2u64.to_le_bytes(), 9u16.to_le_bytes());
    let claim = [&b"girihtcp\x02\0\0\0"[..], &[3; 32], &rank, &size, &port, &version, &[0; 32]].concat();
    vec![Input::one("greeting.bin", [greeting, claim].concat())]
}
