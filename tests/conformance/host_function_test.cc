// SPDX-License-Identifier: Apache-2.0
// Host functions and stream callbacks: in the stream's order, in the program's own process.
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace gpuloom::conformance {
namespace {

// A host function that waits until the test lets it go.
struct Gate {
  std::atomic<bool> entered{false};
  std::atomic<bool> open{false};

  static void CUDA_CB Pass(void* gate) {
    auto* self = static_cast<Gate*>(gate);
    self->entered = true;
    while (!self->open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void WaitEntered() const {
    while (!entered) std::this_thread::yield();
  }
};

struct Seen {
  const volatile uint32_t* word;
  uint32_t value;

  static void CUDA_CB Look(void* seen) {
    auto* self = static_cast<Seen*>(seen);
    self->value = *self->word;
  }
};

struct CallbackResult {
  std::atomic<int> calls{0};
  CUstream stream = nullptr;
  CUresult status = CUDA_ERROR_UNKNOWN;

  static void CUDA_CB Record(CUstream stream, CUresult status, void* outcome) {
    auto* self = static_cast<CallbackResult*>(outcome);
    self->stream = stream;
    self->status = status;
    ++self->calls;
  }
};

class HostFunctions : public WithKernels {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(WithKernels::SetUp());
    word_ = static_cast<uint32_t*>(HostAlloc(64));
    ASSERT_NE(word_, nullptr);
    ASSERT_EQ(Cu().cuMemHostGetDevicePointer_v2(&device_word_, word_, 0), CUDA_SUCCESS);
    store_ = Function("store");
  }
  void Store(CUstream stream, uint32_t value) {
    ASSERT_EQ(Launch(store_, 1, 1, stream, device_word_, value), CUDA_SUCCESS);
  }

  uint32_t* word_ = nullptr;
  CUdeviceptr device_word_ = 0;
  CUfunction store_ = nullptr;
};

TEST_F(HostFunctions, RunBetweenWhatStandsBeforeAndBehind) {
  CUstream stream = Stream();
  Seen first{word_, 99}, second{word_, 99};
  Block(stream);
  Store(stream, 1);
  ASSERT_EQ(Cu().cuLaunchHostFunc(stream, &Seen::Look, &first), CUDA_SUCCESS);
  Store(stream, 2);
  ASSERT_EQ(Cu().cuLaunchHostFunc(stream, &Seen::Look, &second), CUDA_SUCCESS);
  Store(stream, 3);
  Open();
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(first.value, 1u);
  EXPECT_EQ(second.value, 2u);
  EXPECT_EQ(*word_, 3u);
}

TEST_F(HostFunctions, HoldTheirOwnStreamOnly) {
  CUstream held = Stream(), other = Stream();
  CUevent event = Event(CU_EVENT_DISABLE_TIMING);
  Gate gate;
  ASSERT_EQ(Cu().cuLaunchHostFunc(held, &Gate::Pass, &gate), CUDA_SUCCESS);
  Store(held, 1);
  ASSERT_EQ(Cu().cuEventRecord(event, held), CUDA_SUCCESS);
  gate.WaitEntered();
  EXPECT_EQ(Cu().cuStreamQuery(held), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(Cu().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  Store(other, 7);
  ASSERT_EQ(Cu().cuStreamSynchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(*word_, 7u);
  // And whoever waits for what stands behind the function.
  ASSERT_EQ(Cu().cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
  Seen seen{word_, 99};
  ASSERT_EQ(Cu().cuLaunchHostFunc(other, &Seen::Look, &seen), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(other), CUDA_ERROR_NOT_READY);
  gate.open = true;
  EXPECT_EQ(Cu().cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(*word_, 1u);
  ASSERT_EQ(Cu().cuStreamSynchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(seen.value, 1u);
}

TEST_F(HostFunctions, TakePartInTheLegacyStreamsBarrier) {
  CUstream blocking = Stream(CU_STREAM_DEFAULT), behind = Stream(CU_STREAM_DEFAULT);
  Gate gate;
  Seen seen{word_, 99};
  ASSERT_EQ(Cu().cuLaunchHostFunc(blocking, &Gate::Pass, &gate), CUDA_SUCCESS);
  Store(nullptr, 1);
  ASSERT_EQ(Cu().cuLaunchHostFunc(nullptr, &Seen::Look, &seen), CUDA_SUCCESS);
  Store(behind, 2);
  gate.WaitEntered();
  EXPECT_EQ(Cu().cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(Cu().cuStreamQuery(behind), CUDA_ERROR_NOT_READY);
  gate.open = true;
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(seen.value, 1u);
  EXPECT_EQ(*word_, 2u);
}

TEST_F(HostFunctions, TheFunctionSeesCopiesAndMayChangeWhatIsCopiedNext) {
  CUstream stream = Stream();
  const CUdeviceptr memory = Alloc(4);
  word_[0] = 5;
  word_[1] = 0;
  ASSERT_EQ(Cu().cuMemcpyHtoDAsync_v2(memory, &word_[0], 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(&word_[1], memory, 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuLaunchHostFunc(
                stream,
                [](void* data) {
                  auto* words = static_cast<volatile uint32_t*>(data);
                  words[0] = words[1] * 2;
                },
                word_),
            CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyHtoDAsync_v2(memory, &word_[0], 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(memory, 1)[0], 10u);
}

TEST_F(HostFunctions, CallbackLearnsItsStreamAndStatus) {
  CUstream stream = Stream();
  CallbackResult outcome, legacy;
  ASSERT_EQ(Cu().cuStreamAddCallback(stream, &CallbackResult::Record, &outcome, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamAddCallback(nullptr, &CallbackResult::Record, &legacy, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(outcome.calls, 1);
  EXPECT_EQ(outcome.stream, stream);
  EXPECT_EQ(outcome.status, CUDA_SUCCESS);
  EXPECT_EQ(legacy.calls, 1);
  EXPECT_EQ(legacy.stream, nullptr);
}

TEST_F(HostFunctions, PerThreadEntryPoints) {
  CallbackResult outcome;
  Gate gate;
  ASSERT_EQ(Cu().cuLaunchHostFunc_ptsz(nullptr, &Gate::Pass, &gate), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamAddCallback_ptsz(nullptr, &CallbackResult::Record, &outcome, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
  gate.open = true;
  ASSERT_EQ(Cu().cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  EXPECT_EQ(outcome.calls, 1);
}

TEST_F(HostFunctions, ManyOfOneStreamRunInOrder) {
  constexpr uint32_t kFunctions = 600;
  struct Order {
    std::vector<uint32_t> ran;
    struct One {
      Order* order;
      uint32_t number;
    };
    std::vector<One> functions;
  } order;
  for (uint32_t i = 0; i < kFunctions; ++i) order.functions.push_back({&order, i});
  CUstream stream = Stream();
  for (Order::One& one : order.functions) {
    ASSERT_EQ(Cu().cuLaunchHostFunc(
                  stream,
                  [](void* data) {
                    auto* self = static_cast<Order::One*>(data);
                    self->order->ran.push_back(self->number);
                  },
                  &one),
              CUDA_SUCCESS);
  }
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  ASSERT_EQ(order.ran.size(), kFunctions);
  for (uint32_t i = 0; i < kFunctions; ++i) ASSERT_EQ(order.ran[i], i);
}

TEST_F(HostFunctions, OfManyStreamsAllRun) {
  std::atomic<int> ran{0};
  for (int i = 0; i < 40; ++i) {
    CUstream stream = Stream();
    for (int j = 0; j < 10; ++j) {
      ASSERT_EQ(Cu().cuLaunchHostFunc(
                    stream, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &ran),
                CUDA_SUCCESS);
    }
  }
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(ran, 400);
}

// As frameworks use them: many threads, each function owns its data and frees it.
TEST_F(HostFunctions, FromManyThreadsWithDataOfTheirOwn) {
  constexpr int kThreads = 6, kFunctions = 150;
  struct Count {
    std::atomic<int>* ran;
  };
  std::atomic<int> ran{0};
  CUstream shared = Stream();
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, own = Stream()] {
      ASSERT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
      for (int j = 0; j < kFunctions; ++j) {
        ASSERT_EQ(Cu().cuLaunchHostFunc(
                      j % 2 == 0 ? own : shared,
                      [](void* data) {
                        auto* count = static_cast<Count*>(data);
                        ++*count->ran;
                        delete count;
                      },
                      new Count{&ran}),
                  CUDA_SUCCESS);
        if (j % 50 != 0) continue;
        ASSERT_EQ(Cu().cuStreamSynchronize(own), CUDA_SUCCESS);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(ran, kThreads * kFunctions);
}

// What waits would wait for the function itself.
TEST_F(HostFunctions, NoCudaCallsInside) {
  CUstream stream = Stream();
  const CUevent event = Event();
  const CUdeviceptr memory = Alloc(4);
  void* const host = HostAlloc(4096);
  CUcontext created = nullptr;
  ASSERT_EQ(Cu().cuCtxCreate_v2(&created, 0, device_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxPopCurrent_v2(nullptr), CUDA_SUCCESS);
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
  size_t granule = 0;
  ASSERT_EQ(
      Cu().cuMemGetAllocationGranularity(&granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
      CUDA_SUCCESS);
  CUmemGenericAllocationHandle physical = 0;
  CUdeviceptr mapped = 0;
  CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_EQ(Cu().cuMemCreate(&physical, granule, &properties, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemAddressReserve(&mapped, granule, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemMap(mapped, granule, 0, physical, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemSetAccess(mapped, granule, &access, 1), CUDA_SUCCESS);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  CUmemPoolProps pool_properties = {};
  pool_properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  pool_properties.location = properties.location;
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(Cu().cuMemPoolCreate(&pool, &pool_properties), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(Cu().cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  CUlibrary library = nullptr;
  ASSERT_EQ(Cu().cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  CUlinkState link = nullptr;
  ASSERT_EQ(Cu().cuLinkCreate_v2(0, nullptr, nullptr, &link), CUDA_SUCCESS);

  struct Call {
    const char* name;
    std::function<CUresult()> make;
    CUresult result = CUDA_SUCCESS;
  };
  CUdeviceptr address = 0;
  std::vector<Call> calls = {
      {"cuMemAlloc", [&] { return Cu().cuMemAlloc_v2(&address, 4); }},
      {"cuMemFree", [&] { return Cu().cuMemFree_v2(memory); }},
      {"cuMemFreeHost", [&] { return Cu().cuMemFreeHost(host); }},
      {"cuMemHostUnregister", [&] { return Cu().cuMemHostUnregister(host); }},
      {"cuStreamSynchronize", [&] { return Cu().cuStreamSynchronize(stream); }},
      {"cuStreamDestroy", [&] { return Cu().cuStreamDestroy_v2(stream); }},
      {"cuEventRecord", [&] { return Cu().cuEventRecord(event, stream); }},
      {"cuEventSynchronize", [&] { return Cu().cuEventSynchronize(event); }},
      {"cuEventDestroy", [&] { return Cu().cuEventDestroy_v2(event); }},
      {"cuLaunchKernel", [&] { return Launch(store_, 1, 1, stream, device_word_, 1u); }},
      // First what would make a context current.
      {"cuCtxSetCurrent", [&] { return Cu().cuCtxSetCurrent(context_); }},
      {"cuCtxPushCurrent", [&] { return Cu().cuCtxPushCurrent_v2(context_); }},
      {"cuCtxSynchronize", [&] { return Cu().cuCtxSynchronize(); }},
      {"cuCtxDestroy", [&] { return Cu().cuCtxDestroy_v2(created); }},
      {"cuDevicePrimaryCtxRelease", [&] { return Cu().cuDevicePrimaryCtxRelease_v2(device_); }},
      {"cuMemCreate", [&] { return Cu().cuMemCreate(&physical, granule, &properties, 0); }},
      {"cuMemAddressReserve", [&] { return Cu().cuMemAddressReserve(&address, granule, 0, 0, 0); }},
      {"cuMemSetAccess", [&] { return Cu().cuMemSetAccess(mapped, granule, &access, 1); }},
      {"cuMemUnmap", [&] { return Cu().cuMemUnmap(mapped, granule); }},
      {"cuMemMap", [&] { return Cu().cuMemMap(mapped, granule, 0, physical, 0); }},
      {"cuMemRelease", [&] { return Cu().cuMemRelease(physical); }},
      {"cuMemAddressFree", [&] { return Cu().cuMemAddressFree(mapped, granule); }},
      {"cuMemPoolTrimTo", [&] { return Cu().cuMemPoolTrimTo(pool, 0); }},
      {"cuMemPoolDestroy", [&] { return Cu().cuMemPoolDestroy(pool); }},
      {"cuGraphLaunch", [&] { return Cu().cuGraphLaunch(exec, stream); }},
      {"cuGraphExecDestroy", [&] { return Cu().cuGraphExecDestroy(exec); }},
      {"cuGraphDestroy", [&] { return Cu().cuGraphDestroy(graph); }},
      {"cuModuleUnload", [&] { return Cu().cuModuleUnload(module_); }},
      {"cuLibraryUnload", [&] { return Cu().cuLibraryUnload(library); }},
      {"cuLinkDestroy", [&] { return Cu().cuLinkDestroy(link); }},
  };
  if (!IsDriverBelow(13000)) {
    calls.push_back({"cuCtxSynchronize_v2", [&] { return Cu().cuCtxSynchronize_v2(context_); }});
  }
  ASSERT_EQ(Cu().cuLaunchHostFunc(
                stream,
                [](void* data) {
                  for (Call& call : *static_cast<std::vector<Call>*>(data)) {
                    call.result = call.make();
                  }
                },
                &calls),
            CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  for (const Call& call : calls) {
    EXPECT_EQ(call.result, CUDA_ERROR_NOT_PERMITTED) << call.name;
  }
  // Nothing has happened.
  EXPECT_EQ(Cu().cuLinkDestroy(link), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuLibraryUnload(library), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemUnmap(mapped, granule), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemAddressFree(mapped, granule), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemRelease(physical), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuCtxDestroy_v2(created), CUDA_SUCCESS);
}

// Destroying the stream lets its functions run.
TEST_F(HostFunctions, StreamDestroyedMeanwhile) {
  CUstream stream = nullptr;
  ASSERT_EQ(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  Gate gate;
  Seen seen{word_, 99};
  ASSERT_EQ(Cu().cuLaunchHostFunc(stream, &Gate::Pass, &gate), CUDA_SUCCESS);
  Store(stream, 4);
  ASSERT_EQ(Cu().cuLaunchHostFunc(stream, &Seen::Look, &seen), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  gate.open = true;
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(seen.value, 4u);
}

TEST_F(HostFunctions, WrongCalls) {
  CUstream stream = Stream();
  EXPECT_EQ(Cu().cuLaunchHostFunc(stream, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuStreamAddCallback(stream, nullptr, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  CallbackResult outcome;
  EXPECT_EQ(Cu().cuStreamAddCallback(stream, &CallbackResult::Record, &outcome, 1),
            CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(outcome.calls, 0);
}

}  // namespace
}  // namespace gpuloom::conformance
