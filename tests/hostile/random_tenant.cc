// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/random_tenant.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <sstream>
#include <thread>

namespace gpuloom::testing {
namespace {

using sequences::Random;
using std::chrono::microseconds;

void Store(uint32_t* word, uint32_t value) {
  std::atomic_ref<uint32_t>(*word).store(value, std::memory_order_release);
}

// Beside the session's commands: rings as fast as it can, or rewrites what the executor reads.
class Disturber {
 public:
  enum class What : uint32_t { kNothing, kFlood, kRing, kArena };
  Disturber(HostileTenant* tenant, What what, uint64_t seed) : tenant_(*tenant), random_(seed) {
    if (what != What::kNothing) thread_ = std::thread([this, what] { Run(what); });
  }
  ~Disturber() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run(What what) {
    const char bytes[512] = {};
    while (!stop_) {
      if (what == What::kFlood) {
        if (send(tenant_.doorbell(), bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
          std::this_thread::sleep_for(microseconds(20));
        }
        continue;
      }
      uint8_t* memory =
          what == What::kRing ? tenant_.commands()->ring : tenant_.arena() + (1u << 20);
      const uint32_t at = random_.Below(what == What::kRing ? wire::kRingBytes : 256u << 10) & ~3u;
      // Words of a grid, too, which must not become large ones.
      const uint32_t value = random_.Chance(50) ? random_.Below(4) : ~random_.Below(16);
      Store(reinterpret_cast<uint32_t*>(memory + at), value);
      if (random_.Chance(5)) std::this_thread::sleep_for(microseconds(50));
    }
  }

  HostileTenant& tenant_;
  Random random_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

bool IsLeftOut(std::string_view name, const std::string& without) {
  std::istringstream beginnings(without);
  for (std::string beginning; std::getline(beginnings, beginning, ',');) {
    if (name.starts_with(beginning)) return true;
  }
  return false;
}

}  // namespace

// ---- a session

RandomSession::RandomSession(HostileTenant* tenant, Random* random,
                             const RandomTenant::Habits& habits)
    : tenant_(*tenant),
      random_(*random),
      requests_(random, tenant->welcome(), tenant->arena(), habits.wild),
      trace_(habits.trace),
      wrong_permille_(random->Of<uint32_t>({0, 0, 2, 20, 200})),
      hasty_percent_(random->Of<uint32_t>({0, 20, 80})) {
  for (uint16_t opcode = 0; opcode < wire::kCommands.size(); ++opcode) {
    if (!IsLeftOut(wire::kCommands[opcode].name, habits.without)) opcodes_.push_back(opcode);
  }
}

template <typename Predicate>
bool RandomSession::WaitShortly(Predicate holds) {
  for (int i = 0; i < 500; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(microseconds(200));
  }
  return holds();
}

void RandomSession::Run() {
  const auto disturbance =
      static_cast<Disturber::What>(random_.Chance(30) ? 1 + random_.Below(3) : 0);
  const Disturber disturber(&tenant_, disturbance, random_.Next());
  const uint32_t steps = 1u << random_.Between(2, 9);
  for (uint32_t i = 0; i < steps && !stuck_ && !IsOver(); ++i) Step();
  TakeAnswers();
  // What comes after the end is nobody's.
  for (uint32_t i = 0; i < 3 && IsOver(); ++i) Step();
}

void RandomSession::Step() {
  if (random_.Chance(5)) PlayWithWords();
  std::optional<Draft> draft;
  for (int tries = 0; tries < 50 && !draft; ++tries) {
    draft = requests_.Make(random_.Of(opcodes_));
  }
  if (!draft) return;
  const bool wrong = random_.Below(1000) < wrong_permille_;
  if (wrong) requests_.Spoil(&*draft);
  uint16_t slot = wire::kNoReply;
  if (wire::kCommands[draft->opcode].has_reply) {
    const auto begin = static_cast<uint16_t>(random_.Below(wire::kReplySlots));
    slot = begin;
    while (asked_[slot].waits) {
      slot = static_cast<uint16_t>((slot + 1) % wire::kReplySlots);
      if (slot == begin) {
        stuck_ = true;
        return;
      }
    }
  }
  if (!Send(*draft, slot, wrong && random_.Chance(20))) {
    stuck_ = true;
    return;
  }
  if (!random_.Chance(5)) tenant_.Ring();
  if (slot == wire::kNoReply) {
    ++succeeded_[draft->opcode];
  } else {
    asked_[slot] = {wire::Ticket{tickets_}, draft->opcode, true, std::move(draft->learn)};
    if (!random_.Chance(hasty_percent_)) {
      tenant_.Ring();
      WaitShortly(
          [&] { return IsOver() || tenant_.completions().FindReply(slot, asked_[slot].ticket); });
    }
  }
  TakeAnswers();
}

void RandomSession::TakeAnswers() {
  for (uint16_t slot = 0; slot < wire::kReplySlots; ++slot) {
    Asked& asked = asked_[slot];
    if (!asked.waits) continue;
    const wire::ReplySlot* answer = tenant_.completions().FindReply(slot, asked.ticket);
    if (answer == nullptr) continue;
    asked.waits = false;
    if (answer->result == 0) ++succeeded_[asked.opcode];
    if (answer->result != 0) refusal_[asked.opcode] = answer->result;
    if (asked.learn) asked.learn(*answer);
  }
}

// The words beside the ring, which no command goes with.
void RandomSession::PlayWithWords() {
  wire::CommandHead& head = tenant_.commands()->head;
  switch (random_.Below(6)) {
    case 0:
      Store(&head.tenant_sleeps, random_.Below(2));
      return;
    case 1:
      Store(&head.tenant_waits, random_.Chance(50) ? random_.Below(4) : ~0u);
      return;
    case 2:
    case 3:  // its functions have returned
      Store(&head.host_functions_done, tenant_.completions().host_functions_due());
      return;
    case 4:
      if (wrong_permille_ != 0)
        Store(&head.host_functions_done, static_cast<uint32_t>(random_.Next()));
      return;
    default:
      std::atomic_ref<uint64_t>(head.text_read).store(random_.Next(), std::memory_order_release);
      return;
  }
}

uint8_t* RandomSession::Reserve(uint32_t size_bytes) {
  const uint32_t offset = tail_ % wire::kRingBytes;
  const uint32_t to_end = wire::kRingBytes - offset;
  const uint32_t pad = size_bytes <= to_end ? 0 : to_end;
  if (!WaitShortly([&] {
        return IsOver() || wire::kRingBytes - (tail_ - tenant_.consumed()) >= pad + size_bytes;
      })) {
    return nullptr;
  }
  if (pad != 0) {
    const wire::RecordHeader header{pad, wire::kPadOpcode, wire::kNoReply, 0, 0};
    std::memcpy(tenant_.commands()->ring + offset, &header, sizeof(header));
  }
  tail_ += pad;
  return tenant_.commands()->ring + tail_ % wire::kRingBytes;
}

bool RandomSession::Send(const Draft& draft, uint16_t slot, bool spoil_header) {
  const auto payload_bytes = static_cast<uint32_t>(draft.payload.size());
  const auto request_bytes = static_cast<uint32_t>(draft.request.size());
  wire::RecordHeader header{0, draft.opcode, slot, payload_bytes, 0};
  header.size_bytes =
      wire::RoundUpToRecord(static_cast<uint32_t>(sizeof(header)) + request_bytes + payload_bytes);
  const uint32_t size_bytes = header.size_bytes;
  uint8_t* record = Reserve(size_bytes);
  if (record == nullptr) return false;
  if (trace_) Trace(draft);
  if (spoil_header) {
    const auto nonsense = static_cast<uint32_t>(random_.Next());
    switch (random_.Below(5)) {
      case 0:
        header.size_bytes = random_.Chance(50) ? nonsense : header.size_bytes + 16;
        break;
      case 1:
        header.opcode = static_cast<uint16_t>(random_.Chance(50) ? nonsense : header.opcode + 1);
        break;
      case 2:
        header.reply_slot = static_cast<uint16_t>(random_.Chance(50) ? nonsense : wire::kNoReply);
        break;
      case 3:
        header.payload_bytes = random_.Chance(50) ? nonsense : payload_bytes + 1;
        break;
      default:  // a half-written record
        tail_ += 4;
        break;
    }
  }
  std::memcpy(record, &header, sizeof(header));
  if (request_bytes != 0) std::memcpy(record + sizeof(header), draft.request.data(), request_bytes);
  if (payload_bytes != 0) {
    std::memcpy(record + sizeof(header) + request_bytes, draft.payload.data(), payload_bytes);
  }
  tail_ += size_bytes;
  Store(&tenant_.commands()->head.tail, tail_);
  ++tickets_;
  ++commands_;
  return true;
}

void RandomSession::Trace(const Draft& draft) const {
  std::string line = std::to_string(tenant_.welcome().session_id) + " " +
                     std::string(wire::kCommands[draft.opcode].name);
  for (size_t at = 0; at + 4 <= draft.request.size(); at += 4) {
    uint32_t word = 0;
    std::memcpy(&word, draft.request.data() + at, sizeof(word));
    char text[16];
    std::snprintf(text, sizeof(text), " %x", word);
    line += text;
  }
  std::fprintf(stderr, "%s | %zu\n", line.c_str(), draft.payload.size());
}

std::string RandomSession::Line() const {
  std::string line = "session " + std::to_string(commands_) + " " +
                     std::to_string(static_cast<uint32_t>(tenant_.completions().fatal()));
  for (size_t opcode = 0; opcode < succeeded_.size(); ++opcode) {
    if (succeeded_[opcode] == 0 && refusal_[opcode] == 0) continue;
    line += " " + std::to_string(opcode) + ":" + std::to_string(succeeded_[opcode]) + ":" +
            std::to_string(refusal_[opcode]);
  }
  return line;
}

// ---- the tenant

RandomTenant::RandomTenant(std::string directory, uint64_t seed, Habits habits)
    : directory_(std::move(directory)), habits_(std::move(habits)), random_(seed) {}

int RandomTenant::Run() {
  // The end of a process that is killed, at a moment that nobody knows.
  if (random_.Chance(30)) {
    const itimerval later = {{0, 0}, {0, static_cast<suseconds_t>(random_.Between(500, 300'000))}};
    setitimer(ITIMER_REAL, &later, nullptr);
  }
  const uint32_t sessions = random_.Between(1, 4);
  for (uint32_t i = 0; i < sessions; ++i) {
    if (random_.Chance(10)) ConnectBadly();
    RunSession();
  }
  return 0;
}

// Says something else than hello, or too much, or nothing.
void RandomTenant::ConnectBadly() {
  HostileTenant tenant(directory_);
  wire::Hello hello{wire::kHelloMagic, wire::kWireMajor, wire::kWireMinor, 0, 0, 0, {}};
  const int fds[] = {0, 1, 2, 0};
  std::vector<uint8_t> nonsense(random_.Below(4096));
  for (uint8_t& byte : nonsense) byte = static_cast<uint8_t>(random_.Next());
  switch (random_.Below(5)) {
    case 0:
      break;
    case 1:
      (void)tenant.Send(nonsense.data(), nonsense.size());
      break;
    case 2:
      hello.major = static_cast<uint16_t>(random_.Next());
      (void)tenant.Send(&hello, sizeof(hello));
      break;
    case 3:
      (void)tenant.Send(&hello, sizeof(hello), fds, std::size(fds));
      (void)tenant.ReceiveWelcome();
      break;
    default:  // twice, and gone before the answer
      (void)tenant.Send(&hello, sizeof(hello));
      (void)tenant.Send(&hello, sizeof(hello));
      break;
  }
}

void RandomTenant::RunSession() {
  HostileTenant tenant(directory_);
  if (!tenant.Attach()) {
    std::puts("refused");
    std::fflush(stdout);
    return;
  }
  std::string line;
  if (habits_.trace) {
    std::fprintf(stderr, "%d begins session %llu\n", getpid(),
                 static_cast<unsigned long long>(tenant.welcome().session_id));
  }
  {
    RandomSession session(&tenant, &random_, habits_);
    session.Run();
    line = session.Line();
  }
  std::puts(line.c_str());
  std::fflush(stdout);
  switch (random_.Below(6)) {
    case 0:
      _exit(0);
    case 1:
      raise(SIGKILL);
      break;
    case 2:  // no more doorbell, and the connection a little longer
      shutdown(tenant.doorbell(), SHUT_RDWR);
      std::this_thread::sleep_for(microseconds(random_.Below(5000)));
      break;
    case 3:
      tenant.HangUp();
      tenant.Ring();
      break;
    default:
      break;
  }
}

}  // namespace gpuloom::testing
