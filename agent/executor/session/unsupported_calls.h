// SPDX-License-Identifier: Apache-2.0
// The part of a session for reporting CUDA calls that are not supported. Ring thread only. Keeps a count and nothing
// else: further reports of a session that has sent many are dropped, and no answer is sent.
#pragma once

#include "agent/executor/session/session_port.h"

namespace gpuloom::executor {

class UnsupportedCalls final : public Part {
 public:
  explicit UnsupportedCalls(SessionPort* port) : Part(port) {}

  void On(wire::Tag<wire::UnsupportedCall>, const wire::UnsupportedCall::Request&,
          const wire::Record&);

 private:
  uint32_t unsupported_calls_ = 0;  // reported so far
};

}  // namespace gpuloom::executor
