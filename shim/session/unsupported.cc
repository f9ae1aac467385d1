// SPDX-License-Identifier: Apache-2.0
#include "shim/session/unsupported.h"

#include <string.h>

#include "proto/wire/command_list.h"
#include "shim/process/futex.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

// A bound for programs that ask for names without end: reports help operators, and nothing else
// depends on them.
constexpr uint32_t kMaxReports = 64;

// Names are only added, and `sent` of them have been sent: so a name can be read without the lock
// once its place is known.
struct Reports {
  struct Name {
    uint32_t length;
    char text[wire::kMaxReportBytes];
  };
  Lock lock;
  uint32_t count GPULOOM_GUARDED_BY(lock) = 0;
  uint32_t sent GPULOOM_GUARDED_BY(lock) = 0;
  Name names[kMaxReports] GPULOOM_GUARDED_BY(lock) = {};
};
constinit Reports reports;

// False: there is no room, or it is known.
bool Keep(const char* name, uint32_t length) {
  Holding holding(&reports.lock);
  for (uint32_t i = 0; i < reports.count; ++i) {
    if (reports.names[i].length == length && memcmp(reports.names[i].text, name, length) == 0) {
      return false;
    }
  }
  if (reports.count == kMaxReports) return false;
  auto& kept = reports.names[reports.count++];
  kept.length = length;
  memcpy(kept.text, name, length);
  return true;
}

}  // namespace

void SendKeptReports() {
  while (session.Check() == CUDA_SUCCESS) {
    const Reports::Name* name;  // never changes any more
    {
      Holding holding(&reports.lock);
      if (reports.sent == reports.count) return;
      name = &reports.names[reports.sent++];
    }
    // Not sent again: the session is lost.
    if (session.PostPayload<wire::UnsupportedCall>(name->text, name->length) != CUDA_SUCCESS) {
      return;
    }
  }
}

void ReportUnsupported(const char* name, size_t length) {
  if (length == 0) return;
  if (length > wire::kMaxReportBytes) length = wire::kMaxReportBytes;
  if (Keep(name, static_cast<uint32_t>(length))) SendKeptReports();
}

}  // namespace gpuloom
