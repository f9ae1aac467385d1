// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/stream/point.h"

#include "agent/executor/device/device.h"

namespace gpuloom::executor {

Point::~Point() {
  if (event != nullptr && event_owner == nullptr) device->GiveEvent(timing, event);
}

}  // namespace gpuloom::executor
