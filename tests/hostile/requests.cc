// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/requests.h"

#include <algorithm>

#include "tests/hostile/images.h"

namespace gpuloom::testing {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// What breaks sums, tables and comparisons. As sizes of a grid these are small, or too large for any.
constexpr uint32_t kNastyWords[] = {0,   1,   2,    3,    7,     15,    16,          63,  64,
                                    255, 256, 4095, 4096, 65535, 65536, 0x80000000u, ~1u, ~0u};

}  // namespace

Requests::Requests(Random* random, const wire::Welcome& welcome, uint8_t* arena, bool wild)
    : random_(*random),
      device_begin_(welcome.device_range_begin),
      device_bytes_(welcome.device_range_bytes),
      host_begin_(welcome.host_range_begin),
      host_bytes_(welcome.host_range_bytes),
      arena_(arena),
      keeps_addresses_(wild || random->Chance(60)),
      frees_(wild || !keeps_addresses_),
      wild_(wild) {
  size_t at = 0;
  for (const std::string& image : HostileImages(random_.Next(), wild)) {
    std::memcpy(arena_ + at, image.data(), image.size());
    images_.push_back({host_begin_ + at, image.size()});
    at += kImageRoom;
  }
  FillStreams();
  FillMemory();
  FillSharing();
  FillArrays();
  FillCode();
  FillLinks();
  FillLaunches();
  FillGraphs();
  FillGreen();
}

std::optional<Draft> Requests::Make(uint16_t opcode) {
  if (fillers_[opcode]) return fillers_[opcode]();
  Draft draft;
  draft.opcode = opcode;
  draft.request = Bytes(wire::kCommands[opcode].request_bytes);
  return draft;
}

void Requests::Spoil(Draft* draft) {
  const size_t bytes = std::min(draft->request.size(), draft->spoilable_bytes) & ~size_t{3};
  const uint32_t choice = random_.Below(10);
  if (choice == 0 && !draft->has_grid) {
    const size_t most = wire::kCommands[draft->opcode].max_payload_bytes;
    const size_t sizes[] = {0,    1,       draft->payload.size() / 2, draft->payload.size() + 1,
                            most, most + 1};
    draft->payload.resize(std::min<size_t>(sizes[random_.Below(std::size(sizes))], 70u << 10));
  } else if (choice == 1 && draft->payload.size() >= 4) {
    // In a graph these are words of a grid, too.
    const size_t at = random_.Below(static_cast<uint32_t>(draft->payload.size() / 4)) * 4;
    std::memcpy(draft->payload.data() + at, &kNastyWords[random_.Below(std::size(kNastyWords))], 4);
  } else if (choice < 5 && bytes >= 8 && !draft->has_grid) {
    const uint64_t value = AnyAddress();
    std::memcpy(draft->request.data() + random_.Below(static_cast<uint32_t>(bytes / 8)) * 8, &value,
                8);
  } else if (bytes >= 4) {
    const uint32_t word = kNastyWords[random_.Below(std::size(kNastyWords))];
    std::memcpy(draft->request.data() + random_.Below(static_cast<uint32_t>(bytes / 4)) * 4, &word,
                4);
  }
}

uint64_t Requests::AnyAddress() {
  const uint64_t begins[] = {0,
                             0x400000,
                             ~uint64_t{0},
                             ~uint64_t{0} - 4095,
                             device_begin_,
                             device_begin_ + device_bytes_,
                             host_begin_,
                             host_begin_ + host_bytes_,
                             host_begin_ + host_bytes_ / 2,
                             space_.begin,
                             uint64_t{1} << 47,
                             uint64_t{1} << 63};
  const uint64_t steps[] = {0, 0, 1, 4, 4096, 2 * kMiB, ~uint64_t{0}, ~uint64_t{4095}};
  return begins[random_.Below(std::size(begins))] + steps[random_.Below(std::size(steps))];
}

wire::StreamId Requests::AnyStream() {
  return wire::StreamId{random_.Chance(30) ? 0 : streams_.Used(&random_)};
}

Requests::Part Requests::AnyDevicePart(uint64_t most_bytes) {
  if (memory_.empty()) return {device_begin_, 4};
  const Part whole = random_.Of(memory_);
  const uint64_t bytes = std::min({most_bytes, whole.size_bytes, uint64_t{1} << random_.Below(22)});
  const uint64_t room = whole.size_bytes - bytes;
  return {whole.begin + (room == 0 ? 0 : random_.Next() % room & ~uint64_t{15}), bytes};
}

