//! The network at this moment, for the page: who sends to whom, and how far each process is.
use super::Live;
use serde::Serialize;

/// Agents up to which all links are drawn; of more of them so many links at most.
const FEW: usize = 40;
const LINKS: usize = 250;

/// The network at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Network {
    /// Number of agents.
    pub agents: usize,
    /// What moment this is, in a few words.
    pub about: String,
    /// Sender and receiver of each link that is drawn.
    pub links: Vec<(usize, usize)>,
    /// Links in all.
    pub all: usize,
    /// Of many agents only every so many-th one's links are drawn.
    pub every: usize,
    /// The processes that the agents live in; none where one holds them all.
    pub processes: Vec<Member>,
}

/// One process of a run, as it shows itself and as the others see it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Member {
    /// Its agents.
    pub agents: Vec<usize>,
    /// The same in words.
    pub name: String,
    /// The round it is in.
    pub round: u64,
    /// Rounds behind the first; none where that one is in a later part.
    pub behind: Option<u64>,
    /// Bytes sent.
    pub sent: u64,
    /// Messages that it missed and asked for again.
    pub lost: u64,
    /// Messages that it sent again.
    pub resent: u64,
    /// Seconds since another process heard it.
    pub heard: Option<f64>,
    /// Whether it waits for others.
    pub waits: bool,
    /// What it does, in words.
    pub doing: String,
}

/// Takes a look, given series, seed and iteration of a run that goes on, if the page knows one.
pub(super) type Look = dyn Fn(Option<(usize, u64, usize)>) -> Option<Network> + Send + Sync;

impl Network {
    /// A network of which nothing but its links is known yet; they are thinned out where they are many.
    pub fn new(agents: usize, about: String, links: Vec<(usize, usize)>) -> Self {
        let (all, mut every) = (links.len(), agents.div_ceil(FEW).max(1));
        let drawn = |every: usize| links.iter().filter(move |(sender, _)| sender % every == 0);
        while agents > FEW && every < agents && drawn(every).count() > LINKS {
            every *= 2;
        }
        let links = drawn(every).copied().collect();
        Network { agents, about, links, all, every, processes: Vec::new() }
    }
}

impl Live {
    /// How to look at the network. It is done by the server's thread, and only while a page asks.
    pub fn set_network(
        &self,
        look: impl Fn(Option<(usize, u64, usize)>) -> Option<Network> + Send + Sync + 'static,
    ) {
        let _ = self.network.set(Box::new(look));
    }

    pub(super) fn look(&self, going: Option<(usize, u64, usize)>) -> Option<Network> {
        self.network.get().and_then(|look| look(going))
    }
}
