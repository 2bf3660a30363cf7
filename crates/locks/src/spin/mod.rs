//! (in the making)
pub mod tas;
pub mod ttas;
pub mod ticket;
