// SPDX-License-Identifier: Apache-2.0
// What linked.cu and linked_part.cu share.
#pragma once

extern __device__ int shared_word;
extern __device__ int (*chosen)(int);
__device__ int Twice(int x);
