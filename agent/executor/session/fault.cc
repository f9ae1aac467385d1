// SPDX-License-Identifier: Apache-2.0
// What the loop does when the device's context is lost, or must end: which sessions learn what.
#include <algorithm>
#include <string>
#include <vector>

#include "agent/executor/process/log.h"
#include "agent/executor/session/loop.h"
#include "agent/executor/session/session.h"
#include "agent/node/one_line.h"
#include "proto/control/connection.h"

namespace gpuloom::executor {
namespace {

// How many sessions are named when the context is lost.
constexpr size_t kMaxSuspects = 16;
// For the names of their kernels, in bytes: all of them share one line of the log.
constexpr size_t kLongestName = 50;

}  // namespace

std::string Loop::LogDriverErrors() {
  if (output_ == nullptr) return {};
  std::string text = output_->TakeErrors();
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    LogFor(&driver_lines_, LogLevel::kInfo, "the driver says: %.*s", static_cast<int>(end - begin),
           // For the operator. A tenant gets the text only where it is certain to be its own, see
           // ReportFault.
           text.c_str() + begin);
    begin = end + 1;
  }
  return text;
}

// Its neighbours see that the executor has ended, as they do whenever one does.
void Loop::EndForKernel(uint64_t session_id, std::string_view text) {
  Session* session = FindSession(session_id);
  if (session == nullptr || ends_for_kernel_) return;
  // The loop ends after this round. The context lives, but nothing can end a running kernel except
  // the end of its process.
  ends_for_kernel_ = true;
  session->PublishFault(CUDA_ERROR_LAUNCH_TIMEOUT, text);
  Log(LogLevel::kError,
      "session %llu (%s) has a kernel that runs for longer than its policy lets it: the executor "
      "ends, and with it %zu sessions",
      static_cast<unsigned long long>(session_id), session->label(), sessions_.size());
  control::ExecutorFault fault = {};
  fault.result = static_cast<uint32_t>(CUDA_ERROR_LAUNCH_TIMEOUT);
  fault.session_id = session_id;
  scheduler_.Send(fault);
}

void Loop::ReportFault() {
  const CUresult result = device_->lost();
  std::vector<const Session*> suspects;
  for (const auto& session : sessions_) {
    if (session->AtDevice()) suspects.push_back(session.get());
  }
  // If work of several allocations was at the device, nobody can tell whose it was.
  const bool is_known = !suspects.empty() &&
                        std::all_of(suspects.begin(), suspects.end(), [&](const Session* session) {
                          return session->allocation_id() == suspects[0]->allocation_id();
                        });
  // The driver writes the text of a failed assert in a synchronising call, which returns at once in
  // a lost context.
  if (result == CUDA_ERROR_ASSERT) device_->cuda().cuCtxSynchronize();
  const std::string text = LogDriverErrors();
  // Comes first, because looking for names takes time. Which of a container's processes has failed is not known, so
  // each that was at the device gets the text.
  const bool has_owner = result == CUDA_ERROR_ASSERT && is_known;
  // Every served session is notified, suspect or not: the context is gone for all of them.
  for (const auto& session : sessions_) {
    const bool about_it = has_owner && session->AtDevice();
    session->PublishFault(result, about_it ? std::string_view(text) : std::string_view());
  }
  control::ExecutorFault fault = {};
  std::string named;
  for (size_t i = 0; i < std::min(suspects.size(), kMaxSuspects); ++i) {
    const control::ExecutorFault suspected = SuspectedOf(*suspects[i]);
    named += " " + std::to_string(suspected.session_id);
    if (suspected.function[0] != 0) {
      named += " (" + OneLine(suspected.function, kLongestName) + ")";
    }
    if (is_known && fault.launches == 0) fault = suspected;
  }
  fault.result = static_cast<uint32_t>(result);
  Log(LogLevel::kError,
      "cuda: the context is lost: %s; %zu sessions are told; work of %zu was at the device, "
      "sessions%s",
      device_->NameOf(result), sessions_.size(), suspects.size(), named.c_str());
  scheduler_.Send(fault);
}

// The kernels that were at the device, of which one has failed.
control::ExecutorFault Loop::SuspectedOf(const Session& session) const {
  control::ExecutorFault fault = {};
  fault.session_id = session.id();
  std::vector<HeadOfStream> heads;
  session.AddHeads(&heads);
  CUkernel kernel = nullptr;
  for (const HeadOfStream& head : heads) {
    fault.launches += head.launches;
    if (kernel == nullptr) kernel = head.kernel;
  }
  control::SetText(fault.function, session.NameOf(kernel).c_str());
  return fault;
}

}  // namespace gpuloom::executor
