//! Graphs beyond 2³¹ and 2³² entries.
//!
//! Ordinary runs use files with holes, in which only the rows that are read have data: [`holes`]. With
//! `GIRIH_LARGE=DIR` a graph of 4.3 billion entries is written below `DIR`, which takes 17 GB, and loaded: [`whole`].
//! Products then use a matrix of 2.2 billion entries in memory: [`products`].

#![cfg(unix)]

mod holes;
mod products;
mod whole;
