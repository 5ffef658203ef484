//! `girih serve`, `girih embed` and `girih predict --nodes`: answers over HTTP and in files, and what is refused.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use girih_graph_format::file::{self, Array};
use serde_json::{Value, json};

use crate::girih::{SMALL, Workspace, command, girih, says};

/// A server in a process of its own, which ends with this value.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    /// Serves a trained model on a free port.
    fn start(checkpoint: &str, flags: &[&str]) -> Self {
        let words = [&["serve", "--checkpoint", checkpoint, "--listen", "127.0.0.1:0", "--json"], flags].concat();
        let mut process = command(&words).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let result: Value = serde_json::from_str(&line).unwrap();
        let address = result["address"].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
        Self { process, address }
    }

    /// Sends bytes, and returns all that comes back before the server closes.
    fn send(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(bytes).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    /// Status and body of a request.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: girih\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let response = self.send(format!("{head}{body}").as_bytes());
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Answer to a question.
    fn predict(&self, question: &Value) -> Value {
        let (status, body) = self.ask("POST", "/predict", &question.to_string());
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A folder with a trained model `run`.
fn trained(model: &str) -> Workspace {
    trained_with(model, &[])
}

fn trained_with(model: &str, more: &[&str]) -> Workspace {
    let work = Workspace::new();
    let flags = ["--model", model, "--hidden", "8", "--heads", "2", "--epochs", "3", "--out"];
    let flags = if model == "gat" { &flags[..] } else { &[&flags[..4], &flags[6..]].concat() };
    girih(&[&["train", SMALL], more, flags, &[&work.arg("run")]].concat()).ok();
    work
}

fn rows(file: &std::path::Path) -> Vec<Vec<f32>> {
    let matrix = Array::map(file).unwrap().into_matrix().unwrap();
    (0..matrix.n_rows()).map(|row| matrix.row(row).to_vec()).collect()
}

fn assert_rows(found: &Value, expected: &[&Vec<f32>]) {
    let found: Vec<Vec<f32>> = serde_json::from_value(found.clone()).unwrap();
    assert_eq!(found.len(), expected.len());
    for (a, b) in found.iter().flatten().zip(expected.iter().copied().flatten()) {
        assert!((a - b).abs() < 1e-4 * b.abs().max(1.0), "{a} instead of {b}");
    }
}

/// Features of two new nodes, and their edges in both directions.
fn new_nodes() -> (Vec<Vec<f32>>, [Vec<i64>; 2]) {
    let x = (0..2).map(|row| (0..24).map(|at| (at * 3 % 7 + row) as f32 / 8.0).collect()).collect();
    (x, [vec![4, 600, 600, 601], vec![600, 4, 601, 600]])
}

#[test]
fn answers_are_those_of_predict() {
    for (model, codec) in [("gcn", "none"), ("gat", "none"), ("sage", "topk:8"), ("gcn", "int8")] {
        let work = trained_with(model, &["--codec", codec]);
        let run = work.arg("run");
        girih(&["predict", "--checkpoint", &run, "--logits", "--out", &work.arg("all.npy")]).ok();
        let (x, edges) = new_nodes();
        let new = work.path("new");
        std::fs::create_dir(&new).unwrap();
        file::write_npy(&new.join("x.npy"), &[2, 24], &x.concat()).unwrap();
        file::write_npy(&new.join("edge_index.npy"), &[2, 4], &edges.concat()).unwrap();
        let new = new.to_str().unwrap();
        let flags = ["--nodes", new, "--logits", "--json", "--out"];
        let said = girih(&[&["predict", "--checkpoint", &run], &flags[..], &[&work.arg("new.npy")]].concat()).ok();
        assert_eq!(said.result()["nodes"], 2);
        let (all, grown) = (rows(&work.path("all.npy")), rows(&work.path("new.npy")));
        assert_eq!((all.len(), grown.len()), (600, 2));

        for flags in [&[][..], &["--fanout", "-1,-1"]] {
            let server = Server::start(&run, flags);
            let found = server.predict(&json!({ "nodes": [0, 599, 0], "logits": true }));
            assert_rows(&found["logits"], &[&all[0], &all[599], &all[0]]);
            assert_eq!(found["classes"].as_array().unwrap().len(), 3);
            let question = json!({ "new_nodes": { "x": x, "edge_index": edges }, "logits": true });
            assert_rows(&server.predict(&question)["logits"], &[&grown[0], &grown[1]]);
        }
    }
}

#[test]
fn bad_requests_get_a_reason() {
    let work = trained("sage");
    let server = Server::start(&work.arg("run"), &["--max-nodes", "4", "--max-body", "2000", "--timeout", "1"]);
    let (x, _) = new_nodes();
    let of_new = |edges: Value| json!({ "new_nodes": { "x": x, "edge_index": edges } }).to_string();
    for (body, why) in [
        ("", "the body is not as expected"),
        ("{\"nodes\": [0], \"n\": 1}", "unknown field `n`"),
        ("{}", "give either nodes or new_nodes"),
        ("{\"nodes\": []}", "no node is asked for"),
        ("{\"nodes\": [600]}", "there is no node 600; the graph has the nodes 0 to 599"),
        ("{\"nodes\": [-1]}", "invalid value"),
        ("{\"nodes\": [0, 1, 2, 3, 4]}", "5 nodes in one request; the limit is 4"),
        (
            "{\"new_nodes\": {\"x\": [[1.0]], \"edge_index\": [[], []]}}",
            "row 0 of x has 1 values; give the 24 features",
        ),
        (&of_new(json!([[0], [602]])), "names node 602"),
        (&of_new(json!([[0], [1]])), "joins 0 and 1"),
        (&of_new(json!([[0]])), "expected an array of length 2"),
    ] {
        let (status, said) = server.ask("POST", "/predict", body);
        assert!(status == 400 && said.contains(why), "{body}: {status} {said}");
    }
    assert_eq!(server.ask("POST", "/predict", &" ".repeat(2001)).0, 413);
    assert_eq!(server.ask("GET", "/predict", "").0, 405);
    assert_eq!(server.ask("GET", "/nothing", "").0, 404);
    // A body that does not arrive, a head that does not end, and a peer that does not speak HTTP.
    let late = server.send(b"POST /predict HTTP/1.1\r\nhost: g\r\nconnection: close\r\ncontent-length: 99\r\n\r\n{");
    assert!(late.starts_with("HTTP/1.1 408"), "{late}");
    let start = Instant::now();
    server.send(b"POST /predict HTT");
    server.send(b"\x16\x03\x01\x02\x00\x01\x00");
    assert!(start.elapsed() < Duration::from_secs(30));
    // None of them cost anything.
    let (status, health) = server.ask("GET", "/health", "");
    assert_eq!((status, health.as_str()), (200, "{\"status\":\"ok\"}"));
    assert_eq!(server.predict(&json!({ "nodes": [3] }))["classes"].as_array().unwrap().len(), 1);
    let metrics = server.ask("GET", "/metrics", "").1;
    assert!(metrics.contains("girih_responses_total{status=\"400\"} 11\n"), "{metrics}");
    assert!(metrics.contains("girih_waiting_questions 0\n"), "{metrics}");
}

#[test]
fn requests_beyond_the_queue_get_503() {
    let work = trained("sage");
    let server = Server::start(&work.arg("run"), &["--queue", "1", "--max-nodes", "1"]);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let one = || (0..60).map(|_| server.ask("POST", "/predict", "{\"nodes\": [1]}").0).collect::<Vec<_>>();
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(one)).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&200));
    let metrics = server.ask("GET", "/metrics", "").1;
    let refused = statuses.iter().filter(|&&status| status == 503).count();
    assert!(metrics.contains(&format!("girih_responses_total{{status=\"503\"}} {refused}\n")), "{metrics}");
}

