//! The quota file.
