//! What can go wrong, from the lowest seam up: one type for a lost peer, a full device, a user's gradient
//! that fails and a value that is out of range.

/// Why something could not be done. Every message is one line that says what is wrong and what would be
/// right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value, file or shape that does not fit; the message begins with the name of what is wrong.
    #[error("{0}")]
    Invalid(String),
    /// The problem does not have what the algorithm asks for.
    #[error("needs {0}, which this problem does not have")]
    Unsupported(&'static str),
    /// The network cannot go on: a peer is gone, a message is wrong, a wish cannot be met.
    #[error("{0}")]
    Network(String),
    /// The device failed or is full.
    #[error("{0}")]
    Device(String),
    /// A checkpoint is damaged or belongs to something else.
    #[error("{0}")]
    Checkpoint(String),
    /// Whoever watches the run could not keep what it must keep, or asked to end it.
    #[error("{0}")]
    Watcher(Box<dyn std::error::Error + Send + Sync>),
    /// The problem's own code failed for this agent.
    #[error("agent {agent}: {source}")]
    Problem {
        /// Whose function it was.
        agent: usize,
        /// What it said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A result with dibo's error.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

impl Error {
    /// For a problem whose function failed: `Err(Error::of_agent(3, "no such file"))`.
    ///
    /// ```
    /// let error = dibo::Error::of_agent(3, "its sensor is off");
    /// assert_eq!(error.to_string(), "agent 3: its sensor is off");
    /// ```
    pub fn of_agent(agent: usize, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Problem { agent, source: why.into() }
    }
}

impl From<String> for Error {
    fn from(what: String) -> Self {
        Error::Invalid(what)
    }
}

impl From<&str> for Error {
    fn from(what: &str) -> Self {
        Error::Invalid(what.into())
    }
}
