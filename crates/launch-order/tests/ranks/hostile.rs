//! A rank with the right secret that sends malformed messages. The job ends with a message that names it.

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use girih_comm::tcp::{self, Options};
use girih_launch_order::{Coordinator, LaunchOrderError, Rules, coordinator};

use crate::by_hand::{PARCEL, join, options, parcel, read_until};

const DEADLINE: Duration = Duration::from_secs(3);

/// Launches one batch of the first worker.
fn launch_one(coordinator: &Coordinator) -> Result<(), LaunchOrderError> {
    drop(coordinator.participant(0).turn(0)?);
    coordinator.finish()?;
    Ok(())
}

/// The ranks agree on rules, and then rank 1 sends malformed bytes in place of a round.
#[test]
fn malformed_launch_orders_name_the_rank() {
    let rules = Rules::new(["sampler", "trainer"]).deadline(DEADLINE);
    let call = "launch order (0, 0)";
    for (message, what) in [
        ("[", "rank 1 sent a malformed message (launch order)"),
        ("[{\"Decided\":[0,{\"worker\":0,\"batch\":0}]}]", "rank 1 sent a malformed message (launch order)"),
        ("[{\"SignedOff\":[9,0]}]", "rank 1 sent a malformed message (launch order): worker 9 where there are 2"),
        ("[{\"Answer\":{\"workers\":[],\"absent\":null,\"recent\":[]}}]", "rank 1 sent a malformed message"),
    ] {
        let agreed = parcel(&[], 0, call, format!("{rules:?}").as_bytes());
        let round = parcel(&[1, 0], 0, call, message.as_bytes());
        let place = tcp::local_rendezvous().unwrap();
        let zero = Options { deadline: DEADLINE, ..options(0, 2, &place) };
        let work = |rank: tcp::TcpRank| coordinator(rank.transport(), &rules).and_then(|order| launch_one(&order));
        let outcome = thread::scope(|scope| {
            let zero = scope.spawn(|| tcp::run(&zero, work).unwrap().map_err(|failure| failure.message));
            let mut stream = join(&place);
            stream.write_all(&agreed).unwrap();
            read_until(&mut stream, PARCEL);
            // The peer may disconnect during the write.
            let _ = stream.write_all(&round);
            let _ = stream.read_to_end(&mut Vec::new());
            zero.join().expect("no rank panics")
        });
        let said = outcome.unwrap_err();
        assert!(said.contains(what), "{message}: {said}");
    }
}
