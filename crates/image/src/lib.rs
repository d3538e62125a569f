//! Container images: pulled from registries, unpacked once, shared by content.