Requests::Part Requests::AnyHostPart(uint64_t most_bytes) {
  if (!registered_.empty() && random_.Chance(70)) {
    const Part whole = AnyRegistered();
    return {whole.begin, std::min(most_bytes, whole.size_bytes)};
  }
  return {host_begin_ + kCopiesBegin + random_.Below(64) * 4096,
          std::min(most_bytes, uint64_t{1} << random_.Below(17))};
}

const Requests::Part& Requests::AnyRegistered() {
  return std::next(registered_.begin(), random_.Below(static_cast<uint32_t>(registered_.size())))
      ->second;
}

Requests::Part Requests::AnyPart(uint64_t most_bytes) {
  return random_.Chance(60) ? AnyDevicePart(most_bytes) : AnyHostPart(most_bytes);
}

std::vector<uint8_t> Requests::Bytes(size_t count) {
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random_.Next());
  return bytes;
}

std::vector<uint8_t> Requests::Text(std::string_view text) { return {text.begin(), text.end()}; }

wire::Token Requests::AnyToken() {
  return tokens_.empty() ? wire::Token{{random_.Next(), random_.Next()}} : random_.Of(tokens_);
}

bool Requests::Expect(Names* names, uint32_t id, Draft* draft, uint32_t owner) {
  if (id == 0) return false;
  names->Add(id, false, owner);
  draft->learn = [names, id](const wire::ReplySlot& answer) {
    names->Answer(id, answer.result == 0);
  };
  return true;
}

void Requests::FillStreams() {
  On<wire::StreamCreate>([this](auto* request, Draft* draft) {
    *request = {wire::StreamId{streams_.New(&random_)}, random_.Below(2),
                -static_cast<int>(random_.Below(3))};
    return Expect(&streams_, static_cast<uint32_t>(request->stream), draft);
  });
  On<wire::StreamDestroy>([this](auto* request, Draft*) {
    const uint32_t stream = streams_.Used(&random_);
    streams_.Drop(stream);
    request->stream = wire::StreamId{stream};
    return stream != 0;
  });
  On<wire::StreamMark>([this](auto* request, Draft*) {
    request->stream = AnyStream();
    return true;
  });
  On<wire::EventCreate>([this](auto* request, Draft*) {
    const uint32_t event = events_.New(&random_);
    *request = {wire::EventId{event}, random_.Below(2)};
    if (event != 0) events_.Add(event, true);
    return event != 0;
  });
  On<wire::EventDestroy>([this](auto* request, Draft*) {
    const uint32_t event = events_.Used(&random_);
    events_.Drop(event);
    request->event = wire::EventId{event};
    return event != 0;
  });
  On<wire::EventRecord>([this](auto* request, Draft*) {
    *request = {wire::EventId{events_.Used(&random_)}, AnyStream()};
    return request->event != wire::EventId{0};
  });
  On<wire::StreamWaitEvent>([this](auto* request, Draft*) {
    *request = {AnyStream(), wire::EventId{events_.Used(&random_)}};
    return request->event != wire::EventId{0};
  });
  On<wire::EventElapsed>([this](auto* request, Draft*) {
    *request = {wire::EventId{events_.Used(&random_)}, wire::EventId{events_.Used(&random_)}};
    return request->end != wire::EventId{0};
  });
  On<wire::HostFunction>([this](auto* request, Draft*) {
    *request = {random_.Next(), AnyStream(), 0};
    return true;
  });
  On<wire::StreamWriteValue>([this](auto* request, Draft*) {
    *request = {AnyPart(8).begin & ~uint64_t{7}, random_.Below(3), AnyStream(),
                random_.Chance(50) ? 4u : 8u};
    return !memory_.empty() && !registered_.empty();
  });
  On<wire::StreamWaitValue>([this](auto* request, Draft*) {
    *request = {AnyPart(8).begin & ~uint64_t{7}, random_.Below(3), AnyStream(),
                random_.Chance(50) ? 4u : 8u,    random_.Below(4), 0};
    return !memory_.empty() && !registered_.empty();
  });
  On<wire::UnsupportedCall>([](auto*, Draft* draft) {
    draft->payload = Text("cuFlyAway");
    return true;
  });
}

}  // namespace gpuloom::testing
