//! Descriptors of guests who left, for newcomers. A newcomer's own number says how crowded it was
//! when it came; when somebody left since, there is one descriptor less in use, for one newcomer.

#[derive(Debug, Default)]
pub(super) struct Vacancies {
    newcomers: usize,
    vacated: usize,
}

impl Vacancies {
    pub(super) fn somebody_comes(&mut self) {
        self.newcomers += 1;
    }

    /// To a place or not.
    pub(super) fn somebody_came(&mut self) {
        self.newcomers = self.newcomers.saturating_sub(1);
        self.vacated = self.vacated.min(self.newcomers);
    }

    pub(super) fn somebody_left(&mut self) {
        self.vacated = (self.vacated + 1).min(self.newcomers);
    }

    /// What a newcomer's descriptor is to be taken for.
    pub(super) fn in_place_of(&self, descriptor: u64) -> u64 {
        if self.vacated > 0 { 0 } else { descriptor }
    }

    pub(super) fn take(&mut self) {
        self.vacated = self.vacated.saturating_sub(1);
    }
}
