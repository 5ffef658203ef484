//! Features that tests of the whole workspace enable. A package that depends on this one is built of the same artifacts as
//! these tests, also when it is built alone: cargo unites the features of all packages of a build.
//!
//! The quick wheel of `cargo xtask wheel` is built so, and takes a third of its time then. A test of `xtask` compares the
//! features. Not here: any code.
