// SPDX-License-Identifier: Apache-2.0
#include "proto/control/testing/recording.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "proto/channel/socket.h"

namespace gpuloom::control {

MessageHeader RecordedMessage::header() const {
  MessageHeader header{};
  std::memcpy(&header, bytes.data(), std::min(bytes.size(), sizeof(header)));
  return header;
}

Recording ReadRecording(const std::string& path) {
  Recording recording;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word != ">" && word != "<") return {};
    RecordedMessage message{word == "<", {}};
    while (words >> word) {
      if (word.starts_with("0*")) {
        message.bytes.resize(message.bytes.size() + std::strtoul(word.c_str() + 2, nullptr, 10));
      } else {
        message.bytes.push_back(static_cast<uint8_t>(std::strtoul(word.c_str(), nullptr, 16)));
      }
    }
    recording.push_back(std::move(message));
  }
  return recording;
}

std::string RecordingText(const Recording& recording) {
  std::string text;
  for (const RecordedMessage& message : recording) {
    text += message.from_scheduler ? "<" : ">";
    for (auto at = message.bytes.begin(); at != message.bytes.end();) {
      const auto end =
          std::find_if(at, message.bytes.end(), [](uint8_t byte) { return byte != 0; });
      if (end - at > 2) {
        text += " 0*" + std::to_string(end - at);
        at = end;
        continue;
      }
      char byte[4];
      snprintf(byte, sizeof(byte), " %02x", *at++);
      text += byte;
    }
    text += "\n";
  }
  return text;
}

RecordedScheduler::RecordedScheduler(const std::string& state_dir, Recording recording,
                                     std::function<void(uint32_t type)> on_message)
    : recording_(std::move(recording)),
      on_message_(std::move(on_message)),
      listener_(channel::ListenAt((state_dir + "/" + kControlSocketName).c_str())) {
  if (!listener_.valid() || !channel::MakePair(SOCK_STREAM, &stop_read_, &stop_write_)) abort();
  has_minors_ =
      std::any_of(recording_.begin(), recording_.end(), [](const RecordedMessage& recorded) {
        return recorded.from_scheduler && recorded.header().type == kType<Answer> &&
               recorded.bytes.size() > sizeof(MessageHeader) + Answer::kShortestBytes;
      });
  thread_ = std::thread([this] { Serve(); });
}

RecordedScheduler::~RecordedScheduler() {
  stop_write_.Reset();
  thread_.join();
}

void RecordedScheduler::Serve() {
  channel::UniqueFd connection;
  for (;;) {
    pollfd ready[] = {{stop_read_.get(), POLLIN, 0},
                      {connection.valid() ? connection.get() : listener_.get(), POLLIN, 0}};
    poll(ready, 2, -1);
    if (ready[0].revents != 0) return;
    if (!connection.valid()) {
      connection.Reset(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    } else if (!AnswerOne(connection.get())) {
      connection.Reset();
    }
  }
}

bool RecordedScheduler::AnswerOne(int connection) {
  RecordedMessage said{false, std::vector<uint8_t>(kMaxMessageBytes)};
  const ptrdiff_t size = channel::ReceiveMessage(connection, said.bytes.data(), said.bytes.size());
  if (size < 0) return false;
  said.bytes.resize(static_cast<size_t>(size));
  const MessageHeader header = said.header();
  if (on_message_) on_message_(header.type);
  const auto find = [&](bool same_hello) {
    return std::find_if(recording_.begin(), recording_.end(), [&](const RecordedMessage& recorded) {
      return !recorded.from_scheduler && recorded.header().type == header.type &&
             (recorded.bytes.size() == said.bytes.size() ||
              (has_minors_ && recorded.bytes.size() < said.bytes.size())) &&
             (!same_hello || std::equal(recorded.bytes.begin() + sizeof(header),
                                        recorded.bytes.end(), said.bytes.begin() + sizeof(header)));
    });
  };
  auto asked = find(header.type == kType<ControlHello>);
  // Of a minor that was not there yet, as the first, which was the newest.
  if (asked == recording_.end()) asked = find(false);
  if (asked == recording_.end()) {
    was_surprised_ = true;
    return false;
  }
  for (auto answer = asked + 1; answer != recording_.end() && answer->from_scheduler; ++answer) {
    std::vector<uint8_t> bytes = answer->bytes;
    std::memcpy(bytes.data() + offsetof(MessageHeader, request), &header.request,
                sizeof(header.request));
    if (!channel::SendMessage(connection, bytes.data(), bytes.size())) return false;
  }
  return true;
}

}  // namespace gpuloom::control
