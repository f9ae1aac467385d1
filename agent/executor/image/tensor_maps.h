// SPDX-License-Identifier: Apache-2.0
// The part of a session for tensor maps. Holds nothing. Ring thread only.
#pragma once

#include "agent/executor/session/session_port.h"

namespace gpuloom::executor {

class TensorMaps final : public Part {
 public:
  explicit TensorMaps(SessionPort* port) : Part(port) {}

  void On(wire::Tag<wire::TensorMapEncode>, const wire::TensorMapEncode::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::TensorMapReplaceAddress>, const wire::TensorMapReplaceAddress::Request&,
          const wire::Record&);
};

}  // namespace gpuloom::executor
