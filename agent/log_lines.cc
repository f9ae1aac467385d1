#include "agent/log_lines.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/spdlog.h>

#include <memory>

#include "agent/node/one_line.h"

namespace gpuloom {
namespace {

class WholeMessage : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& line) override {
    const std::string text =
        OneLine({message.payload.data(), message.payload.size()}, kMaxLogLineBytes);
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<WholeMessage>();
  }
};

}  // namespace

void KeepLogLinesWhole() {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  // As spdlog's own, but for the message.
  formatter->add_flag<WholeMessage>('*').set_pattern("[%Y-%m-%d %H:%M:%S.%e] [%^%l%$] %*");
  spdlog::set_formatter(std::move(formatter));
}

}  // namespace gpuloom
