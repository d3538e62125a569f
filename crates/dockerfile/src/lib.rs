//! Reads Dockerfiles into build steps.
