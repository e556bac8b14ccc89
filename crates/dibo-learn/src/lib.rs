//! Data that users have, and models that they take home: tables, arrays and images become [`Samples`] of one
//! owner; [`Encoding`] turns samples into the numbers that a model sees, from what all owners agreed on.
//!
//! This crate knows no network and no method: it reads, encodes and writes.
pub mod model;
pub mod read;
pub mod samples;

pub use model::{Bert, Pooling, Prediction, SavedModel, Shape};
pub use read::read;
pub use samples::{
    Choice, Encoded, Encoding, Feature, Ids, Image, ReadError, Roles, Samples, Words, as_pixels, pixels,
};
