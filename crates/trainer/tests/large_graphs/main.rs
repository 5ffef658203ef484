//! Graphs beyond 2³¹ and 2³² entries.
//!
//! The ordinary run uses files with holes, of which only rows that are read have data: [`holes`]. With
//! `GIRIH_LARGE=DIR` a graph of 4.3 billion entries is written to a folder below `DIR`, which takes 17 GB, and read
//! whole: [`whole`]. Products then run with a matrix of 2.2 billion entries in memory: [`products`].

#![cfg(unix)]

mod holes;
mod products;
mod whole;
