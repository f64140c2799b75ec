//! Who holds what: one file per container, mapped by all its processes.
