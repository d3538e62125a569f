//! Templates: what a sandbox starts from; here the one made of the host itself.
