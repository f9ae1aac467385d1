// SPDX-License-Identifier: Apache-2.0
// Whose kernels may print now. The device has one buffer for printed text and nothing in it says who
// wrote it, so kernels that may print (of libraries that name vprintf) of different sessions take
// turns. A session's turn ends when its printing launches are done and their text has been taken
// out; while another session waits it gets no further launches in. A session alone waits for nobody.
//
// The driver writes the text to stdout when a stream is synchronised, whichever work goes on beside
// it; a worker does that after each printing launch, before its completion is told, so that the
// text is there when the tenant's call returns.
//
// A kernel that never ends keeps the turn: others' printing kernels wait for it.
//
// Ring thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "agent/executor/printing/driver_output.h"
#include "agent/executor/session/work_pool.h"
#include "agent/node/line_budget.h"

namespace gpuloom::executor {

class Printer {
 public:
  // `output` may be null: nothing is captured.
  Printer(Device* device, WorkPool* pool, DriverOutput* output)
      : device_(device), output_(output), lane_(pool) {}

  // False: it is another's turn; the session is noted as waiting and asks again later.
  bool MayPrint(uint64_t session);
  // A launch that may print is handed to CUDA; MayPrint has just allowed it.
  void Began(uint64_t session);
  // So many are done and their text is taken.
  void Ended(uint32_t launches);
  // The session no longer waits.
  void Forget(uint64_t session) { std::erase(waiting_, session); }

  // `done` gets what was printed up to `reached`, which the GPU has reached already.
  void Flush(CUevent reached, std::function<void(std::string)> done);

 private:
  Device* const device_;
  DriverOutput* const output_;
  Lane lane_;
  CUstream stream_ = nullptr;  // made with the first flush
  LineBudget lines_;
  uint64_t owner_ = 0;
  uint32_t launches_ = 0;  // of the owner, begun and not ended
  std::deque<uint64_t> waiting_;
};

}  // namespace gpuloom::executor
