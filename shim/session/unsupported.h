// SPDX-License-Identifier: Apache-2.0
// Tells the node what the program asked of CUDA that is not supported. Safe from any thread; never a
// cause of failure.
#pragma once

#include <stddef.h>

namespace gpuloom {

// At most so many names of a process, cut at wire::kMaxReportBytes; each is told once. Before cuInit
// they are kept.
void ReportUnsupported(const char* name, size_t length);
// After cuInit: tells what was kept.
void SendKeptReports();

}  // namespace gpuloom
