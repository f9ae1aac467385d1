// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/testing/attributes.h"

#include <atomic>

#include "agent/executor/testing/driver.h"

namespace gpuloom::executor {
namespace {

std::atomic<int> local_bytes{0};

}  // namespace

void FillAttributeTable(Driver* d) {
  d->cuKernelGetAttribute = [](int* value, CUfunction_attribute attribute, CUkernel, CUdevice) {
    // No clusters, and room for some threads.
    const bool cluster = attribute >= CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET;
    *value = cluster ? 0 : 1024 + attribute;
    if (attribute == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES) *value = local_bytes;
    return CUDA_SUCCESS;
  };
}

void TestingDriver::SetLocalBytes(int bytes) { local_bytes = bytes; }

}  // namespace gpuloom::executor
