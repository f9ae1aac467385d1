// SPDX-License-Identifier: Apache-2.0
// The other half of linked.cu.
#include "linked_part.h"

__device__ int shared_word = 7;
static __device__ int own = 20;

__device__ int Twice(int x) { return 2 * x + own; }

static __device__ int Square(int x) { return x * x; }
__device__ int (*chosen)(int) = Square;