/// A signal ends the server with status 0, after the open requests.
#[cfg(unix)]
#[test]
fn a_signal_ends_a_server() {
    for name in ["-INT", "-TERM"] {
        let work = trained("gcn");
        let mut server = Server::start(&work.arg("run"), &[]);
        // A client that keeps its connection open does not hold the server.
        let _open = TcpStream::connect(server.address).unwrap();
        server.predict(&json!({ "nodes": [0] }));
        crate::girih::signal(name, server.process.id());
        let start = Instant::now();
        assert_eq!(server.process.wait().unwrap().code(), Some(0), "{name}");
        assert!(start.elapsed() < Duration::from_secs(20), "{name}");
    }
}

#[test]
fn embeddings_are_a_row_a_node() {
    let work = Workspace::new();
    for (model, width) in [("gcn", 8), ("mlp", 8), ("appnp", 8), ("sage", 8)] {
        let (run, out) = (work.arg(&format!("run-{model}")), work.arg(&format!("{model}.npy")));
        girih(&["train", SMALL, "--model", model, "--hidden", "8", "--epochs", "2", "--out", &run]).ok();
        let said = girih(&["embed", "--checkpoint", &run, "--out", &out, "--json"]).ok().result();
        assert_eq!((&said["nodes"], &said["kind"]), (&json!(600), &json!("embeddings")), "{model}");
        let found = rows(std::path::Path::new(&out));
        assert!(found.len() == 600 && found.iter().all(|row| row.len() == width), "{model}");
    }
    let run = work.arg("run-sgc");
    girih(&["train", SMALL, "--model", "sgc", "--epochs", "2", "--out", &run]).ok();
    let message = girih(&["embed", "--checkpoint", &run, "--out", &work.arg("sgc.npy")]).refused(1);
    assert!(says(&message, "sgc has no hidden layer") && !work.path("sgc.npy").exists(), "{message}");
}

