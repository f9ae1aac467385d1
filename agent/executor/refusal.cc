#include "agent/executor/refusal.h"

#include "agent/executor/log.h"

namespace gpuloom::executor {

void Refuse(channel::UniqueFd control, const std::string& error, bool driver_failed) {
  Log(LogLevel::kError, "%s", error.c_str());
  control::Connection connection(std::move(control));
  control::ExecutorReady ready = {};
  ready.driver_failed = driver_failed;
  control::SetText(ready.message, error.c_str());
  (void)connection.Send(0, ready);
}

}  // namespace gpuloom::executor
