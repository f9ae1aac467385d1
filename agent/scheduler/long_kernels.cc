// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/long_kernels.h"

#include <algorithm>
#include <utility>

#include "agent/scheduler/accounting.h"
#include "agent/scheduler/event_loop.h"
#include "agent/scheduler/kernel_name.h"
#include "agent/scheduler/log.h"
#include "agent/scheduler/turns.h"

namespace gpuloom::scheduler {
namespace {

std::string Seconds(uint64_t ns) {
  const uint64_t tenths = ns / 100'000'000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

std::string Limit(uint32_t ms) { return Seconds(uint64_t{ms} * 1'000'000); }

bool IsOver(uint64_t ran_ns, uint32_t limit_ms) {
  return limit_ms != 0 && ran_ns >= uint64_t{limit_ms} * 1'000'000;
}

}  // namespace

void LongKernels::On(Executor* executor, const control::LongKernel& message,
                     control::Incoming& in) {
  control::Answer answer{};
  answer.ok = 1;
  Session* session = registry_.FindSession(message.session_id, *executor);
  if (session != nullptr && !executor->ends_for_kernel) Judge(session, message, &answer);
  if (in.header.request != 0) executor->peer->Send(in.header.request, answer);
}

// `ran_ns` is the executor's word. The first report fixes when, in the executor's own part of the
// device's time, the kernel began; later ones are believed up to what that part has grown by since.
void LongKernels::Judge(Session* session, const control::LongKernel& message,
                        control::Answer* answer) {
  Session::Kernel& kernel = session->kernel;
  const uint64_t part_ns = turns_->PartNs(*session->executor);
  if (!kernel.any || kernel.number != message.kernel) {
    kernel = {true, message.kernel, part_ns - std::min(part_ns, message.ran_ns), false};
  }
  const uint64_t ran_ns = std::min(message.ran_ns, part_ns - kernel.began_part_ns);
  // Several kernels ran at once, and each may have taken only its part of the time.
  const uint64_t least_ns = ran_ns / std::max(message.launches, 1u);
  Allocation& allocation = *session->allocation;
  const control::KernelTerms& terms = allocation.kernels;
  const bool ends = IsOver(least_ns, terms.end_after_ms);
  if (!ends && (kernel.counted || !IsOver(least_ns, terms.warn_after_ms))) return;
  if (!std::exchange(kernel.counted, true)) ++allocation.long_kernels;
  const std::string what = NameOfKernels(control::TextOf(message.function), message.launches);
  if (!ends) {
    LogFor(&allocation.lines, LogLevel::kWarning,
           session->Label() + ": " + what + " has been running for " + Seconds(ran_ns) +
               ", longer than the " + Limit(terms.warn_after_ms) + " of maxKernelTime.warn");
    return;
  }
  Executor* executor = session->executor;
  executor->ends_for_kernel = true;
  executor->reason = session->Label() + ": " + what + " has been running for " + Seconds(ran_ns) +
                     ", longer than the " + Limit(terms.end_after_ms) + " of maxKernelTime.end";
  executor->blamed = &allocation;
  Accounting::NoteFault(session, control::Fault::kLongKernel,
                        what + " has been running for " + Seconds(ran_ns) + ", longer than the " +
                            Limit(terms.end_after_ms) + " of maxKernelTime.end");
  answer->ok = 0;
  control::SetText(
      answer->message,
      ("gpuloom: " + what + " of this program has been running for " + Seconds(ran_ns) +
       ", longer than the " + Limit(terms.end_after_ms) +
       " that this cluster's policy allows (maxKernelTime): its CUDA context is lost\n")
          .c_str());
  // The executor notifies the program, and then us, before it ends.
  const uint64_t id = executor->id;
  executor->deadline = loop_->After(options_.drain_grace, [this, id] {
    Executor* late = registry_.executors.at(id).get();
    port_->LoseExecutor(late, End::kAbort, std::string(late->reason), kKernelTooLong);
  });
}

}  // namespace gpuloom::scheduler
