// SPDX-License-Identifier: Apache-2.0
// Long sequences of launches, as programs make them: what comes again, what comes with other parameters,
// what never comes again, in several streams and threads. A library may launch them together; what they
// leave behind, their order and their errors are the same.
#include <random>
#include <thread>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

constexpr uint32_t kKernels = 6;

constexpr uint32_t Factor(uint32_t kernel) { return 1664525 + 8 * kernel; }

// step0 …: *state = *state * factor + addend, in one thread of any shape, so that the state tells the order.
std::string Text() {
  std::string text = ".version 8.0\n.target sm_70\n.address_size 64\n";
  for (uint32_t i = 0; i < kKernels; ++i) {
    const std::string number = std::to_string(i);
    text += ".visible .entry step" + number + "(.param .u64 state, .param .u32 addend";
    // Sizes differ, so that parameters move when kernels do.
    if (i % 2 == 1) text += ", .param .u64 unused";
    text +=
        ")\n{\n"
        "  .reg .b32 %r<9>;\n  .reg .b64 %rd<3>;\n  .reg .pred %p<2>;\n"
        "  ld.param.u64 %rd1, [state];\n  ld.param.u32 %r1, [addend];\n"
        "  cvta.to.global.u64 %rd2, %rd1;\n"
        "  mov.u32 %r2, %tid.x;\n  mov.u32 %r3, %ctaid.x;\n  or.b32 %r4, %r2, %r3;\n"
        "  setp.ne.u32 %p1, %r4, 0;\n  @%p1 bra DONE;\n"
        "  ld.global.u32 %r5, [%rd2];\n"
        "  mad.lo.u32 %r6, %r5, " +
        std::to_string(Factor(i)) +
        ", %r1;\n  st.global.u32 [%rd2], %r6;\n"
        "DONE:\n  ret;\n}\n";
  }
  return text;
}

struct Step {
  uint32_t kernel;
  uint32_t grid;
  uint32_t addend;
};

// A word that launches in one stream change, and what it must be.
struct State {
  CUstream stream = nullptr;
  CUdeviceptr word = 0;
  uint32_t expected = 0;
};

class Sequences : public WithContext {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(WithContext::SetUp());
    ASSERT_EQ(Cu().cuModuleLoadData(&module_, Text().c_str()), CUDA_SUCCESS);
    for (uint32_t i = 0; i < kKernels; ++i) {
      const std::string name = "step" + std::to_string(i);
      ASSERT_EQ(Cu().cuModuleGetFunction(&steps_[i], module_, name.c_str()), CUDA_SUCCESS);
    }
    words_ = Alloc(kWords * sizeof(uint32_t));
    ASSERT_EQ(Cu().cuMemsetD32_v2(words_, 0, kWords), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    for (uint32_t i = 0; i < kWords; ++i) {
      states_[i] = {i == 0 ? nullptr : Stream(i % 2 == 0 ? CU_STREAM_NON_BLOCKING : 0),
                    words_ + i * sizeof(uint32_t), 0};
    }
  }
  void TearDown() override {
    if (module_ != nullptr) {
      EXPECT_EQ(Cu().cuModuleUnload(module_), CUDA_SUCCESS);
    }
    WithContext::TearDown();
  }

  CUresult Go(State* state, const Step& step, CUstream stream) {
    state->expected = state->expected * Factor(step.kernel) + step.addend;
    if (step.kernel % 2 == 0) {
      return Launch(steps_[step.kernel], step.grid, 2, stream, state->word, step.addend);
    }
    return Launch(steps_[step.kernel], step.grid, 2, stream, state->word, step.addend, uint64_t{7});
  }
  void Go(State* state, const Step& step) {
    ASSERT_EQ(Go(state, step, state->stream), CUDA_SUCCESS);
  }

  void ExpectStates() {
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    const std::vector<uint32_t> words = Download<uint32_t>(words_, kWords);
    for (uint32_t i = 0; i < kWords; ++i) EXPECT_EQ(words[i], states_[i].expected) << i;
  }

  static Step Random(std::mt19937* random) {
    const auto below = [&](uint32_t limit) { return static_cast<uint32_t>((*random)()) % limit; };
    return {below(kKernels), 1 + below(3), static_cast<uint32_t>((*random)())};
  }
  std::vector<Step> RandomSteps(size_t count) {
    std::vector<Step> steps(count);
    for (Step& step : steps) step = Random(&random_);
    return steps;
  }

  static constexpr uint32_t kWords = 6;
  CUmodule module_ = nullptr;
  CUfunction steps_[kKernels] = {};
  CUdeviceptr words_ = 0;
  State states_[kWords];
  std::mt19937 random_{20260101};
};

TEST_F(Sequences, ThatComeAgainAndAgain) {
  const std::vector<Step> steps = RandomSteps(100);
  for (int round = 0; round < 50; ++round) {
    for (const Step& step : steps) ASSERT_NO_FATAL_FAILURE(Go(&states_[1], step));
  }
  ExpectStates();
}

