// cuda.h for the files that define its functions: what is declared here is exported.
#pragma once

#pragma GCC visibility push(default)
#include "proto/cuda/cuda_all.h"
#pragma GCC visibility pop
