//! The guest programs, built statically and carried inside the server.
