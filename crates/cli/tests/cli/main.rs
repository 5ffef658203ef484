//! Tests of the command line as users and programs call it: the built binary, its output, files and exit status. Those of
//! its parts are in [`unit`].

mod bad_input;
mod cases;
mod codec;
mod compare;
mod compress;
mod container;
mod cuda;
mod data;
mod declared;
mod deploy;
mod documented;
mod faults;
mod girih;
mod hosts;
mod interrupted;
mod launch;
mod links;
mod made_features;
mod mapped;
mod messages;
#[cfg(feature = "mpi")]
mod mpi;
mod ogb;
mod pages;
mod ranks;
mod rated;
mod recommend;
mod recorded;
mod sample;
mod scores;
mod serve;
mod timed;
mod train;
mod triples;
mod typed;
mod typed_data;
mod typed_networks;
mod unit;
mod verify;
mod weights;
