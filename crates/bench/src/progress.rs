/// Who wants to know how far a run is.
pub trait Progress: Send + Sync {
    /// `of` is 0 for work that is not counted.
    fn step(&self, suite: &str, what: &str, done: usize, of: usize);

    /// Something to know that is not a figure.
    fn note(&self, text: &str);
}
