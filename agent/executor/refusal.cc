#include "agent/executor/refusal.h"

#include "agent/executor/log.h"

namespace gpuloom::executor {

void Refuse(channel::UniqueFd control, const std::string& error) {
  Log(LogLevel::kError, "%s", error.c_str());
  control::Connection connection(std::move(control));
  control::ExecutorReady ready = {};
  control::SetText(ready.message, error.c_str());
  (void)connection.Send(0, ready);
}

}  // namespace gpuloom::executor
