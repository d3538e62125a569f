//! Reservations: what this node keeps for a create that comes in a moment.
//!
//! A create uses what is kept under its id, once: a warm sandbox when it comes here, a prepared slot
//! when its processes are started. What was used is not kept any more, so a release does nothing to it.

use soulbox_runtime::{
    PREPARED_HOLDS, Release, Reservation, ReservationSource, ReserveRequest, Reserved,
};

use soulbox_types::Tier;

use crate::LocalNode;

impl LocalNode {
    pub(crate) fn reserve_for(&self, request: &ReserveRequest) -> Reservation {
        let key = request.pool_key.as_ref();
        match key.and_then(|key| self.reserve_warm(key)) {
            Some(id) => {
                let holds = self.pool().config.reserved_for;
                Reservation::new(id, ReservationSource::Warm, holds, self.weak())
            }
            None => self.reserve_prepared(request.tier),
        }
    }

    /// For one that has to be made.
    pub(crate) fn reserve_prepared(&self, tier: Tier) -> Reservation {
        // One that is not there is refused by the create, with the reason.
        let runtime = self.runtimes().get(tier).ok();
        match runtime.and_then(|runtime| runtime.reserve()) {
            Some(id) => {
                let source = ReservationSource::Prepared;
                Reservation::new(id, source, PREPARED_HOLDS, self.weak())
            }
            None => Reservation::fresh(),
        }
    }
}

impl Release for LocalNode {
    fn release(&self, reserved: &Reserved) {
        match reserved.source {
            ReservationSource::Warm => self.pool().release(&reserved.id),
            ReservationSource::Prepared => {
                for runtime in self.runtimes().all() {
                    runtime.release(&reserved.id);
                }
            }
            ReservationSource::Fresh => {}
        }
    }
}
