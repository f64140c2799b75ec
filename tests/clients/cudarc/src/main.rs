//! cudarc: its device, copies there and back, memory information, and its own error when the card is full.

use cudarc::driver::{CudaContext, DriverError, result, sys};

fn main() -> Result<(), DriverError> {
    let total: usize = std::env::args().nth(1).and_then(|a| a.parse().ok()).expect("the total to expect, in bytes");
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let (free, seen) = result::mem_get_info()?;
    assert_eq!(seen, total, "total of memory information");
    assert_eq!(context.total_mem()?, total, "total of the device");

    let there: Vec<u8> = (0..3_000_019u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let on_card = stream.clone_htod(&there)?;
    assert!(result::mem_get_info()?.0 < free, "an allocation must show");
    assert!(stream.clone_dtoh(&on_card)? == there, "other bytes came back");
    let mut copy = stream.alloc_zeros::<u8>(there.len())?;
    assert!(stream.clone_dtoh(&copy)?.iter().all(|&b| b == 0));
    stream.memcpy_dtod(&on_card, &mut copy)?;
    assert!(stream.clone_dtoh(&copy)? == there, "other bytes came back from the copy");
    drop((on_card, copy));
    stream.synchronize()?;

    let refused = stream.alloc_zeros::<u8>(total + (2 << 20)).expect_err("more than the whole card");
    assert_eq!(refused, DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    let half = stream.alloc_zeros::<u8>(total / 2)?;
    assert!(result::mem_get_info()?.0 <= free - total / 2, "a large allocation must show");
    drop(half);
    Ok(())
}
