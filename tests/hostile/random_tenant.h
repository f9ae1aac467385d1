// SPDX-License-Identifier: Apache-2.0
// A tenant that does anything: sessions of commands that are nearly right, written raw into the ring, with
// wrong ones among them; nonsense at the door, in the ring, at the doorbell and in the shared words; work that
// nobody waits for, and sudden ends. A seed decides what it does; when its answers come, the machine does.
//
//   return RandomTenant(directory, seed, wild).Run();    // in a process of its own: it may not return
//
// Says one line a session on standard output: what happened, for the report (main.cc counts them).
#pragma once

#include <string>

#include "tests/hostile/hostile_tenant.h"
#include "tests/hostile/requests.h"

namespace gpuloom::testing {

class RandomTenant {
 public:
  struct Habits {
    bool wild =
        false;  // also launches what faults and what never ends, which costs its trust domain the executor
    bool trace = false;        // says each command on standard error
    std::string without = {};  // beginnings of commands' names that it never sends, with commas
  };
  RandomTenant(std::string directory, uint64_t seed, Habits habits);

  int Run();

 private:
  void ConnectBadly();
  void RunSession();

  const std::string directory_;
  const Habits habits_;
  sequences::Random random_;
};

// One session of it.
class RandomSession {
 public:
  RandomSession(HostileTenant* tenant, sequences::Random* random,
                const RandomTenant::Habits& habits);

  // Until the executor ends it, or the tenant has had enough.
  void Run();
  // For standard output.
  std::string Line() const;

 private:
  struct Asked {
    wire::Ticket ticket{};
    uint16_t opcode = 0;
    bool waits = false;  // nothing has come yet
    std::function<void(const wire::ReplySlot&)> learn;
  };

  void Step();
  void PlayWithWords();
  void Trace(const Draft& draft) const;
  bool Send(const Draft& draft, uint16_t slot, bool spoil_header);
  uint8_t* Reserve(uint32_t size_bytes);
  void TakeAnswers();
  bool IsOver() const { return tenant_.completions().fatal() != wire::Fatal::kNone; }
  // Sleeps between looks: the processors are the others'.
  template <typename Predicate>
  static bool WaitShortly(Predicate holds);

  HostileTenant& tenant_;
  sequences::Random& random_;
  Requests requests_;
  const bool trace_;
  std::vector<uint16_t> opcodes_;  // that it sends
  const uint32_t wrong_permille_;
  const uint32_t hasty_percent_;
  Asked asked_[wire::kReplySlots];
  uint32_t tail_ = 0;
  uint32_t commands_ = 0;
  uint64_t tickets_ = 0;
  bool stuck_ = false;
  std::array<uint32_t, wire::kCommands.size()> succeeded_{};
  std::array<uint32_t, wire::kCommands.size()> refusal_{};  // the latest CUresult
};

}  // namespace gpuloom::testing
