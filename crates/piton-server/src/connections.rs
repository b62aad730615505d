//! Connections: how many there are, and whose. Without a token a client can hold a connection only
//! as long as there is room for newer ones, so that no flood keeps a token's holder out; the owner's
//! connections are counted apart from everybody else's.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use piton_core::Code;
use tokio_util::sync::CancellationToken;

use crate::app::{App, LOCAL};
use crate::problem::{Problem, Result};

/// How many connections there may be at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Without a good token. Beyond it the oldest one of the peer that has most of them is closed.
    pub unidentified_max: usize,
    /// Of one token.
    pub per_token_max: usize,
    /// Of all tokens.
    pub tokens_max: usize,
    /// Of the data folder's owner.
    pub owner_max: usize,
    /// `WebSocket`s, of whomever.
    pub sockets_max: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            unidentified_max: 512,
            per_token_max: 1_024,
            tokens_max: 4_096,
            owner_max: 1_024,
            sockets_max: 1_024,
        }
    }
}

/// All connections of a server.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: ConnectionLimits,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next_id: u64,
    /// In the order in which they came.
    unidentified: BTreeMap<u64, Unidentified>,
    by_principal: HashMap<Arc<str>, usize>,
}

#[derive(Debug)]
struct Unidentified {
    peer: Peer,
    closing: CancellationToken,
}

/// From where a connection comes: an address, or the network of one person's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer(IpAddr);

impl Peer {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            // A host has a whole /64 to itself.
            IpAddr::V6(address) if !address.is_loopback() => {
                let network = u128::from(address) & !u128::from(u64::MAX);
                Self(Ipv6Addr::from(network).into())
            }
            address => Self(address),
        }
    }

    /// The name of the bucket from which its requests without a good token are taken. What presents
    /// a wrong token does not use up what a sign-in needs.
    pub(crate) fn bucket(self, presented: Presented) -> Arc<str> {
        let presented = match presented {
            Presented::Nothing => "without token",
            Presented::WrongToken => "wrong token",
        };
        format!("{} {presented}", self.0).into()
    }
}

/// What a request without a good token carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presented {
    Nothing,
    WrongToken,
}

/// One connection, until its last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<Held>);

#[derive(Debug)]
struct Held {
    id: u64,
    peer: Peer,
    connections: Connections,
    closing: CancellationToken,
    /// Who presented a good token on it first.
    principal: Mutex<Option<Arc<str>>>,
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        Self(Arc::new(Shared { limits, open: Mutex::default() }))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection; closes another if there are too many without a token.
    pub(crate) fn accept(&self, address: IpAddr) -> Connection {
        let (peer, closing) = (Peer::of(address), CancellationToken::new());
        let mut open = self.open();
        let id = open.next_id;
        open.next_id += 1;
        open.unidentified.insert(id, Unidentified { peer, closing: closing.clone() });
        if open.unidentified.len() > self.0.limits.unidentified_max {
            open.close_one();
        }
        let (connections, principal) = (self.clone(), Mutex::default());
        Connection(Arc::new(Held { id, peer, connections, closing, principal }))
    }

    /// Closes a connection without a token, because there is no room for another.
    pub(crate) fn make_room(&self) {
        self.open().close_one();
    }
}

impl Open {
    /// The oldest one of the peer that has most.
    fn close_one(&mut self) {
        let mut counts: HashMap<Peer, usize> = HashMap::new();
        for one in self.unidentified.values() {
            *counts.entry(one.peer).or_default() += 1;
        }
        let most = counts.values().max().copied();
        let is_of_most = |one: &&Unidentified| counts.get(&one.peer).copied() == most;
        let oldest = self.unidentified.iter().find(|(_, one)| is_of_most(one)).map(|(id, _)| *id);
        if let Some(one) = oldest.and_then(|id| self.unidentified.remove(&id)) {
            one.closing.cancel();
        }
    }
}

impl Connection {
    pub(crate) fn peer(&self) -> Peer {
        self.0.peer
    }

    /// Closes it, whatever is under way on it.
    pub(crate) fn close(&self) {
        self.0.closing.cancel();
    }

    /// Resolves when it must give way to a newer one, or is closed.
    pub(crate) async fn closing(&self) {
        self.0.closing.cancelled().await;
    }

