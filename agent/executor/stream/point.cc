// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/stream/point.h"

#include <utility>

#include "agent/executor/device/device.h"
#include "agent/executor/session/tenant.h"

namespace gpuloom::executor {

Point::~Point() {
  if (event != nullptr && event_owner == nullptr) device->GiveEvent(timing, event);
  if (counted_for != nullptr) --counted_for->events;
}

void Point::CountFor(std::shared_ptr<Tenant> tenant) {
  counted_for = std::move(tenant);
  ++counted_for->events;
}

}  // namespace gpuloom::executor
