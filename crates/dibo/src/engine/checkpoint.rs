//! Checkpoints: everything that a run needs to go on later with the same bits.
use super::{Best, Oracle, Sample};
use crate::error::{Error, Result};
use crate::network::Traffic;
use crate::rows::Real;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::io::Write;

/// Everything needed to go on later with the same bits. While a run goes on it borrows the state's memory
/// instead of copying it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "T: Real")]
pub struct Checkpoint<'a, T: Clone> {
    /// Iterations done.
    pub k: usize,
    /// Digest of the experiment it belongs to.
    pub digest: [u8; 32],
    /// Evaluations so far.
    pub samples: Vec<Sample>,
    /// Seconds of iterations.
    pub seconds: f64,
    /// What was sent.
    pub traffic: Traffic,
    /// Oracle calls.
    pub oracle: Oracle,
    /// The state's memory.
    pub memory: Vec<Cow<'a, [T]>>,
    /// The network's memory.
    pub network: Vec<u8>,
    /// The state of the best evaluation, where one is kept.
    pub best: Option<Best<'a, T>>,
}

/// Identifies a checkpoint file and its layout.
const MAGIC: &[u8; 8] = b"dibo-ck4";

/// FNV-1a: no single changed byte goes unseen, and it is the same on every machine.
fn checksum(before: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(before, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

/// What the checksum of nothing is.
const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

/// Hands on what is written and keeps its checksum.
struct Summed<W> {
    to: W,
    sum: u64,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.sum = checksum(self.sum, &bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

impl<T: Real> Checkpoint<'_, T> {
    /// Writes the file's bytes, piece by piece: no copy of the state is made.
    pub fn write(&self, to: impl Write) -> std::io::Result<()> {
        let mut to = Summed { to: std::io::BufWriter::new(to), sum: EMPTY };
        to.to.write_all(MAGIC)?;
        let mut to = postcard::to_io(self, to).map_err(std::io::Error::other)?;
        let sum = to.sum.to_le_bytes();
        to.to.write_all(&sum)?;
        to.to.flush()
    }

    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut bytes).expect("memory can be written");
        bytes
    }

    /// The same with a copy of the state's memory, to keep beyond the run.
    pub fn into_owned(self) -> Checkpoint<'static, T> {
        let memory = self.memory.into_iter().map(|m| Cow::Owned(m.into_owned())).collect();
        let Checkpoint { k, digest, samples, seconds, traffic, oracle, network, best, .. } = self;
        let best = best.map(Best::into_owned);
        Checkpoint { k, digest, samples, seconds, traffic, oracle, memory, network, best }
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote; says what is wrong with anything else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let wrong = |what: &str| Error::Checkpoint(what.into());
        let rest =
            bytes.strip_prefix(MAGIC).ok_or_else(|| wrong("not a checkpoint of this version of dibo"))?;
        let cut = rest.split_last_chunk::<8>();
        let (body, sum) = cut.ok_or_else(|| wrong("damaged checkpoint: it is cut off"))?;
        if *sum != checksum(EMPTY, body).to_le_bytes() {
            return Err(wrong("damaged checkpoint: its bytes are not those that were written"));
        }
        postcard::from_bytes(body).map_err(|e| Error::Checkpoint(format!("damaged checkpoint: {e}")))
    }
}
