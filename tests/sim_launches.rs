//! Modules, libraries and launches of the simulated driver: accepted, checked, and not run.

mod common;

use common::programs::c_program;
use common::{Machine, Run};

#[test]
fn any_image_is_loaded_and_any_function_of_it_launched() {
    let run = Run::new(c_program("launches")).on(&Machine::new("16GiB")).finish().success();
    let expected = "\
load without a context 201
launch without a context 201
load 0
load nothing 1
load a missing file 301
function 0
one name is one handle 1
function of no module 400
function without a name 500
global 500
launch 0
launch an empty grid 1
launch too large a block 1
launch no function 400
launch on no stream 400
occupancy 8
library 0
kernel 0
launch a kernel 0
unload the library 0
launch a kernel that is gone 400
unload a module that went with its context 400
";
    assert_eq!(run.stdout, expected);
}
