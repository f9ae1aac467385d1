// SPDX-License-Identifier: Apache-2.0
// The part of a session for the limits of the one primary context. Ring thread only. Has no state: what was raised is
// the context's, and its charge the executor's (ContextMemory); both outlive the session. Refusals are replies.
#pragma once

#include "agent/executor/session/session_port.h"

namespace gpuloom::executor {

class ContextLimits final : public Part {
 public:
  explicit ContextLimits(SessionPort* port) : Part(port) {}

  void On(wire::Tag<wire::ContextSetLimit>, const wire::ContextSetLimit::Request&,
          const wire::Record&);
};

}  // namespace gpuloom::executor
