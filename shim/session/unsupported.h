// SPDX-License-Identifier: Apache-2.0
// Reports to the node the unsupported CUDA features that the program requested. Safe from any
// thread; never a cause of failure.
#pragma once

#include <stddef.h>

namespace gpuloom {

// A limited number of names per process, each cut at wire::kMaxReportBytes and reported once.
// Before cuInit they are kept.
void ReportUnsupported(const char* name, size_t length);
// After cuInit: sends what was kept.
void SendKeptReports();

}  // namespace gpuloom
