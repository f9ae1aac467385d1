// SPDX-License-Identifier: Apache-2.0
// Green contexts: what the multiprocessors are divided into, contexts and streams on parts of them.
#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

constexpr CUdevResourceType kSm = CU_DEV_RESOURCE_TYPE_SM;

// smids(out*): out[block] = the multiprocessor, after some microseconds
constexpr char kWhere[] = R"PTX(
.version 8.0
.target sm_70
.address_size 64
.visible .entry smids(.param .u64 out)
{
  .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<7>;
  ld.param.u64 %rd1, [out];
  mov.u64 %rd2, %globaltimer;
LOOP:
  mov.u64 %rd3, %globaltimer;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p1, %rd4, 20000;
  @%p1 bra LOOP;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %smid;
  mul.wide.u32 %rd5, %r1, 4;
  add.s64 %rd6, %rd1, %rd5;
  st.global.u32 [%rd6], %r2;
  ret;
}
)PTX";

class Green : public WithKernels {
 protected:
  void SetUp() override {
    if (IsDriverBelow(12050)) GTEST_SKIP() << "CUDA 12.5 has it first";
    ASSERT_NO_FATAL_FAILURE(WithKernels::SetUp());
    ASSERT_EQ(Cu().cuDeviceGetDevResource(device_, &all_, kSm), CUDA_SUCCESS);
    count_ = all_.sm.smCount;
    least_ = all_.sm.minSmPartitionSize;
  }
  void TearDown() override {
    if (context_ == nullptr) return;
    EXPECT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    for (CUstream stream : green_streams_) {
      EXPECT_EQ(Cu().cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    }
    for (CUgreenCtx green : greens_) EXPECT_EQ(Cu().cuGreenCtxDestroy(green), CUDA_SUCCESS);
    WithKernels::TearDown();
  }

  // `id` before CUDA 12.9, which has the question first.
  static unsigned long long IdOf(CUgreenCtx green, unsigned long long id) {
    EXPECT_TRUE(IsDriverBelow(12090) || Cu().cuGreenCtxGetId(green, &id) == CUDA_SUCCESS);
    return id;
  }
  // The first group of the smallest parts; what is left.
  CUdevResource Part(CUdevResource* remaining = nullptr) {
    CUdevResource part = {};
    unsigned count = 1;
    EXPECT_EQ(Cu().cuDevSmResourceSplitByCount(&part, &count, &all_, remaining, 0, least_),
              CUDA_SUCCESS);
    EXPECT_EQ(count, 1u);
    return part;
  }
  CUgreenCtx Make(CUdevResource* resources, unsigned count) {
    CUdevResourceDesc description = nullptr;
    EXPECT_EQ(Cu().cuDevResourceGenerateDesc(&description, resources, count), CUDA_SUCCESS);
    CUgreenCtx green = nullptr;
    EXPECT_EQ(Cu().cuGreenCtxCreate(&green, description, device_, CU_GREEN_CTX_DEFAULT_STREAM),
              CUDA_SUCCESS);
    EXPECT_NE(green, nullptr);
    if (green != nullptr) greens_.push_back(green);
    return green;
  }
  CUgreenCtx Make() {
    CUdevResource part = Part();
    return Make(&part, 1);
  }
  CUcontext ContextOf(CUgreenCtx green) {
    CUcontext context = nullptr;
    EXPECT_EQ(Cu().cuCtxFromGreenCtx(&context, green), CUDA_SUCCESS);
    return context;
  }
  CUstream GreenStream(CUgreenCtx green) {
    CUstream stream = nullptr;
    EXPECT_EQ(Cu().cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    if (stream != nullptr) green_streams_.push_back(stream);
    return stream;
  }
  // In the current context, whichever that is.
  CUstream StreamHere(unsigned flags) {
    CUstream stream = nullptr;
    EXPECT_EQ(Cu().cuStreamCreate(&stream, flags), CUDA_SUCCESS);
    if (stream != nullptr) green_streams_.push_back(stream);
    return stream;
  }
  unsigned CountOf(CUgreenCtx green) {
    CUdevResource has = {};
    EXPECT_EQ(Cu().cuGreenCtxGetDevResource(green, &has, kSm), CUDA_SUCCESS);
    return has.sm.smCount;
  }
  void Fill(CUdeviceptr memory, uint32_t value, uint32_t count, CUstream stream) {
    ASSERT_EQ(Launch(Function("fill"), (count + 63) / 64, 64, stream, memory, value, count),
              CUDA_SUCCESS);
  }

  CUdevResource all_ = {};
  unsigned count_ = 0;
  unsigned least_ = 0;
  std::vector<CUgreenCtx> greens_;
  std::vector<CUstream> green_streams_;
};

TEST_F(Green, DeviceAndContextHaveAllMultiprocessors) {
  EXPECT_EQ(all_.type, kSm);
  int multiprocessors = 0;
  ASSERT_EQ(Cu().cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                      device_),
            CUDA_SUCCESS);
  EXPECT_EQ(count_, static_cast<unsigned>(multiprocessors));
  EXPECT_GT(least_, 0u);
  EXPECT_GT(all_.sm.smCoscheduledAlignment, 0u);
  CUdevResource has = {};
  ASSERT_EQ(Cu().cuCtxGetDevResource(context_, &has, kSm), CUDA_SUCCESS);
  EXPECT_EQ(has.sm.smCount, count_);
  EXPECT_EQ(Cu().cuDeviceGetDevResource(device_, &has, CU_DEV_RESOURCE_TYPE_INVALID),
            CUDA_ERROR_INVALID_RESOURCE_TYPE);
  EXPECT_EQ(Cu().cuDeviceGetDevResource(device_, &has, static_cast<CUdevResourceType>(1000)),
            CUDA_ERROR_INVALID_RESOURCE_TYPE);
  EXPECT_EQ(Cu().cuDeviceGetDevResource(device_, nullptr, kSm), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuDeviceGetDevResource(1000, &has, kSm), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(Cu().cuCtxGetDevResource(nullptr, &has, kSm), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Green, SplitsAreOfOneSizeAndLeaveTheRest) {
  constexpr unsigned kMany = 256;
  for (unsigned flags : {0u, unsigned{CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING}}) {
    for (unsigned least = 0; least <= count_; least = least * 2 + 1) {
      std::vector<CUdevResource> groups(kMany);
      CUdevResource remaining = {};
      unsigned made = kMany;
      ASSERT_EQ(
          Cu().cuDevSmResourceSplitByCount(groups.data(), &made, &all_, &remaining, flags, least),
          CUDA_SUCCESS);
      unsigned asked = 0;
      ASSERT_EQ(Cu().cuDevSmResourceSplitByCount(nullptr, &asked, &all_, nullptr, flags, least),
                CUDA_SUCCESS);
      EXPECT_EQ(asked, made) << least;
      ASSERT_GE(made, 1u);
      for (unsigned i = 0; i < made; ++i) {
        EXPECT_EQ(groups[i].type, kSm);
        EXPECT_EQ(groups[i].sm.smCount, groups[0].sm.smCount);
      }
      EXPECT_GE(groups[0].sm.smCount, std::max(least, 1u));
      EXPECT_EQ(made * groups[0].sm.smCount + remaining.sm.smCount, count_) << least;
    }
  }
  // All of it leaves nothing.
  CUdevResource whole = {}, remaining = {};
  unsigned made = 1;
  ASSERT_EQ(Cu().cuDevSmResourceSplitByCount(&whole, &made, &all_, &remaining, 0, count_),
            CUDA_SUCCESS);
  EXPECT_EQ(whole.sm.smCount, count_);
  EXPECT_EQ(remaining.type, CU_DEV_RESOURCE_TYPE_INVALID);
}

TEST_F(Green, WrongSplits) {
  CUdevResource groups[2] = {}, remaining = {}, none = {}, nested = {};
  unsigned made = 1;
  EXPECT_EQ(Cu().cuDevSmResourceSplitByCount(groups, nullptr, &all_, &remaining, 0, least_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuDevSmResourceSplitByCount(groups, &made, nullptr, &remaining, 0, least_),
            CUDA_ERROR_INVALID_VALUE);
  made = 0;
  EXPECT_EQ(Cu().cuDevSmResourceSplitByCount(groups, &made, &all_, &remaining, 0, least_),
            CUDA_ERROR_INVALID_VALUE);
  made = 1;
  EXPECT_EQ(Cu().cuDevSmResourceSplitByCount(groups, &made, &none, &remaining, 0, least_),
            CUDA_ERROR_INVALID_RESOURCE_TYPE);
  made = 1;
  EXPECT_EQ(Cu().cuDevSmResourceSplitByCount(groups, &made, &all_, &remaining, 0, count_ + 1),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  made = 1;
  EXPECT_EQ(Cu().cuDevSmResourceSplitByCount(nullptr, &made, &all_, nullptr, 0, count_ + 1),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  // A flag that is none is nothing.
  made = 1;
  EXPECT_EQ(Cu().cuDevSmResourceSplitByCount(groups, &made, &all_, nullptr, 8, least_),
            CUDA_SUCCESS);
  // What a split gives is not split again.
  made = 1;
  EXPECT_EQ(Cu().cuDevSmResourceSplitByCount(&nested, &made, &groups[0], &remaining, 0, 1),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
}

TEST_F(Green, Descriptions) {
  CUdevResource parts[2] = {};
  parts[0] = Part(&parts[1]);
  CUdevResourceDesc description = nullptr;
  EXPECT_EQ(Cu().cuDevResourceGenerateDesc(nullptr, parts, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuDevResourceGenerateDesc(&description, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CountOf(Make(parts, 2)), count_);
  CUdevResource wrong = parts[0];
  ++wrong.sm.smCount;
  EXPECT_EQ(Cu().cuDevResourceGenerateDesc(&description, &wrong, 1),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  wrong = {};
  wrong.type = kSm;
  wrong.sm.smCount = least_;
  EXPECT_EQ(Cu().cuDevResourceGenerateDesc(&description, &wrong, 1),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  // Of a context and of the device.
  CUdevResource apart[2] = {parts[0], {}};
  ASSERT_EQ(Cu().cuGreenCtxGetDevResource(greens_[0], &apart[1], kSm), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuDevResourceGenerateDesc(&description, apart, 2),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
}

// What a description is made of is added up, whatever it is.
TEST_F(Green, PiecesAreAddedUp) {
  CUdevResource again[2] = {Part(), {}};
  again[1] = again[0];
  EXPECT_EQ(CountOf(Make(again, 2)), std::min(2 * least_, count_));
  CUdevResource splits[2] = {Part(), {}};
  unsigned made = 1;
  ASSERT_EQ(Cu().cuDevSmResourceSplitByCount(&splits[1], &made, &all_, nullptr, 0, 2 * least_),
            CUDA_SUCCESS);
  EXPECT_EQ(CountOf(Make(splits, 2)), std::min(least_ + splits[1].sm.smCount, count_));
  CUdevResource whole[2] = {Part(), all_};
  EXPECT_EQ(CountOf(Make(whole, 2)), count_);
  CUgreenCtx green = nullptr;
  ASSERT_EQ(Cu().cuGreenCtxCreate(&green, nullptr, device_, CU_GREEN_CTX_DEFAULT_STREAM),
            CUDA_SUCCESS);
  greens_.push_back(green);
  EXPECT_EQ(CountOf(green), count_) << "without a description";
  CUdeviceptr memory = Alloc(4096);
  for (CUgreenCtx each : greens_) {
    CUstream stream = GreenStream(each);
    Fill(memory, 4, 1024, stream);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  }
  EXPECT_EQ(Download<uint32_t>(memory, 1024), std::vector<uint32_t>(1024, 4));
}

TEST_F(Green, StreamsOfAContextWork) {
  CUdevResource part = Part();
  CUdevResourceDesc description = nullptr;
  ASSERT_EQ(Cu().cuDevResourceGenerateDesc(&description, &part, 1), CUDA_SUCCESS);
  CUgreenCtx wrong = nullptr;
  EXPECT_EQ(Cu().cuGreenCtxCreate(&wrong, description, device_, 0), CUDA_ERROR_INVALID_VALUE);
  CUgreenCtx green = Make(&part, 1);
  ASSERT_NE(green, nullptr);
  EXPECT_EQ(CountOf(green), part.sm.smCount);
  CUcontext context = ContextOf(green);
  EXPECT_NE(context, context_);
  CUdevResource has = {};
  ASSERT_EQ(Cu().cuCtxGetDevResource(context, &has, kSm), CUDA_SUCCESS);
  EXPECT_EQ(has.sm.smCount, part.sm.smCount);

  unsigned long long context_id = 0, primary_id = 0;
  EXPECT_EQ(Cu().cuCtxGetId(context, &context_id), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuCtxGetId(context_, &primary_id), CUDA_SUCCESS);
  EXPECT_EQ(IdOf(green, context_id), context_id);
  EXPECT_NE(context_id, primary_id);

  CUstream stream = nullptr;
  EXPECT_EQ(Cu().cuGreenCtxStreamCreate(&stream, green, 0, 0), CUDA_ERROR_INVALID_VALUE);
  stream = GreenStream(green);
  ASSERT_NE(stream, nullptr);
  unsigned flags = 99;
  EXPECT_EQ(Cu().cuStreamGetFlags(stream, &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_STREAM_NON_BLOCKING});
  CUgreenCtx of = nullptr;
  EXPECT_EQ(Cu().cuStreamGetGreenCtx(stream, &of), CUDA_SUCCESS);
  EXPECT_EQ(of, green);
  EXPECT_EQ(Cu().cuStreamGetGreenCtx(nullptr, &of), CUDA_SUCCESS);
  EXPECT_EQ(of, nullptr);
  EXPECT_EQ(Cu().cuStreamGetGreenCtx(Stream(), &of), CUDA_SUCCESS);
  EXPECT_EQ(of, nullptr);
  CUcontext owner = nullptr;
  EXPECT_EQ(Cu().cuStreamGetCtx(stream, &owner), CUDA_SUCCESS);
  EXPECT_EQ(owner, context);
  EXPECT_EQ(Cu().cuStreamGetCtx_v2(stream, &owner, &of), CUDA_SUCCESS);
  EXPECT_EQ(owner, context_);
  EXPECT_EQ(of, green);

  // Kernels, copies and memory of the primary context.
  constexpr uint32_t kWords = 10'000;
  CUdeviceptr memory = Alloc(kWords * 4), copy = Alloc(kWords * 4);
  for (uint32_t value = 1; value <= 50; ++value) Fill(memory, value, kWords, stream);
  ASSERT_EQ(Cu().cuMemcpyDtoDAsync_v2(copy, memory, kWords * 4, stream), CUDA_SUCCESS);
  CUevent begin = Event(), end = Event();
  ASSERT_EQ(Cu().cuEventRecord(begin, stream), CUDA_SUCCESS);
  Fill(memory, 77, kWords, stream);
  ASSERT_EQ(Cu().cuEventRecord(end, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuEventQuery(end), CUDA_SUCCESS);
  float milliseconds = -1;
  EXPECT_EQ(Cu().cuEventElapsedTime(&milliseconds, begin, end), CUDA_SUCCESS);
  EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(Download<uint32_t>(memory, kWords), std::vector<uint32_t>(kWords, 77));
  EXPECT_EQ(Download<uint32_t>(copy, kWords), std::vector<uint32_t>(kWords, 50));
}

TEST_F(Green, CurrentLikeAnotherContext) {
  CUgreenCtx green = Make();
  CUcontext context = ContextOf(green);
  ASSERT_EQ(Cu().cuCtxSetCurrent(context), CUDA_SUCCESS);
  CUcontext current = nullptr;
  EXPECT_EQ(Cu().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, context);
  CUdevice device = -1;
  EXPECT_EQ(Cu().cuCtxGetDevice(&device), CUDA_SUCCESS);
  EXPECT_EQ(device, device_);
  unsigned long long context_id = 0;
  EXPECT_EQ(Cu().cuCtxGetId(nullptr, &context_id), CUDA_SUCCESS);
  EXPECT_EQ(IdOf(nullptr, context_id), context_id);

  CUgreenCtx of = nullptr;
  EXPECT_EQ(Cu().cuStreamGetGreenCtx(StreamHere(CU_STREAM_NON_BLOCKING), &of), CUDA_SUCCESS);
  EXPECT_EQ(of, green);
  EXPECT_EQ(Cu().cuStreamGetGreenCtx(nullptr, &of), CUDA_SUCCESS);
  EXPECT_EQ(of, green);
  CUcontext owner = nullptr;
  EXPECT_EQ(Cu().cuStreamGetCtx_v2(nullptr, &owner, &of), CUDA_SUCCESS);
  EXPECT_EQ(owner, context_);
  EXPECT_EQ(of, green);
  EXPECT_EQ(Cu().cuStreamGetCtx_v2(CU_STREAM_PER_THREAD, &owner, &of), CUDA_ERROR_INVALID_HANDLE);

  // What is made here is the primary context's, and stays when this one goes.
  CUdeviceptr memory = Alloc(4096);
  Fill(memory, 5, 1024, nullptr);
  EXPECT_EQ(Download<uint32_t>(memory, 1024), std::vector<uint32_t>(1024, 5));
  ASSERT_EQ(Cu().cuMemsetD32Async(memory, 6, 1024, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  CUevent event = Event();
  ASSERT_EQ(Cu().cuEventRecord(event, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuEventSynchronize(event), CUDA_SUCCESS);
  for (CUstream stream : green_streams_) EXPECT_EQ(Cu().cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  green_streams_.clear();
  ASSERT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
  greens_.clear();
  EXPECT_EQ(Cu().cuGreenCtxDestroy(green), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(memory, 1024), std::vector<uint32_t>(1024, 6));
}

// All streams of a green context are non-blocking, its default stream and those that were made
// without the flag included.
TEST_F(Green, ItsStreamsWaitForNobody) {
  CUgreenCtx green = Make();
  CUcontext context = ContextOf(green);
  CUdeviceptr memory = Alloc(4096);
  // Loaded before, because loading waits.
  Fill(memory, 1, 1024, nullptr);
  Block(nullptr);
  Open();
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSetCurrent(context), CUDA_SUCCESS);
  const std::vector<CUstream> streams = {nullptr, StreamHere(CU_STREAM_DEFAULT),
                                         StreamHere(CU_STREAM_DEFAULT),
                                         StreamHere(CU_STREAM_NON_BLOCKING)};
  for (CUstream stream : streams) {
    unsigned flags = 99;
    EXPECT_EQ(Cu().cuStreamGetFlags(stream, &flags), CUDA_SUCCESS);
    EXPECT_EQ(flags, unsigned{CU_STREAM_NON_BLOCKING});
  }
  uint32_t value = 1;
  for (CUstream blocked : streams) {
    Block(blocked);
    for (CUstream other : streams) {
      if (other == blocked) continue;
      Fill(memory, ++value, 1024, other);
      ASSERT_EQ(Cu().cuStreamSynchronize(other), CUDA_SUCCESS);
    }
    ASSERT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
    Fill(memory, ++value, 1024, nullptr);
    ASSERT_EQ(Cu().cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuCtxSetCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuStreamQuery(blocked), CUDA_ERROR_NOT_READY);
    Open();
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  }
  // The primary context's default stream, in turn.
  ASSERT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
  Block(nullptr);
  ASSERT_EQ(Cu().cuCtxSetCurrent(context), CUDA_SUCCESS);
  for (CUstream stream : streams) {
    Fill(memory, ++value, 1024, stream);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  }
  Open();
  ASSERT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(memory, 1024), std::vector<uint32_t>(1024, value));
}

TEST_F(Green, ItsDefaultStreamIsCaptured) {
  CUgreenCtx green = Make();
  CUdeviceptr memory = Alloc(4096);
  CUfunction fill = Function("fill");
  ASSERT_EQ(Cu().cuCtxSetCurrent(ContextOf(green)), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
  ASSERT_EQ(Launch(fill, 16, 64, nullptr, memory, 8u, 1024u), CUDA_SUCCESS);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_EQ(Cu().cuStreamIsCapturing(nullptr, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CUgraph graph = nullptr;
  ASSERT_EQ(Cu().cuStreamEndCapture(nullptr, &graph), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(memory, 1024), std::vector<uint32_t>(1024, 8));
  EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(Green, ContextsDoNotWaitForEachOther) {
  if (count_ < 2 * least_) GTEST_SKIP() << "one part only";
  CUdevResource parts[2] = {};
  unsigned made = 2;
  ASSERT_EQ(Cu().cuDevSmResourceSplitByCount(parts, &made, &all_, nullptr, 0, least_),
            CUDA_SUCCESS);
  ASSERT_EQ(made, 2u);
  CUgreenCtx slow = Make(&parts[0], 1), fast = Make(&parts[1], 1);
  CUdeviceptr memory = Alloc(4096);
  CUstream blocked = GreenStream(slow), stream = GreenStream(fast), ordinary = Stream();
  // Loaded before, because loading waits.
  Fill(memory, 1, 1024, ordinary);
  ASSERT_EQ(Cu().cuStreamSynchronize(ordinary), CUDA_SUCCESS);
  Block(blocked);
  Fill(memory, 2, 1024, stream);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  Fill(memory, 3, 1024, ordinary);
  ASSERT_EQ(Cu().cuStreamSynchronize(ordinary), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSetCurrent(ContextOf(fast)), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(blocked), CUDA_ERROR_NOT_READY);
  Open();
  // The primary context's is everybody's.
  ASSERT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(blocked), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(memory, 1024), std::vector<uint32_t>(1024, 3));
}

TEST_F(Green, EventsOfAllStreams) {
  CUgreenCtx green = Make();
  CUstream first = GreenStream(green), second = GreenStream(green);
  CUdeviceptr memory = Alloc(4096);
  Fill(memory, 1, 1024, second);
  ASSERT_EQ(Cu().cuStreamSynchronize(second), CUDA_SUCCESS);
  CUevent event = Event(), gate = Event();
  ASSERT_EQ(Cu().cuGreenCtxRecordEvent(green, event), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuEventSynchronize(event), CUDA_SUCCESS);
  Block(first);
  Fill(memory, 2, 1024, second);
  ASSERT_EQ(Cu().cuGreenCtxRecordEvent(green, event), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(Cu().cuStreamSynchronize(second), CUDA_SUCCESS);
  Open();
  EXPECT_EQ(Cu().cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(first), CUDA_SUCCESS);

  // All streams wait, also one that is made while they do.
  CUstream elsewhere = Stream();
  Block(elsewhere);
  ASSERT_EQ(Cu().cuEventRecord(gate, elsewhere), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGreenCtxWaitEvent(green, gate), CUDA_SUCCESS);
  CUstream third = GreenStream(green);
  const std::vector<CUstream> streams = {first, second, third};
  for (CUstream stream : streams) Fill(memory, 3, 1024, stream);
  for (CUstream stream : streams) EXPECT_EQ(Cu().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  Open();
  for (CUstream stream : streams) EXPECT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(elsewhere), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(memory, 1024), std::vector<uint32_t>(1024, 3));
}

TEST_F(Green, DestroyedOnesTakeTheirStreamsAlong) {
  CUgreenCtx green = Make();
  CUcontext context = ContextOf(green);
  CUdeviceptr memory = Alloc(4096);
  CUstream stream = GreenStream(green);
  Fill(memory, 9, 1024, stream);
  EXPECT_EQ(Cu().cuGreenCtxDestroy(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(Cu().cuCtxDestroy_v2(context), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  green_streams_.clear();
  greens_.clear();
  ASSERT_EQ(Cu().cuGreenCtxDestroy(green), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamSynchronize(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(Cu().cuStreamDestroy_v2(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(Cu().cuGreenCtxDestroy(green), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(Cu().cuCtxFromGreenCtx(&context, green), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(Download<uint32_t>(memory, 1024), std::vector<uint32_t>(1024, 9));
}

// As programs cut parts of different sizes: what is left becomes a context, and is split again.
// What ends with a context must not take along what another thread is just making.
TEST_F(Green, EndWhileOthersMakeStreams) {
  std::atomic<bool> ended{false};
  std::thread other([&] {
    EXPECT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
    while (!ended) {
      CUstream stream = nullptr;
      ASSERT_EQ(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
      ASSERT_EQ(Cu().cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    }
  });
  for (int turn = 0; turn < 100 && !HasFailure(); ++turn) {
    CUdevResource part = Part();
    CUdevResourceDesc description = nullptr;
    EXPECT_EQ(Cu().cuDevResourceGenerateDesc(&description, &part, 1), CUDA_SUCCESS);
    CUgreenCtx green = nullptr;
    EXPECT_EQ(Cu().cuGreenCtxCreate(&green, description, device_, CU_GREEN_CTX_DEFAULT_STREAM),
              CUDA_SUCCESS);
    CUstream streams[8] = {};
    for (CUstream& stream : streams) {
      EXPECT_EQ(Cu().cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0),
                CUDA_SUCCESS);
    }
    for (CUstream stream : streams) EXPECT_EQ(Cu().cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuGreenCtxDestroy(green), CUDA_SUCCESS);
  }
  ended = true;
  other.join();
}

TEST_F(Green, WhatIsLeftIsSplitAgain) {
  CUdevResource remaining = {};
  Part(&remaining);
  if (remaining.sm.smCount < least_) GTEST_SKIP() << "nothing is left to split";
  CUgreenCtx rest = Make(&remaining, 1);
  EXPECT_EQ(CountOf(rest), remaining.sm.smCount);
  CUdevResource has = {}, part = {}, left = {};
  ASSERT_EQ(Cu().cuGreenCtxGetDevResource(rest, &has, kSm), CUDA_SUCCESS);
  unsigned made = 1;
  ASSERT_EQ(Cu().cuDevSmResourceSplitByCount(&part, &made, &has, &left, 0, least_), CUDA_SUCCESS);
  EXPECT_EQ(made, 1u);
  EXPECT_EQ(part.sm.smCount + left.sm.smCount, remaining.sm.smCount);
  CUgreenCtx inner = Make(&part, 1);
  EXPECT_EQ(CountOf(inner), part.sm.smCount);
  CUdeviceptr memory = Alloc(4096);
  CUstream stream = GreenStream(inner);
  Fill(memory, 4, 1024, stream);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(memory, 1024), std::vector<uint32_t>(1024, 4));
}

TEST_F(Green, GraphsRunInTheirStreams) {
  CUgreenCtx green = Make();
  CUstream stream = GreenStream(green);
  CUdeviceptr memory = Alloc(4096);
  ASSERT_EQ(Cu().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
  Fill(memory, 8, 1024, stream);
  CUgraph graph = nullptr;
  ASSERT_EQ(Cu().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Cu().cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(memory, 1024), std::vector<uint32_t>(1024, 8));
  EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(Green, KernelsStayOnTheirMultiprocessors) {
  if (count_ < 16) GTEST_SKIP() << "the software device's multiprocessors are not divided";
  CUmodule module = nullptr;
  ASSERT_EQ(Cu().cuModuleLoadData(&module, kWhere), CUDA_SUCCESS);
  CUfunction smids = nullptr;
  ASSERT_EQ(Cu().cuModuleGetFunction(&smids, module, "smids"), CUDA_SUCCESS);
  const unsigned blocks = count_ * 8;
  CUdeviceptr out = Alloc(blocks * 4);
  const auto run = [&](CUstream stream) {
    EXPECT_EQ(Launch(smids, blocks, 1024, stream, out), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    const auto words = Download<uint32_t>(out, blocks);
    return std::set<uint32_t>(words.begin(), words.end()).size();
  };
  EXPECT_EQ(run(Stream()), count_);
  CUgreenCtx green = Make();
  // CUDA may add two when a module that launches kernels itself was loaded.
  EXPECT_LE(run(GreenStream(green)), CountOf(green) + 2);
  EXPECT_EQ(Cu().cuModuleUnload(module), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom::conformance
