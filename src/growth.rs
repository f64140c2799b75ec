//! What is done about frameworks that take the whole card at start: their own switches for it.
//!
//! A switch is an environment variable that the framework reads when it is loaded. It holds in the whole process
//! and not on one GPU, so it is set where the quota file asks for it on any GPU, and only where the user has not
//! set it to anything.
#![forbid(unsafe_code)]

use core::ffi::CStr;

use crate::config::{Growth, Quota, Rule};

/// A framework's own switch.
#[derive(Debug, Clone, Copy)]
pub struct Switch {
    /// The framework that reads it.
    pub framework: &'static str,
    /// The environment variable.
    pub variable: &'static CStr,
    /// What it is set to.
    pub value: &'static CStr,
    /// What the framework does without it, and with it.
    pub why: &'static str,
}

/// All of them, one a framework. PyTorch, CuPy and MXNet are not here: they ask for memory as they need it.
pub const SWITCHES: &[Switch] = &[
    Switch {
        framework: "TensorFlow",
        variable: c"TF_FORCE_GPU_ALLOW_GROWTH",
        value: c"true",
        why: "takes nearly all free memory at the first tensor; with it, what the tensors need",
    },
    Switch {
        framework: "JAX",
        variable: c"XLA_PYTHON_CLIENT_PREALLOCATE",
        value: c"false",
        why: "takes 75 % of the GPU at the first array; with it, what the arrays need",
    },
    Switch {
        framework: "PaddlePaddle",
        variable: c"FLAGS_allocator_strategy",
        value: c"auto_growth",
        why: "may take most of the GPU at start (older versions do); with it, what the tensors need",
    },
];

/// Whether `quota` asks for the switches on any GPU.
#[must_use]
pub fn wants_switches(quota: &Quota) -> bool {
    let asks = |rule: &Rule| rule.growth != Growth::Native;
    quota.default.iter().any(asks) || quota.gpus.iter().any(|entry| asks(&entry.rule))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn wanted(text: &str) -> bool {
        wants_switches(&Quota::parse(text, Path::new("x")).unwrap())
    }

    #[test]
    fn one_gpu_that_asks_is_enough() {
        assert!(wanted("limit = 1"));
        assert!(wanted("limit = 1\ngrowth = \"lazy\""));
        assert!(!wanted("limit = 1\ngrowth = \"native\""));
        assert!(wanted("limit = 1\ngrowth = \"native\"\n[[gpu]]\nindex = 1\ngrowth = \"hints\""));
        assert!(!wanted("[[gpu]]\nindex = 1\nlimit = 1\ngrowth = \"native\""));
    }

    #[test]
    fn no_variable_is_set_twice() {
        for (at, switch) in SWITCHES.iter().enumerate() {
            assert!(SWITCHES[..at].iter().all(|other| other.variable != switch.variable));
        }
    }
}