TEST_F(Sequences, WithOtherParametersEachTime) {
  std::vector<Step> steps = RandomSteps(100);
  for (int round = 0; round < 50; ++round) {
    for (Step& step : steps) {
      step.addend = static_cast<uint32_t>(random_());
      ASSERT_NO_FATAL_FAILURE(Go(&states_[1], step));
    }
  }
  ExpectStates();
}

TEST_F(Sequences, ThatNeverComeAgain) {
  for (int i = 0; i < 4000; ++i) ASSERT_NO_FATAL_FAILURE(Go(&states_[1], Random(&random_)));
  ExpectStates();
}

// Streams, events between them, fills, synchronisations, and launches that are refused.
TEST_F(Sequences, AmongEverythingElse) {
  const std::vector<Step> known = RandomSteps(40);
  const CUevent event = Event(CU_EVENT_DISABLE_TIMING);
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random_()) % limit; };
  for (int i = 0; i < 1500; ++i) {
    State& state = states_[below(kWords)];
    State& other = states_[below(kWords)];
    switch (below(10)) {
      case 0:
        state.expected = static_cast<uint32_t>(random_());
        ASSERT_EQ(Cu().cuMemsetD32Async(state.word, state.expected, 1, state.stream), CUDA_SUCCESS);
        break;
      case 1:  // its work goes on in another stream, and comes back
        ASSERT_EQ(Cu().cuEventRecord(event, state.stream), CUDA_SUCCESS);
        ASSERT_EQ(Cu().cuStreamWaitEvent(other.stream, event, 0), CUDA_SUCCESS);
        for (uint32_t n = below(20); n > 0; --n) {
          ASSERT_EQ(Go(&state, Random(&random_), other.stream), CUDA_SUCCESS);
        }
        ASSERT_EQ(Cu().cuEventRecord(event, other.stream), CUDA_SUCCESS);
        ASSERT_EQ(Cu().cuStreamWaitEvent(state.stream, event, 0), CUDA_SUCCESS);
        break;
      case 2:  // more threads than a block may have
        EXPECT_EQ(
            Cu().cuLaunchKernel(steps_[0], 1, 1, 1, 5000, 1, 1, 0, state.stream, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
        break;
      case 3:
        if (below(20) == 0) {
          ASSERT_EQ(Cu().cuStreamSynchronize(state.stream), CUDA_SUCCESS);
        }
        break;
      case 4:
        for (int n = 0; n < 100; ++n) {
          ASSERT_NO_FATAL_FAILURE(Go(&state, known[static_cast<size_t>(n) % known.size()]));
        }
        break;
      default:
        for (uint32_t n = below(40); n > 0; --n) ASSERT_NO_FATAL_FAILURE(Go(&state, known[n - 1]));
    }
  }
  ExpectStates();
}

TEST_F(Sequences, CapturedAreTheSameAsLaunched) {
  const std::vector<Step> steps = RandomSteps(80);
  State& state = states_[2];
  for (int round = 0; round < 10; ++round) {
    for (const Step& step : steps) ASSERT_NO_FATAL_FAILURE(Go(&state, step));
    const uint32_t before = state.expected;
    ASSERT_EQ(Cu().cuStreamBeginCapture_v2(state.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
              CUDA_SUCCESS);
    for (const Step& step : steps) ASSERT_NO_FATAL_FAILURE(Go(&state, step));
    CUgraph graph = nullptr;
    ASSERT_EQ(Cu().cuStreamEndCapture(state.stream, &graph), CUDA_SUCCESS);
    // Nothing of it has run. What is launched now runs before it.
    state.expected = before;
    ASSERT_NO_FATAL_FAILURE(Go(&state, steps[0]));
    CUgraphExec exec = nullptr;
    ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuGraphLaunch(exec, state.stream), CUDA_SUCCESS);
    for (const Step& step : steps) {
      state.expected = state.expected * Factor(step.kernel) + step.addend;
    }
    EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuGraphDestroy(graph), CUDA_SUCCESS);
  }
  ExpectStates();
}

TEST_F(Sequences, OfSeveralThreads) {
  std::vector<std::thread> threads;
  for (uint32_t i = 1; i < kWords; ++i) {
    threads.emplace_back([this, i] {
      EXPECT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
      std::mt19937 random(i);
      std::vector<Step> steps(60);
      for (Step& step : steps) step = Random(&random);
      for (uint32_t n = 0; n < 2000; ++n) {
        EXPECT_EQ(Go(&states_[i], steps[n % steps.size()], states_[i].stream), CUDA_SUCCESS);
        if (random() % 200 == 0) {
          EXPECT_EQ(Cu().cuStreamSynchronize(states_[i].stream), CUDA_SUCCESS);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ExpectStates();
}

}  // namespace
}  // namespace gpuloom::conformance
