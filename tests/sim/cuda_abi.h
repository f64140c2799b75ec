/*
 * The binary interface of the CUDA driver as far as the simulator and the C harness need it: type
 * names, sizes, layouts and enumeration values, declared by this project from their documented
 * facts.
 */
#ifndef CUDA_ABI_H
#define CUDA_ABI_H

#include "abi/arrays.h"
#include "abi/contexts.h"
#include "abi/copies.h"
#include "abi/handles.h"
#include "abi/memory.h"
#include "abi/physical.h"
#include "abi/pools.h"

#endif
