//! Data, devices, ranks and settings that flags name and commands share.
//!
//! - [`data`], [`reading`]: data that `--data` names, and notes from reading them.
//! - [`settings`]: settings of a training session, from defaults, files and flags.
//! - [`device`], [`gpus`], [`device_memory`]: backends, GPUs of ranks, and their memory.
//! - [`ranks`], [`world`], [`launched`]: options of ranks, the processes of a job, and their launcher.
//! - [`combination`]: what of this goes together, and the engine that runs it.
//! - [`order`]: orders of nodes.
//! - [`trained`]: trained models with the data that they are applied to.

pub mod combination;
pub mod data;
pub mod device;
pub mod device_memory;
pub mod gpus;
pub mod launched;
pub mod order;
pub mod ranks;
pub mod reading;
pub mod settings;
pub mod trained;
pub mod world;
