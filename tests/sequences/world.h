// SPDX-License-Identifier: Apache-2.0
// One thread's part of an episode: its objects, and the order in which they may be used.
//
// Used by its own thread; between rounds, when all threads stand, by the one that exchanges objects.
// Whatever is called must succeed: Judge ends the process otherwise.
#pragma once

#include <mutex>
#include <shared_mutex>

#include "tests/sequences/objects.h"
#include "tests/sequences/random.h"

namespace gpuloom::sequences {

// What all threads of a process share.
struct Shared {
  std::string library;
  CUdevice device = 0;
  CUcontext primary = nullptr;
  int threads = 1;
  int priority_least = 0;
  int priority_greatest = 0;
  // What the driver offers; these alone may be NOT_SUPPORTED.
  bool has_green = true;
  bool has_interprocess = true;
  // Held shared by who captures, alone by who waits for a whole context: neither goes with the other.
  std::shared_mutex captures;

  std::mutex kept_mutex;
  std::vector<std::shared_ptr<void>> kept;  // what host functions of graphs use, until the end
};

// What goes from one thread to another.
struct Parcel {
  std::vector<BufferRef> buffers;
  std::vector<StreamRef> streams;
  std::vector<EventRef> events;
};

class World {
 public:
  World(Shared* shared, int index);

  void Begin(uint64_t seed);  // makes what every thread needs
  // Verifies all memory, and destroys everything or, when the context is reset next, forgets it.
  void End(bool everything);
  // Finds all memory idle and right.
  void Settle();

  void SeedStep(uint64_t seed) { random_ = Random(seed); }
  Random& random() { return random_; }
  Journal& journal() { return journal_; }
  Shared& shared() { return *shared_; }
  int index() const { return index_; }

  // ---- order
  // `stream` may use what `uses` say; afterwards it is the only one that does.
  void Join(const StreamRef& stream, Uses* uses);
  // The host may.
  void Finish(Uses* uses);
  // It also ran in `stream`, beside others.
  static void AddUse(const StreamRef& stream, Uses* uses);
  // Nothing waits for the stream itself any more, only for an event in it.
  void Detach(const StreamRef& stream);
  EventRef MakeEvent(unsigned flags);
  void Record(const EventRef& event, const StreamRef& stream);

  // ---- memory
  void Verify(const BufferRef& buffer);
  void Free(BufferRef buffer);
  // A buffer that lies in one of the places that `wanted` says, or null.
  BufferRef AnyBuffer(const std::function<bool(const Buffer&)>& wanted);
  // A part of it, of at most so many words.
  void AnyPart(const Buffer& buffer, uint32_t most, uint32_t* first, uint32_t* count);
  size_t words() const;  // of all buffers

  // ---- work (work.cc)
  std::shared_ptr<Work> MakeWork(bool for_graph);
  void Queue(const StreamRef& stream, const std::shared_ptr<Work>& work);
  void Enqueue(CUstream stream, Work& work, bool capturing);
  CUgraphNode AddNode(CUgraph graph, Work& work, const std::vector<CUgraphNode>& after);
  void Spin(const StreamRef& stream, uint64_t ns);

  StreamRef AnyStream();
  StreamRef AnyOwnStream();  // made by cuStreamCreate, in the primary context, or null
  ModuleRef AnyModule() { return random_.Of(modules); }
  uint32_t NextNumber() { return static_cast<uint32_t>(index_) * 1'000'000 + ++last_number_; }
  void DestroyStream(StreamRef stream);
  void DestroyExec(ExecRef exec);
  void DestroyArray(ArrayRef array);
  void Unload(ModuleRef module);
  void SynchronizeContext();
  // Some objects for another thread, and what another one gives. Called by the own thread.
  Parcel Pack();
  void Unpack(const Parcel& parcel);

  std::vector<StreamRef> streams;
  std::vector<EventRef> events;
  std::vector<BufferRef> buffers;
  std::vector<PoolRef> pools;
  std::vector<ModuleRef> modules;
  std::vector<ExecRef> execs;
  std::vector<ArrayRef> arrays;
  std::vector<GreenRef> greens;

 private:
  void ForEachUses(const std::function<void(Uses*)>& visit);
  std::shared_ptr<Work> MakeKernel(bool for_graph);
  std::shared_ptr<Work> MakeFill(bool for_graph);
  std::shared_ptr<Work> MakeCopy(bool for_graph);
  std::shared_ptr<Work> MakeHost();

  Shared* const shared_;
  const int index_;
  Journal journal_;
  Random random_{0};
  uint32_t last_number_ = 0;
};

// A step that a thread may take next; false: there is nothing to do it with.
struct Step {
  const char* name;
  uint32_t weight;
  bool (*run)(World&);
};
const std::vector<Step>& AllSteps();

std::vector<Step> MemorySteps();
std::vector<Step> StreamSteps();
std::vector<Step> WorkSteps();
std::vector<Step> ModuleSteps();
std::vector<Step> GraphSteps();
std::vector<Step> ArraySteps();
std::vector<Step> ContextSteps();
std::vector<Step> ProcessSteps();

// process_steps.cc: what another process does with what Share passes it; its exit status.
int RunPeer(const std::vector<std::string>& arguments);

// module_steps.cc
ModuleRef LoadModule(World& world, uint32_t stamp, bool with_board, int way);
// memory_steps.cc: a new buffer whose contents are known and idle or in use by a stream.
void Fill(World& world, const BufferRef& buffer);

template <typename T>
void Remove(std::vector<T>* from, T one) {
  for (size_t i = 0; i < from->size(); ++i) {
    if ((*from)[i] == one) {
      from->erase(from->begin() + static_cast<ptrdiff_t>(i));
      return;
    }
  }
}

}  // namespace gpuloom::sequences
