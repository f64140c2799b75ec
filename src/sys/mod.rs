//! What must be asked of the kernel and the loader, each fact behind a safe function.
