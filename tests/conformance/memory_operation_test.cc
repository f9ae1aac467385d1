// SPDX-License-Identifier: Apache-2.0
// A stream's writes of words and waits for words. The codes of wrong calls are those of driver 580 on
// an H200.
#include <algorithm>
#include <vector>

#include "proto/sync/testing/wait_for.h"
#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

constexpr unsigned kGeq = CU_STREAM_WAIT_VALUE_GEQ;
constexpr unsigned kEq = CU_STREAM_WAIT_VALUE_EQ;
constexpr unsigned kAnd = CU_STREAM_WAIT_VALUE_AND;
constexpr unsigned kNor = CU_STREAM_WAIT_VALUE_NOR;

CUstreamBatchMemOpParams WriteOf(CUdeviceptr address, uint32_t value) {
  CUstreamBatchMemOpParams one = {};
  one.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  one.writeValue.address = address;
  one.writeValue.value = value;
  return one;
}

CUstreamBatchMemOpParams WaitFor(CUdeviceptr address, uint32_t value, unsigned flags) {
  CUstreamBatchMemOpParams one = {};
  one.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  one.waitValue.address = address;
  one.waitValue.value = value;
  one.waitValue.flags = flags;
  return one;
}

class MemoryOperations : public WithKernels {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(WithKernels::SetUp());
    host_ = static_cast<uint32_t*>(HostAlloc(64));
    ASSERT_NE(host_, nullptr);
    ASSERT_EQ(Cu().cuMemHostGetDevicePointer_v2(&on_host_, host_, 0), CUDA_SUCCESS);
    words_ = Alloc(64);
    ASSERT_EQ(Cu().cuMemsetD32_v2(words_, 0, 16), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    store_ = Function("store");
  }
  uint32_t Word(size_t i) { return Download<uint32_t>(words_ + 4 * i, 1)[0]; }
  void Say(size_t i, uint32_t value) { const_cast<volatile uint32_t*>(host_)[i] = value; }
  // Still so when what came later in another stream is done.
  void ExpectHeld(CUstream stream) {
    if (other_ == nullptr) other_ = Stream();
    for (uint32_t step = 0; step < 3; ++step) {
      EXPECT_EQ(Cu().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
      ASSERT_EQ(Launch(store_, 1, 1, other_, words_ + 60, step), CUDA_SUCCESS);
      ASSERT_NO_FATAL_FAILURE(Finish(other_));
    }
    EXPECT_EQ(Cu().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  }
  void Finish(CUstream stream) { ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS); }

  uint32_t* host_ = nullptr;
  CUdeviceptr on_host_ = 0;
  CUdeviceptr words_ = 0;
  CUfunction store_ = nullptr;
  CUstream other_ = nullptr;
};

TEST_F(MemoryOperations, WritesAreInOrderWithKernelsAndCopies) {
  CUstream stream = Stream();
  Block(stream);
  ASSERT_EQ(Launch(store_, 1, 1, stream, words_, 1u), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWriteValue32_v2(stream, words_, 2, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(&host_[0], words_, 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(Launch(store_, 1, 1, stream, words_, 3u), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(&host_[1], words_, 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWriteValue32_v2(stream, on_host_ + 8, 4, 0), CUDA_SUCCESS);
  EXPECT_EQ(host_[2], 0u);
  Open();
  ASSERT_NO_FATAL_FAILURE(Finish(stream));
  EXPECT_EQ(host_[0], 2u);
  EXPECT_EQ(host_[1], 3u);
  EXPECT_EQ(host_[2], 4u);
}

TEST_F(MemoryOperations, WideWordsAreWrittenWhole) {
  CUstream stream = Stream();
  ASSERT_EQ(Cu().cuStreamWriteValue64_v2(stream, words_ + 8, 0x1234567887654321, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWriteValue64_v2(stream, on_host_ + 8, 0xabcdef0110fedcba, 0),
            CUDA_SUCCESS);
  ASSERT_NO_FATAL_FAILURE(Finish(stream));
  EXPECT_EQ(Download<uint64_t>(words_ + 8, 1)[0], 0x1234567887654321u);
  EXPECT_EQ(host_[2], 0x10fedcbau);
  EXPECT_EQ(host_[3], 0xabcdef01u);
  EXPECT_EQ(Word(1), 0u);
  EXPECT_EQ(Word(4), 0u);
}

TEST_F(MemoryOperations, AWaitIsReleasedByTheHost) {
  CUstream stream = Stream(), other = Stream();
  ASSERT_EQ(Cu().cuStreamWaitValue32_v2(stream, on_host_, 1, kGeq), CUDA_SUCCESS);
  ASSERT_EQ(Launch(store_, 1, 1, stream, words_, 5u), CUDA_SUCCESS);
  ExpectHeld(stream);
  // Others go on.
  ASSERT_EQ(Launch(store_, 1, 1, other, words_ + 4, 6u), CUDA_SUCCESS);
  ASSERT_NO_FATAL_FAILURE(Finish(other));
  EXPECT_EQ(Word(1), 6u);
  Say(0, 1);
  ASSERT_NO_FATAL_FAILURE(Finish(stream));
  EXPECT_EQ(Word(0), 5u);
}

TEST_F(MemoryOperations, AWaitIsReleasedByAnotherStream) {
  CUstream stream = Stream(), other = Stream();
  for (const CUdeviceptr word : {words_ + 32, on_host_ + 32}) {
    Say(0, 0);
    ASSERT_EQ(Cu().cuStreamWaitValue32_v2(stream, word, 5, kEq), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamWriteValue32_v2(stream, words_, 7, 0), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamWaitValue32_v2(other, on_host_, 1, kEq), CUDA_SUCCESS);
    ASSERT_EQ(Launch(store_, 1, 1, other, word, 5u), CUDA_SUCCESS);
    ExpectHeld(stream);
    Say(0, 1);
    ASSERT_NO_FATAL_FAILURE(Finish(stream));
    ASSERT_NO_FATAL_FAILURE(Finish(other));
    EXPECT_EQ(Word(0), 7u);
  }
}

// A program that loads code and takes memory while a stream waits.
TEST_F(MemoryOperations, AWaitHoldsNoOtherCalls) {
  CUstream stream = Stream();
  ASSERT_EQ(Cu().cuStreamWaitValue32_v2(stream, words_, 1, kEq), CUDA_SUCCESS);
  ExpectHeld(stream);
  CUdeviceptr memory = 0;
  ASSERT_EQ(Cu().cuMemAlloc_v2(&memory, 1 << 20), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD8_v2(memory, 1, 1 << 20), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  CUstream other = Stream();
  ASSERT_EQ(Cu().cuStreamWriteValue32_v2(other, words_, 1, 0), CUDA_SUCCESS);
  ASSERT_NO_FATAL_FAILURE(Finish(stream));
  EXPECT_EQ(Cu().cuMemFree_v2(memory), CUDA_SUCCESS);
}

TEST_F(MemoryOperations, Conditions) {
  struct Case {
    unsigned condition;
    uint64_t wanted;
    uint64_t before;  // does not satisfy
    uint64_t after;   // does
  };
  const Case narrow[] = {{kEq, 7, 8, 7},
                         {kGeq, 5, 4, 9},
                         {kGeq, 0xffff'fff0, 0xffff'ffe0, 3},  // the counter has wrapped
                         {kAnd, 6, 9, 2},
                         {kNor, 0xf, 0xffff'fff0, 0xffff'ff00}};
  const Case wide[] = {{kEq, 0x1'0000'0007, 7, 0x1'0000'0007},
                       {kGeq, 0x2'0000'0000, 0x1'ffff'ffff, 0x2'0000'0000},
                       {kAnd, 0x8'0000'0000, 0xffff'ffff, 0x8'0000'0000},
                       {kNor, 0xf, ~uint64_t{0xf}, 0x0fff'ffff'ffff'fff0}};
  CUstream stream = Stream();
  volatile auto* word = reinterpret_cast<volatile uint64_t*>(host_);
  for (const CUdeviceptr address : {on_host_, words_}) {
    const auto set = [&](uint64_t value) {
      *word = value;
      ASSERT_EQ(Cu().cuMemcpyHtoD_v2(words_, &value, 8), CUDA_SUCCESS);
    };
    // The copy may return before the word is there.
    const auto set_first = [&](uint64_t value) {
      ASSERT_NO_FATAL_FAILURE(set(value));
      ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    };
    const auto check = [&](const Case& one, CUresult waits) {
      ASSERT_EQ(waits, CUDA_SUCCESS);
      SCOPED_TRACE(testing::Message() << one.condition << " " << one.wanted << " " << one.before);
      ASSERT_NO_FATAL_FAILURE(ExpectHeld(stream));
      set(one.after);
      Finish(stream);
    };
    for (const Case& one : narrow) {
      ASSERT_NO_FATAL_FAILURE(set_first(one.before));
      ASSERT_NO_FATAL_FAILURE(
          check(one, Cu().cuStreamWaitValue32_v2(stream, address, static_cast<uint32_t>(one.wanted),
                                                 one.condition)));
    }
    for (const Case& one : wide) {
      ASSERT_NO_FATAL_FAILURE(set_first(one.before));
      ASSERT_NO_FATAL_FAILURE(
          check(one, Cu().cuStreamWaitValue64_v2(stream, address, one.wanted, one.condition)));
    }
  }
}

TEST_F(MemoryOperations, BatchesRunInOrder) {
  CUstream stream = Stream();
  CUstreamBatchMemOpParams batch[] = {WaitFor(words_, 0, kEq), WriteOf(words_, 5),
                                      WaitFor(on_host_, 1, kEq), WriteOf(words_ + 4, 6),
                                      WriteOf(on_host_ + 4, 7)};
  ASSERT_EQ(Cu().cuStreamBatchMemOp_v2(stream, 5, batch, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWriteValue32_v2(stream, words_ + 8, 8, 0), CUDA_SUCCESS);
  EXPECT_TRUE(gpuloom::WaitFor([this] { return Word(0) == 5u; }));
  ASSERT_NO_FATAL_FAILURE(ExpectHeld(stream));
  EXPECT_EQ(Word(1), 0u);
  EXPECT_EQ(host_[1], 0u);
  Say(0, 1);
  ASSERT_NO_FATAL_FAILURE(Finish(stream));
  EXPECT_EQ(Word(1), 6u);
  EXPECT_EQ(host_[1], 7u);
  EXPECT_EQ(Word(2), 8u);
  EXPECT_EQ(Cu().cuStreamBatchMemOp_v2(stream, 0, batch, 0), CUDA_SUCCESS);
}

TEST_F(MemoryOperations, EventsBehindAWaitWaitToo) {
  CUstream stream = Stream(), other = Stream();
  CUevent event = Event(CU_EVENT_DISABLE_TIMING);
  ASSERT_EQ(Cu().cuStreamWaitValue32_v2(stream, on_host_, 1, kEq), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuEventRecord(event, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWriteValue32_v2(other, words_, 3, 0), CUDA_SUCCESS);
  ExpectHeld(other);
  EXPECT_EQ(Cu().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  Say(0, 1);
  ASSERT_NO_FATAL_FAILURE(Finish(other));
  EXPECT_EQ(Word(0), 3u);
}

// Two streams that hand a word to and fro.
TEST_F(MemoryOperations, ManyTurns) {
  CUstream first = Stream(), second = Stream();
  constexpr uint32_t kTurns = 100;
  for (const CUdeviceptr word : {on_host_, words_}) {
    for (uint32_t i = 0; i < kTurns; ++i) {
      ASSERT_EQ(Cu().cuStreamWaitValue32_v2(first, word, 2 * i, kEq), CUDA_SUCCESS);
      ASSERT_EQ(Cu().cuStreamWriteValue32_v2(first, word, 2 * i + 1, 0), CUDA_SUCCESS);
      ASSERT_EQ(Cu().cuStreamWaitValue32_v2(second, word, 2 * i + 1, kEq), CUDA_SUCCESS);
      ASSERT_EQ(Cu().cuStreamWriteValue32_v2(second, word, 2 * i + 2, 0), CUDA_SUCCESS);
    }
    ASSERT_NO_FATAL_FAILURE(Finish(first));
    ASSERT_NO_FATAL_FAILURE(Finish(second));
  }
  EXPECT_EQ(host_[0], 2 * kTurns);
  EXPECT_EQ(Word(0), 2 * kTurns);
}

TEST_F(MemoryOperations, PerThreadEntryPoints) {
  ASSERT_EQ(Cu().cuStreamWaitValue32_v2_ptsz(nullptr, on_host_, 1, kEq), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWriteValue32_v2_ptsz(nullptr, words_, 9, 0), CUDA_SUCCESS);
  ExpectHeld(CU_STREAM_PER_THREAD);
  Say(0, 1);
  ASSERT_NO_FATAL_FAILURE(Finish(CU_STREAM_PER_THREAD));
  EXPECT_EQ(Word(0), 9u);
}

// Deprecated; a driver may offer them or not.
TEST_F(MemoryOperations, FirstVersions) {
  int offered = 0;
  ASSERT_EQ(
      Cu().cuDeviceGetAttribute(&offered, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, device_),
      CUDA_SUCCESS);
  if (offered == 0) GTEST_SKIP() << "the driver does not offer them";
  CUstream stream = Stream();
  CUstreamBatchMemOpParams batch[] = {WaitFor(on_host_, 1, kGeq), WriteOf(words_ + 4, 6)};
  ASSERT_EQ(Cu().cuStreamWriteValue32(stream, words_, 5, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWaitValue32(stream, words_, 5, kEq), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamBatchMemOp(stream, 2, batch, 0), CUDA_SUCCESS);
  ExpectHeld(stream);
  Say(0, 1);
  ASSERT_NO_FATAL_FAILURE(Finish(stream));
  EXPECT_EQ(Word(0), 5u);
  EXPECT_EQ(Word(1), 6u);
}

TEST_F(MemoryOperations, AreCaptured) {
  CUstream stream = Stream();
  ASSERT_EQ(Cu().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWaitValue32_v2(stream, on_host_, 1, kEq), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWriteValue32_v2(stream, words_, 9, 0), CUDA_SUCCESS);
  CUstreamBatchMemOpParams batch[] = {WriteOf(words_ + 4, 6), WriteOf(on_host_ + 4, 7)};
  ASSERT_EQ(Cu().cuStreamBatchMemOp_v2(stream, 2, batch, 0), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(Cu().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  size_t count = 0;
  ASSERT_EQ(Cu().cuGraphGetNodes(graph, nullptr, &count), CUDA_SUCCESS);
  ASSERT_EQ(count, 3u);
  std::vector<CUgraphNode> nodes(count);
  ASSERT_EQ(Cu().cuGraphGetNodes(graph, nodes.data(), &count), CUDA_SUCCESS);
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    ASSERT_EQ(Cu().cuGraphNodeGetType(node, &type), CUDA_SUCCESS);
    EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  }
  EXPECT_EQ(Word(0), 0u);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  ExpectHeld(stream);
  Say(0, 1);
  ASSERT_NO_FATAL_FAILURE(Finish(stream));
  EXPECT_EQ(Word(0), 9u);
  EXPECT_EQ(Word(1), 6u);
  EXPECT_EQ(host_[1], 7u);
  EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(MemoryOperations, WrongCalls) {
  CUstream stream = Stream();
  const Driver& cu = Cu();
  EXPECT_EQ(cu.cuStreamWriteValue32_v2(stream, 0, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuStreamWriteValue32_v2(stream, 0x1000, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuStreamWriteValue32_v2(stream, words_ + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuStreamWriteValue32_v2(stream, words_, 1, 0x80), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuStreamWriteValue32_v2(stream, words_, 1, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuStreamWriteValue64_v2(stream, words_ + 4, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuStreamWaitValue32_v2(stream, 0, 0, kEq), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuStreamWaitValue32_v2(stream, 0x1000, 0, kEq), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuStreamWaitValue32_v2(stream, words_ + 1, 0, kEq), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuStreamWaitValue32_v2(stream, words_, 0, 0x80), CUDA_ERROR_INVALID_VALUE);
  std::vector<CUstreamBatchMemOpParams> batch(300, WriteOf(words_, 1));
  EXPECT_EQ(cu.cuStreamBatchMemOp_v2(stream, 1, batch.data(), 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu.cuStreamBatchMemOp_v2(stream, 100000, batch.data(), 0), CUDA_ERROR_INVALID_VALUE);
  batch[1].operation = static_cast<CUstreamBatchMemOpType>(99);
  EXPECT_EQ(cu.cuStreamBatchMemOp_v2(stream, 2, batch.data(), 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_NO_FATAL_FAILURE(Finish(stream));
  EXPECT_EQ(Word(0), 0u) << "nothing of a wrong batch is done";
}

TEST_F(MemoryOperations, TheDeviceOffersThem) {
  for (const CUdevice_attribute attribute : {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
                                             CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR}) {
    int value = 0;
    ASSERT_EQ(Cu().cuDeviceGetAttribute(&value, attribute, device_), CUDA_SUCCESS);
    EXPECT_EQ(value, 1) << attribute;
  }
}

}  // namespace
}  // namespace gpuloom::conformance