/// Layer by layer, as sampled runs whose scores are, embeddings are those of the whole graph.
#[test]
fn embeddings_do_not_depend_on_how_they_are_computed() {
    let work = Workspace::new();
    let found = ["graph", "layers"].map(|by| {
        let (run, out) = (work.arg(&format!("run-{by}")), work.path(&format!("{by}.npy")));
        let flags = ["--model", "sage", "--batch", "neighbor", "--fanout", "4,3", "--hidden", "8", "--epochs", "2"];
        girih(&[&["train", SMALL], &flags[..], &["--score-by", by, "--out", &run]].concat()).ok();
        girih(&["embed", "--checkpoint", &run, "--out", out.to_str().unwrap()]).ok();
        rows(&out)
    });
    let [graph, layers] = found.each_ref().map(|rows| rows.concat());
    assert!(graph.iter().zip(&layers).all(|(a, b)| (a - b).abs() < 1e-4 * a.abs().max(1.0)));
}

#[test]
fn servers_that_cannot_start_say_why() {
    let work = trained("gcn");
    let run = work.arg("run");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let message = girih(&["serve", "--checkpoint", &run, "--listen", &address]).refused(1);
    assert!(says(&message, "cannot listen on") && says(&message, "choose another --listen"), "{message}");
    let message = girih(&["serve", "--checkpoint", &run, "--fanout", "3"]).refused(1);
    assert!(says(&message, "fan-out"), "{message}");
    girih(&["serve", "--checkpoint", &run, "--listen", "somewhere"]).refused(2);
    girih(&["serve", "--checkpoint", &run, "--queue", "0"]).refused(2);
    girih(&["serve", "--checkpoint", &work.arg("nothing")]).refused(1);
    let links = work.arg("links");
    girih(&["train", SMALL, "--task", "links", "--hidden", "8", "--epochs", "1", "--out", &links]).ok();
    let message = girih(&["serve", "--checkpoint", &links]).refused(1);
    assert!(says(&message, "predicts links"), "{message}");
}
