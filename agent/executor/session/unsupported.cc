// SPDX-License-Identifier: Apache-2.0
// Reports to the scheduler what a tenant has asked of CUDA that is not supported.
#include "agent/executor/session/scheduler_link.h"
#include "agent/executor/session/unsupported_calls.h"

namespace gpuloom::executor {
namespace {

// Programs report a few; further reports of a session are dropped.
constexpr uint32_t kMaxUnsupportedCalls = 64;

}  // namespace

void UnsupportedCalls::On(wire::Tag<wire::UnsupportedCall>, const wire::UnsupportedCall::Request&,
                          const wire::Record& record) {
  if (record.payload.empty() || unsupported_calls_ == kMaxUnsupportedCalls) return;
  ++unsupported_calls_;
  control::UnsupportedCall message{};
  // The name is the tenant's text, whatever it sent; SetText cuts it to what the message holds.
  message.session_id = id();
  control::SetText(message.name, reinterpret_cast<const char*>(record.payload.data()),
                   record.payload.size());
  services_.scheduler->Send(message);
}

}  // namespace gpuloom::executor