    /// That a good token was presented on it: it stays for as long as its client wants. Refused if
    /// there are too many such connections.
    pub(crate) fn identify(&self, principal: &Arc<str>) -> Result<()> {
        let mut known = self.0.principal.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_some() {
            return Ok(());
        }
        let ConnectionLimits { per_token_max, tokens_max, owner_max, .. } =
            self.0.connections.0.limits;
        let mut open = self.0.connections.open();
        let own = open.by_principal.get(principal).copied().unwrap_or_default();
        let is_full = if &**principal == LOCAL {
            own >= owner_max
        } else {
            let owner = open.by_principal.get(LOCAL).copied().unwrap_or_default();
            let all: usize = open.by_principal.values().sum();
            own >= per_token_max || all - owner >= tokens_max
        };
        if is_full {
            let mut problem = Problem::new(Code::RateLimited, "Too many connections");
            problem.retry_after_s = Some(1);
            return Err(problem);
        }
        open.unidentified.remove(&self.0.id);
        *open.by_principal.entry(Arc::clone(principal)).or_default() += 1;
        *known = Some(Arc::clone(principal));
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let principal = self.principal.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let mut open = self.connections.open();
        open.unidentified.remove(&self.id);
        if let Some(principal) = principal
            && let Some(count) = open.by_principal.get_mut(&principal)
        {
            *count -= 1;
            if *count == 0 {
                open.by_principal.remove(&principal);
            }
        }
    }
}

impl FromRequestParts<App> for Connection {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        let accepted = parts.extensions.get::<Self>().cloned();
        // A request that came over no connection is one of its own.
        Ok(accepted.unwrap_or_else(|| app.connections().accept(Ipv4Addr::UNSPECIFIED.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(unidentified_max: usize) -> ConnectionLimits {
        let limits = ConnectionLimits::default();
        ConnectionLimits {
            unidentified_max,
            per_token_max: 2,
            tokens_max: 3,
            owner_max: 2,
            ..limits
        }
    }

    fn is_closing(connection: &Connection) -> bool {
        connection.0.closing.is_cancelled()
    }

    #[test]
    fn the_oldest_connection_of_the_busiest_peer_gives_way() {
        let connections = Connections::new(limits(3));
        let [one, other]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let first = connections.accept(other);
        let flood: Vec<_> = (0..4).map(|_| connections.accept(one)).collect();
        assert_eq!(flood.iter().map(is_closing).collect::<Vec<_>>(), [true, true, false, false]);
        assert!(!is_closing(&first), "another peer's");
        drop(flood);
        let more: Vec<_> = (0..2).map(|_| connections.accept(one)).collect();
        assert!(!more.iter().any(is_closing), "what ended is not counted");
        connections.make_room();
        assert!(is_closing(&more[0]));
    }

    #[test]
    fn a_token_makes_a_connection_stay_and_the_owner_has_room_of_its_own() {
        let connections = Connections::new(limits(1));
        let address = Ipv4Addr::LOCALHOST.into();
        let principals = [LOCAL, "one", "other"].map(Arc::<str>::from);
        let [owner, one, other] = &principals;
        let mut kept = Vec::new();
        for (principal, is_taken) in [
            (one, true),
            (one, true),
            (one, false),
            (other, true),
            (other, false),
            (owner, true),
            (owner, true),
            (owner, false),
        ] {
            let connection = connections.accept(address);
            let taken = connection.identify(principal);
            assert_eq!(taken.is_ok(), is_taken, "{principal}");
            if let Err(problem) = &taken {
                assert_eq!(problem.code, Code::RateLimited);
            } else {
                assert!(connection.identify(principal).is_ok(), "asked once per connection");
                kept.push(connection);
            }
        }
        for _ in 0..10 {
            connections.accept(address);
        }
        assert!(!kept.iter().any(is_closing));
        kept.clear();
        assert!(connections.open().by_principal.is_empty());
        assert!(connections.open().unidentified.is_empty());
    }

    #[test]
    fn a_peer_is_an_address_or_a_network() {
        let peer = |text: &str| Peer::of(text.parse().unwrap());
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:1"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
        assert_ne!(peer("::1"), peer("::2"));
    }
}
