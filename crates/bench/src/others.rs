//! What else could have been used, measured in the same run.
