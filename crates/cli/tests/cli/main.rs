//! The command line as its users and their programs call it: the built binary, its output, its files and its exit
//! status.

mod bad_input;
mod cases;
mod codec;
mod compress;
mod container;
mod cuda;
mod data;
mod declared;
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
mod ranks;
mod recommend;
mod sample;
mod scores;
mod train;
mod verify;
