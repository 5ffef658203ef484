//! Graphs beyond 2³¹ and 2³² entries.
//!
//! The ordinary run uses files with holes, of which only rows that are read have data: [`holes`]. With
//! `GIRIH_LARGE=DIR` a graph of 4.3 billion entries is written to a folder below `DIR`, which takes 17 GB, and read
//! whole: [`whole`].

#![cfg(unix)]

mod holes;
mod whole;
