//! Agents as real processes: the network room of dibo over a real transport. A run gives the same bits as the
//! simulator's; lost, doubled, late and reordered packets, and processes that are killed and started again,
//! do not change them.
//!
//! [`packet`] is the format, [`keys`] who may speak for whom, [`node`] the protocol of one process,
//! [`transport`] the seam below it ([`hub`] for tests, `wire` for machines), [`agents`] the network that
//! algorithms see, [`gather`] the metrics of all agents, [`disk`] what a process keeps, [`life`] its way from
//! there to its end.
pub mod agents;
pub mod disk;
pub mod gather;
pub mod hub;
pub mod keys;
pub mod life;
pub mod node;
pub mod packet;
pub mod transport;

#[cfg(feature = "zenoh")]
pub mod certificates;
#[cfg(feature = "zenoh")]
pub mod identity;
#[cfg(feature = "zenoh")]
pub mod wire;
#[cfg(feature = "zenoh")]
pub use zenoh;
