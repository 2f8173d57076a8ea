//! A server: one thing at a time, first come first served, with its busy time by phase.

/// A single server whose customers know at their arrival how long they will take, so that no
/// queue need be kept: the moment at which it is free again is enough.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    free_ns: u64,
    busy_ns: u64,
}

impl Server {
    /// Serves for `length_ns` as soon as it is free, at the earliest now. Gives the start and the
    /// end (ns).
    #[inline]
    pub fn serve(&mut self, now_ns: u64, length_ns: u64) -> (u64, u64) {
        let start_ns = self.free_ns.max(now_ns);
        self.free_ns = start_ns + length_ns;
        self.busy_ns += length_ns;
        (start_ns, self.free_ns)
    }

    /// When it is free again (ns).
    #[inline]
    pub fn free_ns(&self) -> u64 {
        self.free_ns
    }

    /// How long it has been busy up to `now_ns`.
    pub fn busy_ns(&self, now_ns: u64) -> u64 {
        self.busy_ns - self.free_ns.saturating_sub(now_ns).min(self.busy_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn customers_are_served_one_after_the_other() {
        let mut server = Server::default();
        assert_eq!(server.serve(10, 5), (10, 15));
        assert_eq!(server.serve(11, 5), (15, 20));
        assert_eq!(server.serve(30, 1), (30, 31));
        assert_eq!(server.busy_ns(31), 11);
        server.serve(31, 100);
        assert_eq!(server.busy_ns(41), 21, "what is still to come is not counted");
    }
}
