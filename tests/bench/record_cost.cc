// SPDX-License-Identifier: Apache-2.0
// gpuloom-record-cost: for every command, the most time that one record of it costs the executor's ring thread,
// as a table. The real session, dispatcher and workers on the software GPU, and a tenant that has made much
// (record_forms.h). Each command is sent in its costliest valid form, and with every byte of its request and of its
// longest payload 0xff.
//
//   stretch   the longest time without a look at the other sessions: what a neighbour may have to wait for
//   in all    of the ring thread until nothing of the record is left to do, with what must lie right before it; a
//             session's end included where the record ends it
//
// Software streams are locks and threads of this process; a GPU's driver takes other times
// (docs/design/ring-thread.md).
//
//   gpuloom-record-cost [--limit MILLISECONDS]
//
// Exit status: 1 when some stretch is longer, 2 when a command has no valid form or an unexpected answer.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "agent/executor/process/log.h"
#include "tests/bench/record_forms.h"

namespace gpuloom::executor {
namespace {

template <wire::Command C>
void PostGarbage(Meter* meter) {
  typename C::Request request;
  std::memset(static_cast<void*>(&request), 0xff, sizeof(request));
  meter->Expect(std::nullopt);
  meter->Post<C>(request, std::vector<uint8_t>(wire::MaxPayloadBytes<C>(), 0xff));
  meter->Expect(CUDA_SUCCESS);
}

template <wire::Command... Cs>
std::vector<void (*)(Meter*)> GarbageOf(wire::CommandList<Cs...>) {
  return {&PostGarbage<Cs>...};
}

class Table {
 public:
  explicit Table(Meter* meter) : meter_(*meter), forms_(meter) {}

  // By opcode.
  void MeasureGarbage() {
    for (const auto& send : GarbageOf(wire::AllCommands{})) {
      meter_.BeginSession();
      meter_.Begin();
      send(&meter_);
      meter_.Settle();
      garbage_.push_back(meter_.cost());
      Note(garbage_.back());
    }
  }

  bool MeasureForms() {
    printf("%-24s %19s   %19s\n%-24s %9s %9s   %9s %9s\n", "", "costliest valid, ms", "garbage, ms",
           "command", "stretch", "in all", "stretch", "in all");
    bool ok = SetUp();
    for (size_t opcode = 0; ok && opcode < wire::kCommands.size(); ++opcode) {
      ok = Measure(wire::kCommands[opcode].name, garbage_[opcode]);
    }
    if (!ok) return false;
    const Cost end = meter_.EndSession();
    Note(end);
    printf("%-24s", "the session's end");
    Print(end);
    printf("\nlongest stretch %.3f ms\n", static_cast<double>(longest_ns_) / 1e6);
    return true;
  }

  uint64_t longest_ns() const { return longest_ns_; }

 private:
  bool SetUp() {
    meter_.BeginSession();
    forms_.SetUp();
    return !Complains("what the tenant makes first");
  }

  bool Measure(std::string_view name, const Cost& garbage) {
    if (!forms_.Has(name)) {
      fprintf(stderr, "%.*s: no valid form of it is here; add one to record_forms_….cc\n",
              static_cast<int>(name.size()), name.data());
      return false;
    }
    forms_.Send(name);
    meter_.Settle();
    const Cost cost = meter_.cost();
    Note(cost);
    printf("%-24.*s", static_cast<int>(name.size()), name.data());
    Print(cost);
    printf("  ");
    Print(garbage);
    printf("\n");
    fflush(stdout);
    if (Complains(name)) return false;
    meter_.ReturnHostFunctions();
    return forms_.TakesAway(name) ? SetUp() : true;
  }

  bool Complains(std::string_view about) {
    const std::string complaint = meter_.TakeComplaint();
    if (complaint.empty()) return false;
    fprintf(stderr, "%.*s: %s\n", static_cast<int>(about.size()), about.data(), complaint.c_str());
    return true;
  }

  void Note(const Cost& cost) { longest_ns_ = std::max(longest_ns_, cost.stretch_ns); }
  static void Print(const Cost& cost) {
    printf(" %9.3f %9.3f", static_cast<double>(cost.stretch_ns) / 1e6,
           static_cast<double>(cost.all_ns) / 1e6);
  }

  Meter& meter_;
  RecordForms forms_;
  std::vector<Cost> garbage_;
  uint64_t longest_ns_ = 0;
};

int Main(double limit_ms) {
  Driver driver;
  std::string error;
  if (!Load(GPULOOM_SOFTGPU_LIBRARY, &driver, &error)) {
    fprintf(stderr, "gpuloom-record-cost: %s\n", error.c_str());
    return 2;
  }
  SetLogLevel(LogLevel::kNone);
  Meter meter(driver);
  Table table(&meter);
  table.MeasureGarbage();
  if (!table.MeasureForms()) return 2;
  return limit_ms > 0 && static_cast<double>(table.longest_ns()) / 1e6 > limit_ms ? 1 : 0;
}

}  // namespace
}  // namespace gpuloom::executor

int main(int argc, char** argv) {
  const bool limited = argc == 3 && strcmp(argv[1], "--limit") == 0;
  if (argc != 1 && !limited) {
    fprintf(stderr, "usage: gpuloom-record-cost [--limit MILLISECONDS]\n");
    return 2;
  }
  const int status = gpuloom::executor::Main(limited ? atof(argv[2]) : 0);
  fflush(stdout);
  // Without destructors: the software GPU's threads are its own.
  _exit(status);
}
