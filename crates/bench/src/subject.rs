//! What is asked of SoulBox.
